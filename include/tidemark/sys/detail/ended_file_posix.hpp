// SPDX-License-Identifier: MIT
// The contract of a file that grows and always ends the same way, so that readers find it complete at any time, here on
// POSIX systems:
//   ended_file f; f.open(path)   takes the file for this process alone and empties it; 0 or an errno value: EWOULDBLOCK
//                                where another sink has it, in this process or another, ESPIPE for what is no plain file
//   f.append(text, end_bytes)    `text` with the end behind it, over the end before, in one write; 0 or an errno value,
//                                after which the file is as before
//   f.close()                    f.abandon() in a fork child: what is the parent's stays so
// None raises a signal in the caller; errno is untouched. Threads: one at a time.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_signal.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/sys/detail/file_posix.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <string_view>

  #include <fcntl.h>
  #include <sys/file.h>
  #include <sys/stat.h>
  #include <sys/types.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class ended_file {
 public:
  ended_file() noexcept = default;
  ~ended_file() { close(); }
  ended_file(const ended_file&) = delete;
  ended_file& operator=(const ended_file&) = delete;

  [[nodiscard]] int open(const char* path) noexcept {
    close();
    // Not O_TRUNC: the file may be another's, which the lock tells.
    descriptor_ = open_above_streams(path, O_WRONLY | O_CREAT | O_NONBLOCK, 0666);
    if (descriptor_ < 0) return -descriptor_;
    const int saved = errno;
    const int failed = take();
    if (failed != 0) abandon();
    errno = saved;
    return failed;
  }

  [[nodiscard]] int append(std::string_view text, std::size_t end_bytes) noexcept {
    if (descriptor_ < 0) return EBADF;
    const signal_shield shield;
    const int saved = errno;
    const int failed = write(text_bytes_, text);
    if (failed == 0) {
      text_bytes_ += text.size() - end_bytes;
    } else {
      const bool is_ended = text_bytes_ > 0 && write(text_bytes_, text.substr(text.size() - end_bytes)) == 0;
      cut(text_bytes_ + (is_ended ? end_bytes : 0));
    }
    errno = saved;
    return failed;
  }

  void close() noexcept {
    if (descriptor_ < 0) return;
    const int saved = errno;
    ::flock(descriptor_, LOCK_UN);  // closing would not do: a fork child may hold the descriptor too
    errno = saved;
    abandon();
  }

  void abandon() noexcept {
    if (descriptor_ >= 0) close_descriptor(descriptor_);
    descriptor_ = -1;
    text_bytes_ = 0;
  }

 private:
  [[nodiscard]] int take() noexcept {
    struct stat found = {};
    if (::fstat(descriptor_, &found) != 0) return errno;
    if (!S_ISREG(found.st_mode)) return ESPIPE;
    // Other refusals come from file systems without locks.
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return EWOULDBLOCK;
    return ::ftruncate(descriptor_, 0) == 0 ? 0 : errno;
  }
  [[nodiscard]] int write(std::size_t at, std::string_view text) const noexcept {
    while (!text.empty()) {
      const ssize_t n = ::pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (n == 0) return EIO;
      at += static_cast<std::size_t>(n);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
  }
  void cut(std::size_t bytes) const noexcept {
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, static_cast<off_t>(bytes));
  }

  int descriptor_ = -1;
  std::size_t text_bytes_ = 0;  // without the end
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
