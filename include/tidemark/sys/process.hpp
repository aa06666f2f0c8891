// SPDX-License-Identifier: MIT
// What the operating system charges this process: its resident set, and the highest it was.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/sys/detail/resident_marks.hpp>

namespace tidemark {
inline namespace v0 {

/// What the system says of a process.
struct process_memory_reading {
  reading<std::int64_t> resident_bytes;       ///< pages in memory now, those shared with others included
  reading<std::int64_t> peak_resident_bytes;  ///< the highest since the process began, or since `reset_peak_resident()`
};

/// This process now. Cost: three system calls. Allocates: nothing.
/// Source: VmRSS and VmHWM of /proc/self/status; the kernel's three per-CPU counters may be off by page size x CPUs x
/// max(32, 2 x CPUs) each.
[[nodiscard]] inline process_memory_reading process_memory() noexcept {
  using bytes = reading<std::int64_t>;
  detail::resident_marks* marks = detail::registry<detail::resident_marks>();
  detail::os::resident_now now;
  const char* why = marks == nullptr ? detail::os::read_resident(now) : marks->read_lifetime(now);
  if (why != nullptr) return {bytes::absent_because(why), bytes::absent_because(why)};
  return {now.resident, now.mark};
}

/// `peak_resident_bytes` starts again at what is resident. No window of any scope changes. It resets the kernel's own mark:
/// `ru_maxrss` follows, for this process and for what its parent reads of it.
/// Returns what is resident, or why the kernel refuses. Threads: any.
inline reading<std::int64_t> reset_peak_resident() {
  using result = reading<std::int64_t>;
  detail::resident_marks* marks = detail::registry<detail::resident_marks>();
  if (marks == nullptr) return result::absent("no memory for the library's own state");
  if (const char* why = marks->reset_lifetime()) return result::absent_because(why);
  return process_memory().resident_bytes;
}

/// Whether scopes may reset the kernel's mark when they open, which makes the peaks of `meter::resident` exact to its per-CPU
/// counters: otherwise a window that stays below an earlier peak knows only that. Off at first, since `ru_maxrss` follows, for
/// this process and for what its parent reads of it. Holds for the windows opened from now on. Threads: any.
inline void allow_peak_resident_reset(bool allowed) noexcept {
  if (detail::resident_marks* marks = detail::registry<detail::resident_marks>()) marks->allow_reset(allowed);
}

}  // namespace v0
}  // namespace tidemark
