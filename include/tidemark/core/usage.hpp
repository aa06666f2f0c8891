// SPDX-License-Identifier: MIT
// The plain data that every report is made of: the state of an account, and what happened in a window.
#pragma once

#include <cstdint>

namespace tidemark {
inline namespace v0 {

/// The state of an account at one moment, in requested bytes.
struct usage {
  std::int64_t live_bytes = 0;         ///< allocated and not yet freed; negative where others' blocks were freed here
  std::int64_t peak_bytes = 0;         ///< the highest `live_bytes` so far; never below `live_bytes`
  std::int64_t live_blocks = 0;        ///< allocations minus deallocations
  std::uint64_t allocations = 0;       ///< blocks ever allocated
  std::uint64_t deallocations = 0;     ///< blocks ever freed
  std::uint64_t allocated_bytes = 0;   ///< bytes ever allocated
  std::uint64_t freed_bytes = 0;       ///< bytes ever freed
  std::int64_t error_bound_bytes = 0;  ///< live and peak are off by at most this; 0 is exact
};

/// What happened between two points in time, in requested bytes unless the meter names another unit.
struct window_usage {
  std::int64_t entry_bytes = 0;        ///< live at the entry
  std::int64_t exit_bytes = 0;         ///< live at the exit, or now while the window is open
  std::int64_t peak_bytes = 0;         ///< the highest live bytes in between; never below either edge
  std::uint64_t allocations = 0;       ///< blocks allocated in the window
  std::uint64_t deallocations = 0;     ///< blocks freed in the window, whenever they were allocated
  std::uint64_t allocated_bytes = 0;   ///< bytes allocated in the window
  std::uint64_t freed_bytes = 0;       ///< bytes freed in the window
  std::uint64_t largest_bytes = 0;     ///< the largest single allocation in the window
  bool counts_events = true;           ///< false: the five above are unknown, and sinks leave them out
  std::int64_t error_bound_bytes = 0;  ///< entry, exit and peak are each off by at most this; 0 is exact

  /// Live at the exit minus live at the entry. May be negative.
  [[nodiscard]] std::int64_t net_bytes() const noexcept { return exit_bytes - entry_bytes; }
  /// The peak above the entry. Never negative.
  [[nodiscard]] std::int64_t peak_growth() const noexcept { return peak_bytes - entry_bytes; }
};

}  // namespace v0
}  // namespace tidemark
