// SPDX-License-Identifier: MIT
// The counters that come to mind first: one live and one peak figure for the process, shared by every thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace bench {

inline std::atomic<std::int64_t> live_bytes{0};
inline std::atomic<std::int64_t> peak_bytes{0};

// Relaxed throughout (counters only).
inline void count_allocated(std::int64_t n) noexcept {
  const std::int64_t now = live_bytes.fetch_add(n, std::memory_order_relaxed) + n;
  std::int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}
inline void count_freed(std::int64_t n) noexcept { live_bytes.fetch_sub(n, std::memory_order_relaxed); }

}  // namespace bench
