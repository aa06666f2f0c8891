// SPDX-License-Identifier: MIT
// The contract of a small file that several processes read and rewrite as a whole, here on POSIX systems:
//   read_whole(path, most, text)  0 or an errno value: EISDIR for a folder, EFBIG over `most` bytes, EINVAL for a pipe
//   behind_links(path, target)    where a symbolic link leads, whether something is there or not; 0 or an errno value
//   folder_lock(path)             while it stands, no other one does on a path of the same folder, in any process
//   replace_whole(path, text)     under a folder_lock; 0 or an errno value. Readers find the old text or the new one,
//                                 never a part; after a failure the old one. Keeps the mode; refuses a write-protected
// file None waits for a pipe or raises a signal in the caller; errno is untouched.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/sys/detail/file_posix.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <optional>
  #include <string>
  #include <string_view>
  #include <utility>

  #include <fcntl.h>
  #include <sys/file.h>
  #include <sys/stat.h>
  #include <sys/types.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// A file while it is open.
class open_file {
 public:
  open_file(const std::string& path, int flags, mode_t mode = 0) noexcept
      : fd_(open_above_streams(path.c_str(), flags, mode)) {
    if (fd_ >= 0) return;
    error_ = -fd_;
    fd_ = -1;
  }
  ~open_file() { static_cast<void>(close()); }
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Why it is not open; 0 where it is.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// 0 or an errno value: some file systems say only here that the disk is full.
  [[nodiscard]] int close() noexcept {
    if (fd_ < 0) return 0;
    const no_cancellation whole;
    const int saved = errno;
    const int failed = ::close(fd_) == 0 || errno == EINTR ? 0 : errno;
    fd_ = -1;
    errno = saved;
    return failed;
  }

 private:
  int fd_;
  int error_ = 0;
};

/// With its last slash; empty where the path has none.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

[[nodiscard]] inline int read_whole(const std::string& path, std::size_t most, std::string& text) {
  const open_file file(path, O_RDONLY | O_NONBLOCK);
  if (file.error() != 0) return file.error();
  const no_cancellation whole;
  const int saved = errno;
  const auto answer = [saved](int error) {
    errno = saved;
    return error;
  };
  struct stat found = {};
  if (::fstat(file.fd(), &found) != 0) return answer(errno);
  if (S_ISDIR(found.st_mode)) return answer(EISDIR);
  if (!S_ISREG(found.st_mode)) return answer(EINVAL);
  text.clear();
  char part[16'384];
  for (;;) {
    const ssize_t n = ::read(file.fd(), part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return answer(errno);
    if (n == 0) return answer(0);
    if (text.size() + static_cast<std::size_t>(n) > most) return answer(EFBIG);
    text.append(part, static_cast<std::size_t>(n));
  }
}

[[nodiscard]] inline int behind_links(std::string path, std::string& target) {
  const int saved = errno;
  const auto answer = [saved](int error) {
    errno = saved;
    return error;
  };
  for (int links = 0; links <= 40; ++links) {  // Linux follows as many
    char to[4'096];
    const ssize_t n = ::readlink(path.c_str(), to, sizeof to);
    if (n < 0) {  // no link; what else may be wrong with it is said by whoever opens it
      target = std::move(path);
      return answer(0);
    }
    if (static_cast<std::size_t>(n) == sizeof to) return answer(ENAMETOOLONG);
    const std::string_view next(to, static_cast<std::size_t>(n));
    path = (next.front() == '/' ? std::string() : folder_of(path)).append(next);
  }
  return answer(ELOOP);
}

/// The folder's own lock: it leaves no file behind, and stays the same while files in the folder are replaced.
class folder_lock {
 public:
  explicit folder_lock(const std::string& path, std::int64_t wait_ns = 10'000'000'000) {
    const std::string folder = folder_of(path);
    file_.emplace(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
    error_ = file_->error();
    if (error_ != 0) return;
    error_ = lock(wait_ns);
    if (error_ == 0 || error_ == ETIMEDOUT) return;
    // NFS locks only what is open for writing, which no folder can be.
    file_.emplace(folder + ".tidemark.lock", O_RDWR | O_CREAT, mode_t{0666});
    error_ = file_->error() != 0 ? file_->error() : lock(wait_ns);
  }
  ~folder_lock() {
    if (error_ != 0) return;
    const int saved = errno;
    ::flock(file_->fd(), LOCK_UN);  // closing would not do: a fork child may hold the descriptor too
    errno = saved;
  }
  folder_lock(const folder_lock&) = delete;
  folder_lock& operator=(const folder_lock&) = delete;

  /// Why there is no lock; 0 where there is. ETIMEDOUT: others held it all the time.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  [[nodiscard]] int lock(std::int64_t wait_ns) const noexcept {
    const int saved = errno;
    const std::int64_t until = steady_ns() + wait_ns;
    int failed = 0;
    while (::flock(file_->fd(), LOCK_EX | LOCK_NB) != 0) {
      failed = errno;
      if (failed != EWOULDBLOCK && failed != EINTR) break;
      failed = ETIMEDOUT;
      if (steady_ns() >= until) break;
      pause_ns(100'000);
      failed = 0;
    }
    errno = saved;
    return failed;
  }

  std::optional<open_file> file_;
  int error_ = 0;
};

[[nodiscard]] inline int replace_whole(const std::string& path, std::string_view text) {
  const no_cancellation whole;
  const int saved = errno;
  const auto answer = [saved](int error) {
    errno = saved;
    return error;
  };
  struct stat old = {};
  const bool has_old = ::stat(path.c_str(), &old) == 0;
  if (has_old && S_ISDIR(old.st_mode)) return answer(EISDIR);
  if (has_old && !S_ISREG(old.st_mode)) return answer(EINVAL);  // a device or a pipe would be gone
  // A rename asks only the folder.
  if (has_old && ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return answer(errno);
  // Beside the file, since a rename stays in its file system; one name, since the lock is the folder's.
  const std::string fresh_path = folder_of(path) + ".tidemark.new";
  ::unlink(fresh_path.c_str());  // what a process left that was killed here
  open_file fresh(fresh_path, O_WRONLY | O_CREAT | O_EXCL, has_old ? 0600 : 0666);
  if (fresh.error() != 0) return answer(fresh.error());
  std::size_t written = 0;
  int failed = write_line(fresh.fd(), "", text, written);
  if (failed == 0 && has_old) {
    // Only root may give a file away; another's is then the writer's own, as after many an editor.
    [[maybe_unused]] const int is_mine = ::fchown(fresh.fd(), old.st_uid, old.st_gid);
    if (::fchmod(fresh.fd(), old.st_mode & 07777) != 0) failed = errno;
  }
  const int closed = fresh.close();
  if (failed == 0) failed = closed;
  if (failed == 0 && ::rename(fresh_path.c_str(), path.c_str()) != 0) failed = errno;
  if (failed != 0) ::unlink(fresh_path.c_str());
  return answer(failed);
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
