// SPDX-License-Identifier: MIT
// The two-level byte account. Each thread keeps its own balance and settles it in batches into a shared one; windows over
// either know their entry, peak and exit, whatever the order in which they close. docs/semantics.md has the examples.
//
// Per event: five additions and two comparisons on the thread's own cache line, whatever the number of open windows.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/sync.hpp>
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
  std::int64_t users = 0;  // shared windows: the most thread accounts in use at one time
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

inline window_usage usage_of(const window_node& w, std::int64_t live, const event_totals& now) noexcept {
  window_usage u;
  u.entry_bytes = w.entry;
  u.exit_bytes = live;
  u.peak_bytes = w.peak;
  raise_to(u.peak_bytes, live);
  u.allocations = now.allocations - w.totals_at_entry.allocations;
  u.deallocations = now.deallocations - w.totals_at_entry.deallocations;
  u.allocated_bytes = now.allocated_bytes - w.totals_at_entry.allocated_bytes;
  u.freed_bytes = now.freed_bytes - w.totals_at_entry.freed_bytes;
  u.largest_bytes = w.largest;
  return u;
}

class shared_account;

/// The account of one thread. Written by its thread only; others read `pending` and the totals.
class thread_account {
 public:
  constexpr thread_account() noexcept = default;

  /// Counts an allocation. False: the balance has moved too far to be held back, and `settle_allocated(n)` must follow.
  [[nodiscard]] TIDEMARK_ALWAYS_INLINE bool try_allocated(std::uint64_t n) noexcept {
    allocations_.add(1);
    allocated_bytes_.add(n);
    if (n > largest_.own()) largest_.store(n);
    const std::int64_t p = pending_.own() + static_cast<std::int64_t>(n);
    if (p > high_) {
      if (TIDEMARK_UNLIKELY(p > ceiling_)) return false;
      high_ = p;
    }
    pending_.store(p);
    return true;
  }
  TIDEMARK_COLD void settle_allocated(std::uint64_t n) noexcept {
    settle_at(pending_.own() + static_cast<std::int64_t>(n));
  }

  /// Counts a deallocation. False: `settle_freed(n)` must follow.
  [[nodiscard]] TIDEMARK_ALWAYS_INLINE bool try_freed(std::uint64_t n) noexcept {
    deallocations_.add(1);
    freed_bytes_.add(n);
    const std::int64_t p = pending_.own() - static_cast<std::int64_t>(n);
    if (TIDEMARK_UNLIKELY(p < floor_)) return false;
    pending_.store(p);
    return true;
  }
  TIDEMARK_COLD void settle_freed(std::uint64_t n) noexcept {
    settle_at(pending_.own() - static_cast<std::int64_t>(n));
  }

  void allocated(std::uint64_t n) noexcept {
    if (!try_allocated(n)) settle_allocated(n);
  }
  void freed(std::uint64_t n) noexcept {
    if (!try_freed(n)) settle_freed(n);
  }

  [[nodiscard]] std::int64_t live() const noexcept { return base_ + pending_.own(); }

  [[nodiscard]] event_totals totals() const noexcept {
    return {allocations_.load(), deallocations_.load(), allocated_bytes_.load(), freed_bytes_.load()};
  }

  /// A new thread takes the account over: its balance starts at 0; the totals go on for the shared account's sake.
  void begin(shared_account& shared, std::int64_t settle_bytes) noexcept;
  /// The thread is gone: what it held back is settled, and every window left open is forgotten.
  void end() noexcept;

  void open(window_node& w) noexcept {
    checkpoint();
    w.entry = w.peak = live();
    w.largest = 0;
    w.totals_at_entry = totals();
    windows_.push(w);
  }

  /// Closes windows in any order. Cost: one step per window opened after it and still open.
  window_usage close(window_node& w) noexcept {
    const window_usage u = read(w);
    w.peak = u.peak_bytes;
    w.largest = u.largest_bytes;
    hand_down(w);
    return u;
  }

  /// Closes a window that nobody reads. The one below takes its marks; those above keep theirs, and hand them down in turn.
  void drop(window_node& w) noexcept {
    checkpoint();
    hand_down(w);
  }

