// SPDX-License-Identifier: MIT
// What ends a program's growth first: the limit of a control group or of one above it, a resource limit, or the
// machine's memory. Asked once, or again and again at a small cost.
#pragma once

#include <tidemark/sys/detail/limit_linux.hpp>
#include <tidemark/sys/detail/limit_unknown.hpp>
#include <tidemark/sys/limit_reading.hpp>

namespace tidemark {
inline namespace v0 {

/// The nearest limit again and again, cheaply. Each read sees what is used of it, and one further file in turn: a
/// change elsewhere, of another limit or of the process's cgroup, is seen after as many reads as there are files, some
/// 8 and 4 for each cgroup on the way up. `refresh()` sees all of it at once; it alone looks at what is mounted.
/// Threads: one at a time. A fork child may go on with its copy; no descriptor stays open.
/// Allocates: nothing on the heap; the names of cgroups are kept for ever.
/// Cost: at most nine system calls a read, some more while a standard stream is closed; about 3.5 KiB.
class limit_watch {
 public:
  /// Reads everything, as `refresh()`.
  limit_watch() noexcept { refresh(); }

  /// Reads everything: three system calls for each file, and for each 4 KiB of the list of mounts one.
  void refresh() noexcept { tracker_.read_all(); }

  [[nodiscard]] memory_limit_reading read() noexcept {
    tracker_.read_some();
    return last();
  }

  /// What the last read found. Cost: no system call.
  [[nodiscard]] memory_limit_reading last() const noexcept { return tracker_.found(); }

 private:
  detail::os::limit_tracker tracker_;
};

/// The nearest limit now. A limit whose use is not known is the nearest where all of it is less than what others leave.
/// Threads: any. Cost: some 33 system calls (measured, cgroup v1, no limit set), more with each cgroup on the way up. Allocates: nothing on the heap.
/// Source: /proc/self/cgroup, mountinfo and status, the files of the memory cgroups, getrlimit(), /proc/meminfo. A
/// parent's limit of version 1 counts although it does not hold where use_hierarchy is 0 (possible before Linux 5.11).
[[nodiscard]] inline memory_limit_reading memory_limit() noexcept { return limit_watch().last(); }

}  // namespace v0
}  // namespace tidemark
