// SPDX-License-Identifier: MIT
// What the machine has: memory in all, what is left without swapping, and swap. A container sees the whole machine
// here; what it may use of it is in sys/limit.
#pragma once

#include <cstdint>

#include <tidemark/core/reading.hpp>
#include <tidemark/sys/detail/figure.hpp>
#include <tidemark/sys/detail/host_linux.hpp>
#include <tidemark/sys/detail/host_unknown.hpp>

namespace tidemark {
inline namespace v0 {

/// What the system says of its memory. Units: bytes.
struct host_memory_reading {
  using bytes = reading<std::int64_t>;

  bytes total_bytes = bytes::absent("not read");  ///< what the kernel manages: less than is built in
  /// What programs could still get without swapping, file cache included: the kernel's estimate.
  bytes available_bytes = bytes::absent("not read");
  /// Total less available, as `free` of procps 4 says; psutil 5.9 counts no file cache at all.
  bytes used_bytes = bytes::absent("not read");
  bytes swap_total_bytes = bytes::absent("not read");  ///< 0 where there is none
  bytes swap_free_bytes = bytes::absent("not read");
  bytes swap_used_bytes = bytes::absent("not read");
};

/// The host now. Threads: any. Cost: three system calls. Allocates: nothing. Source: /proc/meminfo.
[[nodiscard]] inline host_memory_reading host_memory() noexcept {
  detail::os::host_figures f;
  const char* const why = detail::os::read_host(f);
  const auto known = [why](std::int64_t value, const char* lacks) {
    return detail::figure(value, why != nullptr ? why : lacks);
  };
  const char* const no_total = "/proc/meminfo has no MemTotal: it ends early, or is another system's";
  const char* const no_available = "/proc/meminfo has no MemAvailable: it ends early, or the kernel is older than 3.14";
  const char* const no_swap = "/proc/meminfo lacks SwapTotal or SwapFree: it ends early, or is another system's";
  host_memory_reading r;
  r.total_bytes = known(f.total, no_total);
  r.available_bytes = known(f.available, no_available);
  r.used_bytes = known(f.used(), f.total < 0 ? no_total : no_available);
  r.swap_total_bytes = known(f.swap_total, no_swap);
  r.swap_free_bytes = known(f.swap_free, no_swap);
  r.swap_used_bytes = known(f.swap_used(), no_swap);
  return r;
}

}  // namespace v0
}  // namespace tidemark