  /// The window so far.
  [[nodiscard]] window_usage read(const window_node& w) noexcept {
    checkpoint();
    window_node whole = w;
    for (const window_node* inner = w.newer; inner != nullptr; inner = inner->newer) {
      raise_to(whole.peak, inner->peak);
      raise_to(whole.largest, inner->largest);
    }
    return usage_of(whole, live(), totals());
  }

  /// Since the thread began.
  [[nodiscard]] usage lifetime() noexcept {
    const window_usage w = read(whole_life_);
    usage u;
    u.live_bytes = w.exit_bytes;
    u.peak_bytes = w.peak_bytes;
    u.live_blocks = static_cast<std::int64_t>(w.allocations) - static_cast<std::int64_t>(w.deallocations);
    u.allocations = w.allocations;
    u.deallocations = w.deallocations;
    u.allocated_bytes = w.allocated_bytes;
    u.freed_bytes = w.freed_bytes;
    return u;
  }

  /// Hands what is pending to the shared account.
  void settle() noexcept { settle_at(pending_.own()); }

  [[nodiscard]] window_list& windows() noexcept { return windows_; }

 private:
  friend class shared_account;

  void hand_down(window_node& w) noexcept {
    if (w.older != nullptr) {
      raise_to(w.older->peak, w.peak);
      raise_to(w.older->largest, w.largest);
    }
    windows_.remove(w);
  }

  // What `high_` and `largest_` knew goes to the innermost window, and is kept for the next settle.
  void checkpoint() noexcept {
    window_node& innermost = *windows_.newest();
    raise_to(innermost.peak, base_ + high_);
    raise_to(innermost.largest, largest_.own());
    raise_to(shared_high_, high_);
    if (largest_.own() > shared_largest_.own()) shared_largest_.store(largest_.own());
    high_ = pending_.own();
    largest_.store(0);
  }

  void settle_at(std::int64_t pending) noexcept;

  // One cache line for an allocation; a free touches the next as well.
  balance pending_;           // not yet settled; live = base_ + pending_
  std::int64_t high_ = 0;     // highest pending since the last checkpoint
  std::int64_t ceiling_ = 0;  // pending beyond this settles
  counter largest_;           // largest allocation since the last checkpoint
  counter allocations_;
  counter allocated_bytes_;
  counter deallocations_;
  counter freed_bytes_;
  std::int64_t floor_ = 0;        // pending below this settles
  std::int64_t base_ = 0;         // settled by this thread
  std::int64_t shared_high_ = 0;  // highest pending since the last settle
  counter shared_largest_;        // largest allocation since the last settle
  window_list windows_;
  window_node whole_life_;
  shared_account* shared_ = nullptr;
  thread_account* next_ = nullptr;  // in the shared account's list
};

/// What several threads settle into: the process. Any thread may open and close its windows.
/// Threads: every member takes the lock. Settling and folding exclude each other, so that no candidate from before a window
/// opened lands in it.
class shared_account {
 public:
  constexpr shared_account() noexcept = default;

  /// One more thread account is in use; from its first time on its totals count.
  void join(thread_account& t, bool first_time) noexcept {
    const spin_guard held(lock_);
    if (first_time) {
      t.next_ = accounts_;
      accounts_ = &t;
    }
    raise_to(users_high_, ++users_);
  }
  void leave() noexcept {
    const spin_guard held(lock_);
    --users_;
  }

  void settle(thread_account& t, std::int64_t pending) noexcept {
    const spin_guard held(lock_);
    raise_to(high_, settled_ + t.shared_high_);
    raise_to(high_, settled_ + pending);
    raise_to(largest_, t.shared_largest_.load());
    settled_ += pending;
    t.pending_.store(0);  // under the lock, so that no reader counts these bytes twice
  }

  void open(window_node& w) noexcept {
    const spin_guard held(lock_);
    begin_window(w);
    windows_.push(w);
  }

  window_usage close(window_node& w, std::int64_t settle_bytes) noexcept {
    const spin_guard held(lock_);
    const window_usage u = read_locked(w, settle_bytes);
    windows_.remove(w);
    return u;
  }

