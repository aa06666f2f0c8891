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

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>

  #include <fcntl.h>
  #include <unistd.h>

  #include <tidemark/sys/detail/status_linux.hpp>
  #include <tidemark/sys/detail/system_file_linux.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline const char* read_resident(resident_now& found) noexcept {
  status_figures all;
  const char* const why =
      read_status(this_process_id, all, [](const status_figures& f) { return f.mark >= 0 && f.resident >= 0; });
  found = {all.resident, all.mark};
  return why;
}

[[nodiscard]] inline const char* reset_mark() noexcept {
  const system_file file(system_path("/proc/thread-self/clear_refs"), O_WRONLY);
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
