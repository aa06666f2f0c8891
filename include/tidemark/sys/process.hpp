// SPDX-License-Identifier: MIT
// What the operating system charges a process: what is resident and the highest it was, what is shared, swapped out and
// locked.
#pragma once

#include <cstdint>

#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/sys/detail/figure.hpp>
#include <tidemark/sys/detail/process_linux.hpp>
#include <tidemark/sys/detail/process_unknown.hpp>
#include <tidemark/sys/detail/resident_marks.hpp>
#include <tidemark/sys/peak_reset.hpp>

namespace tidemark {
inline namespace v0 {

/// Stands for the process that asks, where the number of a process is asked for.
inline constexpr std::int64_t this_process = detail::os::this_process_id;

/// What the system says of a process. Units: bytes, but the faults.
struct process_memory_reading {
  using bytes = reading<std::int64_t>;

  bytes resident_bytes = bytes::absent("not read");  ///< pages in memory now, those shared with others included
  bytes peak_resident_bytes =
      bytes::absent("not read");  ///< the highest since the process began, or since `reset_peak_resident()`
  bytes virtual_bytes = bytes::absent("not read");  ///< all that is mapped, touched or not
  bytes shared_bytes =
      bytes::absent("not read");  ///< resident pages of files and of shared memory: others may have them too
  bytes data_bytes = bytes::absent("not read");  ///< private writable mappings, touched or not: what RLIMIT_DATA limits
  bytes swap_bytes = bytes::absent("not read");  ///< anonymous pages that are swapped out
  bytes locked_bytes = bytes::absent("not read");  ///< mappings that mlock() keeps in memory
  bytes minor_faults = bytes::absent(
      "not read");  ///< pages that were given without reading from a disk; a count, since the process began
  bytes major_faults = bytes::absent("not read");  ///< pages that had to be read; a count, since the process began
};

/// The same, and what takes the kernel a walk over every page.
struct process_memory_full_reading : process_memory_reading {
  bytes proportional_bytes =
      bytes::absent("not read");  ///< pss: a page that n processes share counts as its n-th part in each
  bytes unique_bytes = bytes::absent("not read");  ///< uss: what would become free if it ended
  bytes huge_page_bytes = bytes::absent(
      "not read");  ///< in transparent huge pages, and in those of hugetlbfs, which `resident_bytes` leaves out
};

namespace detail {

inline void fill(process_memory_reading& r, std::int64_t pid) noexcept {
  os::status_figures f;
  resident_marks* const marks = pid == this_process ? registry<resident_marks>() : nullptr;
  const auto look = [&](os::resident_now& now) {
    const char* const lacks = os::read_status(pid, f);
    now = {f.resident, f.mark};
    return lacks;
  };
  os::resident_now now;
  const char* const why = marks == nullptr ? look(now) : marks->read_lifetime(now, look);
  f.mark = now.mark;
  const bool has_shared = f.of_files >= 0 && f.of_shared_memory >= 0;
  os::fault_figures faults;
  const char* const why_no_faults = os::read_faults(pid, faults);
  r.resident_bytes = figure(f.resident, why);
  r.peak_resident_bytes = figure(f.mark, why);
  r.virtual_bytes = figure(f.virtual_size, why);
  r.shared_bytes = figure(has_shared ? f.of_files + f.of_shared_memory : -1, why);
  r.data_bytes = figure(f.data, why);
  r.swap_bytes = figure(f.swap, why);
  r.locked_bytes = figure(f.locked, why);
  r.minor_faults = figure(faults.minor_faults, why_no_faults);
  r.major_faults = figure(faults.major_faults, why_no_faults);
}

}  // namespace detail

/// The process with that number now. Cost: four system calls for this process, seven for another. Allocates: nothing.
/// Source: /proc/PID/status, and getrusage() or /proc/PID/stat; the kernel's three per-CPU counters of resident pages may be
/// off by page size x CPUs x max(32, 2 x CPUs) each. What is in hugetlbfs is not in `resident_bytes`.
[[nodiscard]] inline process_memory_reading process_memory(std::int64_t pid = this_process) noexcept {
  process_memory_reading r;
  detail::fill(r, pid);
  return r;
}

/// The same with pss, uss and huge pages. Another's needs the right to trace it. Allocates: nothing.
/// Cost: the kernel walks every page: 10 ms for each GiB of small ones (measured, Linux 6.18). Source: /proc/PID/smaps_rollup, or smaps before Linux 4.14.
[[nodiscard]] inline process_memory_full_reading process_memory_full(std::int64_t pid = this_process) noexcept {
  process_memory_full_reading r;
  detail::fill(r, pid);
  detail::os::full_figures f;
  const char* const why = detail::os::read_full(pid, f);
  r.proportional_bytes = detail::figure(f.proportional, why);
  r.unique_bytes = detail::figure(f.unique, why);
  r.huge_page_bytes = detail::figure(f.huge, why);
  return r;
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

}  // namespace v0
}  // namespace tidemark