  [[nodiscard]] window_usage read(const window_node& w, std::int64_t settle_bytes) noexcept {
    const spin_guard held(lock_);
    return read_locked(w, settle_bytes);
  }

  /// Since the process began; the peak since the last `reset_peak()`.
  [[nodiscard]] usage lifetime(std::int64_t settle_bytes) noexcept {
    const spin_guard held(lock_);
    start_if_new();
    const window_usage w = read_locked(whole_life_, settle_bytes);
    const event_totals now = totals();
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

  void reset_peak() noexcept {
    const spin_guard held(lock_);
    start_if_new();
    fold();
    whole_life_.peak = live();
    whole_life_.users = users_;
  }

  // A fork copies the process while other threads may hold the lock: it is taken first and given back on both sides.
  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

 private:
  void start_if_new() noexcept {
    if (windows_.newest() == nullptr) windows_.restart(whole_life_);
  }

  // Settled first, then what each thread still holds back.
  [[nodiscard]] std::int64_t live() const noexcept {
    std::int64_t sum = settled_;
    for (const thread_account* t = accounts_; t != nullptr; t = t->next_) sum += t->pending_.load();
    return sum;
  }

  [[nodiscard]] event_totals totals() const noexcept {
    event_totals sum;
    for (const thread_account* t = accounts_; t != nullptr; t = t->next_) sum += t->totals();
    return sum;
  }

  // Hands the marks to every open window, then starts them afresh.
  void fold() noexcept {
    for (window_node* w = windows_.newest(); w != nullptr; w = w->older) {
      raise_to(w->peak, high_);
      raise_to(w->largest, largest_);
      raise_to(w->users, users_high_);
    }
    high_ = settled_;
    largest_ = 0;
    users_high_ = users_;
  }

  void begin_window(window_node& w) noexcept {
    start_if_new();
    fold();
    w.entry = w.peak = live();
    w.largest = 0;
    w.totals_at_entry = totals();
    w.users = users_;
  }

  [[nodiscard]] window_usage read_locked(const window_node& w, std::int64_t settle_bytes) noexcept {
    fold();
    window_usage u = usage_of(w, live(), totals());
    // Allocations that other threads have not settled yet; they are at most twice `settle_bytes` each.
    for (const thread_account* t = accounts_; t != nullptr; t = t->next_) {
      raise_to(u.largest_bytes, t->shared_largest_.load());
      raise_to(u.largest_bytes, t->largest_.load());
    }
    if (u.largest_bytes > u.allocated_bytes)
      u.largest_bytes = u.allocated_bytes;  // that one was from before the window
    u.error_bound_bytes = w.users > 1 ? 2 * w.users * settle_bytes : 0;
    return u;
  }

  spin_lock lock_;
  std::int64_t settled_ = 0;
  std::int64_t high_ = 0;      // highest candidate since the last fold
  std::uint64_t largest_ = 0;  // largest settled allocation since the last fold
  std::int64_t users_ = 0;
  std::int64_t users_high_ = 0;
  window_list windows_;
  window_node whole_life_;
  thread_account* accounts_ = nullptr;
};

inline void thread_account::begin(shared_account& shared, std::int64_t settle_bytes) noexcept {
  const bool first_time = shared_ == nullptr;
  shared_ = &shared;
  ceiling_ = settle_bytes;
  floor_ = -settle_bytes;
  base_ = high_ = shared_high_ = 0;
  largest_.store(0);
  shared_largest_.store(0);
  whole_life_ = window_node{};
  whole_life_.totals_at_entry = totals();
  windows_.restart(whole_life_);
  shared.join(*this, first_time);
}

inline void thread_account::end() noexcept {
  settle();
  windows_.restart(whole_life_);
  shared_->leave();
}

TIDEMARK_NOINLINE inline void thread_account::settle_at(std::int64_t pending) noexcept {
  raise_to(high_, pending);
  checkpoint();
  shared_->settle(*this, pending);
  base_ += pending;
  high_ = shared_high_ = 0;
  shared_largest_.store(0);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
