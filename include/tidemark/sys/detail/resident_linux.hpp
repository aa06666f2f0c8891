// SPDX-License-Identifier: MIT
// The contract of sys/process about the resident set, on Linux:
//   read_resident(found)   null, or why not; what is resident now, and the kernel's high-water mark of it
//   reset_mark()           null, or why not; the mark starts again at what is resident
//   resident_error_bytes() how far the kernel's per-CPU counters may be off: three of them, each by a batch per processor
// Every function: a bounded number of system calls, no allocation, errno untouched, reasons that live for ever.
// Source: Documentation/filesystems/proc.rst (status, clear_refs), mm/percpu_counter.c.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/open_posix.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstring>

  #include <fcntl.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// Units: bytes.
struct resident_now {
  std::int64_t resident = 0;
  std::int64_t mark = 0;
};

// Scopes come through here, and do without system_file_linux.hpp: it would cost each of them 300 lines.

/// The number of KiB behind `key` in a status file, in bytes; -1 where it has none.
[[nodiscard]] inline std::int64_t status_bytes(const char* text, const char* key) noexcept {
  const char* at = std::strstr(text, key);
  if (at == nullptr) return -1;
  at += std::strlen(key);
  while (*at == ' ' || *at == '\t') ++at;
  if (*at < '0' || *at > '9') return -1;
  std::int64_t kibibytes = 0;
  for (; *at >= '0' && *at <= '9'; ++at) kibibytes = kibibytes * 10 + (*at - '0');
  if (*at == '\0') return -1;  // cut where the text was
  return kibibytes * 1'024;
}

[[nodiscard]] inline const char* read_resident(resident_now& found) noexcept {
  found = {-1, -1};
  // A thread's own file: that of the first thread is empty of figures once it has ended.
  const opened_file file("/proc/thread-self/status", O_RDONLY);
  if (file.error() == EMFILE || file.error() == ENFILE) {
    return "/proc/self/status cannot be opened: no file descriptor is left";
  }
  if (file.error() != 0) return "/proc/self/status cannot be opened: is /proc mounted?";
  char text[4'096];
  std::size_t kept = 0;
  // With the newline before it, no process name can pass for a key. Read once, unless the process is in hundreds of groups,
  // whose line comes first.
  for (;;) {
    const ssize_t size = ::read(file.descriptor(), text + kept, sizeof text - 1 - kept);
    if (size < 0) return "/proc/self/status cannot be read";
    if (size == 0) return "/proc/self/status has no VmRSS and VmHWM";
    const std::size_t end = kept + static_cast<std::size_t>(size);
    text[end] = '\0';
    if (found.mark < 0) found.mark = status_bytes(text, "\nVmHWM:");
    if (found.resident < 0) found.resident = status_bytes(text, "\nVmRSS:");
    if (found.resident >= 0 && found.mark >= 0) return nullptr;
    kept = end < 128 ? end : 128;
    std::memmove(text, text + end - kept, kept);
    found = {-1, -1};
  }
}

[[nodiscard]] inline const char* reset_mark() noexcept {
  const opened_file file("/proc/thread-self/clear_refs", O_WRONLY);
  if (file.error() == EACCES || file.error() == EPERM || file.error() == EROFS) {
    return "the kernel refuses to reset the high-water mark: /proc/self/clear_refs may not be written";
  }
  if (file.error() == ENOENT) return "the kernel cannot reset the high-water mark: there is no /proc/self/clear_refs";
  if (file.error() != 0) return "the high-water mark cannot be reset: /proc/self/clear_refs cannot be opened";
  if (::write(file.descriptor(), "5", 1) != 1) {
    return "the kernel refuses to reset the high-water mark: writing 5 to /proc/self/clear_refs failed";
  }
  return nullptr;
}

[[nodiscard]] inline std::int64_t resident_error_bytes() noexcept {
  const int saved = errno;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  errno = saved;
  const std::int64_t cpus = processors > 0 ? processors : 1;
  constexpr std::int64_t counters = 3;  // of anonymous, file and shared pages
  return counters * page * cpus * (2 * cpus > 32 ? 2 * cpus : 32);
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
