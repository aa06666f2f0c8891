// SPDX-License-Identifier: MIT
// The permission that scopes need before they reset the kernel's high-water mark of the resident set.
#pragma once

#include <tidemark/core/ledger.hpp>
#include <tidemark/sys/detail/resident_marks.hpp>

namespace tidemark {
inline namespace v0 {

/// Whether scopes may reset the kernel's mark when they open, which makes the peaks of `meter::resident` exact to its per-CPU
/// counters: otherwise a window that stays below an earlier peak knows only that. Off at first, since `ru_maxrss` follows, for
/// this process and for what its parent reads of it. Holds for the windows opened from now on. Threads: any.
inline void allow_peak_resident_reset(bool allowed) noexcept {
  if (detail::resident_marks* marks = detail::registry<detail::resident_marks>()) marks->allow_reset(allowed);
}

}  // namespace v0
}  // namespace tidemark
