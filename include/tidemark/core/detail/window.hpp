// SPDX-License-Identifier: MIT
// A window over an account, and the list of those that are open: plain data and its arithmetic.
#pragma once

#include <cstdint>

#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// What only grows: the sums since an account began.
struct event_totals {
  std::uint64_t allocations = 0;
  std::uint64_t deallocations = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t freed_bytes = 0;

  event_totals& operator+=(const event_totals& other) noexcept {
    allocations += other.allocations;
    deallocations += other.deallocations;
    allocated_bytes += other.allocated_bytes;
    freed_bytes += other.freed_bytes;
    return *this;
  }
  event_totals& operator-=(const event_totals& other) noexcept {
    allocations -= other.allocations;
    deallocations -= other.deallocations;
    allocated_bytes -= other.allocated_bytes;
    freed_bytes -= other.freed_bytes;
    return *this;
  }
};

template <class T>
constexpr void raise_to(T& mark, T candidate) noexcept {
  if (candidate > mark) mark = candidate;
}

/// An open window. Whoever opens it owns the memory; the account links it into its list until it closes.
struct window_node {
  std::int64_t entry = 0;
  std::int64_t peak = 0;
  std::uint64_t largest = 0;
  event_totals totals_at_entry;
  std::int64_t users = 0;      // shared windows: the most thread accounts in use at one time
  bool has_unsettled = false;  // shared windows: at the entry a thread held back more than the one that opened it
  window_node* older = nullptr;
  window_node* newer = nullptr;
};

/// Open windows in opening order. The permanent one at the bottom spans the account's whole life.
class window_list {
 public:
  [[nodiscard]] window_node* newest() const noexcept { return newest_; }

  void restart(window_node& bottom) noexcept {
    bottom.older = bottom.newer = nullptr;
    newest_ = &bottom;
  }
  void push(window_node& w) noexcept {
    w.older = newest_;
    w.newer = nullptr;
    if (newest_ != nullptr) newest_->newer = &w;
    newest_ = &w;
  }
  void remove(window_node& w) noexcept {
    (w.newer != nullptr ? w.newer->older : newest_) = w.older;
    if (w.older != nullptr) w.older->newer = w.newer;
  }

 private:
  window_node* newest_ = nullptr;
};

/// The window so far, where `live` and `now` are the account's.
inline window_usage usage_of(const window_node& w, std::int64_t live, event_totals now) noexcept {
  now -= w.totals_at_entry;
  window_usage u;
  u.entry_bytes = w.entry;
  u.exit_bytes = live;
  u.peak_bytes = w.peak;
  raise_to(u.peak_bytes, live);
  u.allocations = now.allocations;
  u.deallocations = now.deallocations;
  u.allocated_bytes = now.allocated_bytes;
  u.freed_bytes = now.freed_bytes;
  u.largest_bytes = w.largest;
  return u;
}

/// An account since it began, or since its peak was reset: `w` is the window over its whole life, `now` its totals.
inline usage usage_of_life(const window_usage& w, const event_totals& now) noexcept {
  usage u;
  u.live_bytes = w.exit_bytes;
  u.peak_bytes = w.peak_bytes;
  u.live_blocks = static_cast<std::int64_t>(now.allocations) - static_cast<std::int64_t>(now.deallocations);
  u.allocations = now.allocations;
  u.deallocations = now.deallocations;
  u.allocated_bytes = now.allocated_bytes;
  u.freed_bytes = now.freed_bytes;
  u.error_bound_bytes = w.error_bound_bytes;
  return u;
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
