// SPDX-License-Identifier: MIT
// The contract of sys/file on POSIX systems:
//   open_to_append(path)             a descriptor, or a negative errno value
//   descriptor_of(stream)            a descriptor, or -1 for a stream that has none
//   write_line(fd, mend, line, n)    `mend` and `line` in one write: 0 or an errno value; n is how many bytes went out
//   write_stream, flush_stream       0 or an errno value
//   is_empty(fd)                     whether a file holds nothing; true for what keeps nothing, as a pipe
//   file_lock                        while it stands, others that take one on the same file wait, in any process
// None raises SIGPIPE or SIGXFSZ in the caller; errno is untouched.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_signal.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/sys/detail/open_posix.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdio>
  #include <string_view>

  #include <fcntl.h>
  #include <sys/file.h>
  #include <sys/stat.h>
  #include <sys/types.h>
  #include <sys/uio.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// A pipe that nobody reads is an error (ENXIO), not a wait for a reader.
[[nodiscard]] inline int open_to_append(const char* path) noexcept {
  const int fd = open_above_streams(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0666);
  const int saved = errno;
  if (fd >= 0) ::fcntl(fd, F_SETFL, O_APPEND);
  errno = saved;
  return fd;
}

inline void close_descriptor(int fd) noexcept {
  const no_cancellation whole;
  const int saved = errno;
  ::close(fd);
  errno = saved;
}

[[nodiscard]] inline int descriptor_of(std::FILE* stream) noexcept {
  const int saved = errno;
  const int fd = ::fileno(stream);
  errno = saved;
  return fd;
}

[[nodiscard]] inline int flush_stream(std::FILE* stream) noexcept {
  const signal_shield shield;
  return std::fflush(stream) == 0 ? 0 : errno;
}

[[nodiscard]] inline int write_stream(std::FILE* stream, std::string_view line) noexcept {
  const signal_shield shield;
  errno = 0;
  if (std::fwrite(line.data(), 1, line.size(), stream) == line.size() && std::fflush(stream) == 0) return 0;
  return errno != 0 ? errno : EIO;
}

[[nodiscard]] inline int write_line(int fd, std::string_view mend, std::string_view line,
                                    std::size_t& written) noexcept {
  const signal_shield shield;
  const std::size_t head = mend.size();
  written = 0;
  // One call writes it all, but where the system cuts it short (a full disk, a signal): then the rest is tried.
  while (head + line.size() > written) {
    iovec parts[2];
    int count = 0;
    if (written < head) parts[count++] = {const_cast<char*>(mend.data()) + written, head - written};
    const std::size_t done = written < head ? 0 : written - head;
    parts[count++] = {const_cast<char*>(line.data()) + done, line.size() - done};
    const ssize_t n = ::writev(fd, parts, count);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    written += static_cast<std::size_t>(n);
  }
  return 0;
}

[[nodiscard]] inline bool is_empty(int fd) noexcept {
  const int saved = errno;
  struct stat found = {};
  const bool holds_something = ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 0;
  errno = saved;
  return !holds_something;
}

/// Goes on without the lock after 0.1 s or so: `flock FILE PROGRAM` holds it until the program ends.
class file_lock {
 public:
  explicit file_lock(int fd) noexcept : fd_(fd) {
    const int saved = errno;
    for (int tries = 0; tries < 1'000; ++tries) {
      if (::flock(fd, LOCK_EX | LOCK_NB) == 0) break;
      if (errno != EWOULDBLOCK && errno != EINTR) break;  // a file system without locks
      pause_ns(100'000);
    }
    errno = saved;
  }
  ~file_lock() {
    const int saved = errno;
    ::flock(fd_, LOCK_UN);
    errno = saved;
  }
  file_lock(const file_lock&) = delete;
  file_lock& operator=(const file_lock&) = delete;

 private:
  no_cancellation whole_;  // a pause is a cancellation point
  int fd_;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
