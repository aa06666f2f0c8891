// SPDX-License-Identifier: MIT
// Opening a file so that it disturbs nobody: on POSIX systems. Light, since scopes of the resident set open files.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <cerrno>

  #include <fcntl.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// A descriptor, or a negative errno value. Above the standard streams: where one is closed, what is printed there must not
/// land in the file.
[[nodiscard]] inline int open_above_streams(const char* path, int flags, mode_t mode) noexcept {
  const no_cancellation whole;
  const int saved = errno;
  int fd = 0;
  do {
    fd = ::open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd >= 0 && fd <= STDERR_FILENO) {
    const int low = fd;
    fd = ::fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int failed = errno;
    ::close(low);
    errno = failed;
  }
  if (fd < 0) fd = -errno;
  errno = saved;
  return fd;
}

/// A file while it is open. Meanwhile the thread is not cancelled, and in the end errno is as before.
class opened_file {
 public:
  opened_file(const char* path, int flags) noexcept : descriptor_(open_above_streams(path, flags, 0)) {}
  ~opened_file() {
    if (descriptor_ >= 0) ::close(descriptor_);
    errno = saved_errno_;
  }
  opened_file(const opened_file&) = delete;
  opened_file& operator=(const opened_file&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// Why it is not open, as an errno value; 0 where it is.
  [[nodiscard]] int error() const noexcept { return descriptor_ < 0 ? -descriptor_ : 0; }

 private:
  no_cancellation whole_;
  int saved_errno_ = errno;
  int descriptor_;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
