// SPDX-License-Identifier: MIT
// The contract of sys/host on Linux:
//   read_host(found)   null, or why nothing is known; what is not said stays -1
// Three system calls, no allocation, errno untouched. Source: Documentation/filesystems/proc.rst (meminfo).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/host_figures.hpp>
#include <tidemark/sys/detail/small_file_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstdint>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline const char* read_host(host_figures& found) noexcept {
  found = host_figures();
  small_file<> file(system_path("/proc/meminfo"));
  switch (file.error()) {
    case 0:
      break;
    case EMFILE:
    case ENFILE:
      return "/proc/meminfo cannot be read: no file descriptor is left";
    case EACCES:
    case EPERM:
      return "/proc/meminfo cannot be opened: the system does not permit it";
    default:
      return "/proc/meminfo cannot be opened: is /proc mounted?";
  }
  std::int64_t free = -1;
  std::string_view line;
  while (file.next(line)) {
    static_cast<void>(take_kibibytes(line, "MemTotal:", found.total) || take_kibibytes(line, "MemFree:", free) ||
                      take_kibibytes(line, "MemAvailable:", found.available) ||
                      take_kibibytes(line, "SwapTotal:", found.swap_total) ||
                      take_kibibytes(line, "SwapFree:", found.swap_free));
  }
  // The whole machine's estimate beside the total of a container, as some show it: free(1) takes what is free then.
  if (found.total >= 0 && found.available > found.total) found.available = free <= found.total ? free : -1;
  return nullptr;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
