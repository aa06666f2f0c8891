// SPDX-License-Identifier: MIT
// The two-level byte account. Each thread keeps its own balance and settles it in batches into the process's, and into
// that of each task it works for; windows over them know their entry, peak and exit, whatever the order in which they
// close. docs/semantics.md has the examples.
//
// Per event: five additions and two comparisons on the thread's own cache line, whatever the number of open windows.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/task_account.hpp>
#include <tidemark/core/detail/window.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

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

  /// Closes a window that nobody reads. The one below takes its marks; those above keep theirs, and hand them down in
  /// turn.
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
    event_totals own = totals();
    own -= whole_life_.totals_at_entry;
    return usage_of_life(read(whole_life_), own);
  }

  /// Hands what is pending to the shared account.
  void settle() noexcept { settle_at(pending_.own()); }

  // Tasks, as the shared account says of its own.
  template <class Make>
  [[nodiscard]] task_seat* open_task(task_account& t, Make make) noexcept;
  template <class Make>
  [[nodiscard]] task_seat* join_task(task_account& t, std::uint64_t ticket, Make make) noexcept;
  void leave_task(task_seat& seat) noexcept;

  [[nodiscard]] window_list& windows() noexcept { return windows_; }
  [[nodiscard]] task_seat* newest_seat() const noexcept { return newest_seat_; }

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
  thread_account* next_ = nullptr;    // in the shared account's list
  task_seat* newest_seat_ = nullptr;  // the tasks it works for
};

/// What several threads settle into: the process, and its tasks. Any thread may open and close their windows.
/// Threads: every member takes the one lock. Settling and folding exclude each other, so that no candidate from before
/// a window opened lands in it.
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
    process_.enter();
  }
  /// It is not, and works for no task.
  void leave(thread_account& t) noexcept {
    const spin_guard held(lock_);
    while (t.newest_seat_ != nullptr) leave_seat(*t.newest_seat_);
    process_.leave();
  }

  void settle(thread_account& t, std::int64_t pending) noexcept {
    const spin_guard held(lock_);
    const std::uint64_t largest = t.shared_largest_.load();
    process_.settle(pending, t.shared_high_, largest);
    for (const task_seat* s = t.newest_seat_; s != nullptr; s = s->older) {
      if (s->counts && s->is_valid()) s->task->balance.settle(pending, t.shared_high_, largest);
    }
    t.pending_.store(0);  // under the lock, so that no reader counts these bytes twice
  }

  // ---- the process ----

  void open(window_node& w) noexcept {
    const spin_guard held(lock_);
    start_if_new();
    fold();
    w.entry = w.peak = live();
    w.largest = 0;
    w.totals_at_entry = totals();
    w.users = process_.users;
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

  /// What is live now, as of this moment: what is allocated and freed meanwhile is in it or not.
  [[nodiscard]] std::int64_t live_now() noexcept {
    const spin_guard held(lock_);
    return live();
  }

  /// Since the process began; the peak since the last `reset_peak()`.
  [[nodiscard]] usage lifetime(std::int64_t settle_bytes) noexcept {
    const spin_guard held(lock_);
    start_if_new();
    return usage_of_life(read_locked(whole_life_, settle_bytes), totals());
  }

  void reset_peak() noexcept {
    const spin_guard held(lock_);
    start_if_new();
    fold();
    whole_life_.peak = live();
    whole_life_.users = process_.users;
  }

  // ---- tasks ----

  /// A task begins, inside the innermost one of the thread that opens it, which sits in it, and in those around it,
  /// from the start. Null: no memory.
  template <class Make>
  [[nodiscard]] task_seat* open_task(task_account& t, thread_account& by, Make make) noexcept {
    by.settle();
    const spin_guard held(lock_);
    task_seat* seat = make();
    if (seat == nullptr) return nullptr;
    const std::uint64_t ticket = t.ticket;
    t = task_account{};
    t.ticket = ticket;
    t.windows.restart(t.window);
    for (const task_seat* s = by.newest_seat_; s != nullptr && t.parent == nullptr; s = s->older) {
      if (s->is_valid()) t.parent = s->task;
    }
    t.older = newest_task_;
    if (newest_task_ != nullptr) newest_task_->newer = &t;
    newest_task_ = &t;
    take_seat(*seat, t, by, nullptr);
    static_cast<void>(take_seats(t.parent, by, seat, make));
    return seat;
  }

  /// The task is over, and those who sit in it work for it no longer. `by` closes it: null is a thread without an
  /// account.
  window_usage close_task(task_account& t, thread_account* by, std::int64_t settle_bytes) noexcept {
    if (by != nullptr) by->settle();
    const spin_guard held(lock_);
    const window_usage u = read_task_locked(t, t.window, by, settle_bytes);
    ++t.ticket;  // and with it goes every other window over it
    for (task_account* other = newest_task_; other != nullptr; other = other->older) {
      if (other->parent == &t) other->parent = t.parent;
    }
    (t.newer != nullptr ? t.newer->older : newest_task_) = t.older;
    if (t.older != nullptr) t.older->newer = t.newer;
    return u;
  }

  [[nodiscard]] window_usage read_task(task_account& t, thread_account* by, std::int64_t settle_bytes) noexcept {
    if (by != nullptr) by->settle();
    const spin_guard held(lock_);
    return read_task_locked(t, t.window, by, settle_bytes);
  }

  /// One more window over a task. False: the task is over.
  [[nodiscard]] bool open_in_task(task_account& t, std::uint64_t ticket, window_node& w, thread_account* by) noexcept {
    if (by != nullptr) by->settle();
    const spin_guard held(lock_);
    if (t.ticket != ticket) return false;
    fold(t);
    w.entry = w.peak = live(t);
    w.largest = 0;
    w.totals_at_entry = totals(t);
    w.users = t.balance.users;
    w.has_unsettled = t.members != nullptr && t.members->thread != by;
    t.windows.push(w);
    return true;
  }
  /// False: the task is over, and the window with it.
  [[nodiscard]] bool read_in_task(task_account& t, std::uint64_t ticket, const window_node& w, thread_account* by,
                                  std::int64_t settle_bytes, window_usage& u) noexcept {
    if (by != nullptr) by->settle();
    const spin_guard held(lock_);
    if (t.ticket != ticket) return false;
    u = read_task_locked(t, w, by, settle_bytes);
    return true;
  }
  void close_in_task(task_account& t, std::uint64_t ticket, window_node& w) noexcept {
    const spin_guard held(lock_);
    if (t.ticket != ticket) return;
    t.windows.remove(w);
  }

  /// `by` works for the task and its ancestors from now on, with a seat from `make()` in each. Returns the first; null
  /// where the task is over or there is no memory.
  template <class Make>
  [[nodiscard]] task_seat* join_task(task_account& t, std::uint64_t ticket, thread_account& by, Make make) noexcept {
    by.settle();
    const spin_guard held(lock_);
    if (t.ticket != ticket) return nullptr;
    return take_seats(&t, by, nullptr, make);
  }

  /// `thread` gives up the seat, and those that came with it. Threads: the one that sits there.
  void leave_task(task_seat& seat) noexcept {
    seat.thread->settle();
    const spin_guard held(lock_);
    for (task_seat* s = &seat; s != nullptr; s = s->in_ancestor) leave_seat(*s);
  }

  /// A thread without an account wanted to join.
  void miss_a_thread(task_account& t, std::uint64_t ticket) noexcept {
    const spin_guard held(lock_);
    if (t.ticket == ticket) t.misses_a_thread = true;
  }
  [[nodiscard]] bool misses_a_thread(const task_account& t) noexcept {
    const spin_guard held(lock_);
    return t.misses_a_thread;
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
    std::int64_t sum = process_.bytes;
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
    for (window_node* w = windows_.newest(); w != nullptr; w = w->older) process_.hand_to(*w);
    process_.start_afresh();
  }

  // Allocations that a thread has not settled yet; they are at most twice `settle_bytes`.
  static void raise_to_unsettled(std::uint64_t& largest, const thread_account& t) noexcept {
    raise_to(largest, t.shared_largest_.load());
    raise_to(largest, t.largest_.load());
  }

  [[nodiscard]] window_usage read_locked(const window_node& w, std::int64_t settle_bytes) noexcept {
    fold();
    window_usage u = usage_of(w, live(), totals());
    for (const thread_account* t = accounts_; t != nullptr; t = t->next_) raise_to_unsettled(u.largest_bytes, *t);
    if (u.largest_bytes > u.allocated_bytes)
      u.largest_bytes = u.allocated_bytes;  // that one was from before the window
    u.error_bound_bytes = w.users > 1 ? 2 * w.users * settle_bytes : 0;
    return u;
  }

  static void fold(task_account& t) noexcept {
    for (window_node* w = t.windows.newest(); w != nullptr; w = w->older) t.balance.hand_to(*w);
    t.balance.start_afresh();
  }
  [[nodiscard]] static std::int64_t live(const task_account& t) noexcept {
    std::int64_t sum = t.balance.bytes;
    for (const task_seat* s = t.members; s != nullptr; s = s->next) sum += s->thread->pending_.load();
    return sum;
  }
  [[nodiscard]] static event_totals totals(const task_account& t) noexcept {
    event_totals sum = t.of_those_who_left;
    for (const task_seat* s = t.members; s != nullptr; s = s->next) sum += events_of(*s);
    return sum;
  }

  [[nodiscard]] static window_usage read_task_locked(task_account& t, const window_node& w, const thread_account* by,
                                                     std::int64_t settle_bytes) noexcept {
    fold(t);
    window_usage u = usage_of(w, live(t), totals(t));
    for (const task_seat* s = t.members; s != nullptr; s = s->next) raise_to_unsettled(u.largest_bytes, *s->thread);
    if (u.largest_bytes > u.allocated_bytes)
      u.largest_bytes = u.allocated_bytes;  // that one was from before the window
    const bool is_alone = w.users <= 1 && !w.has_unsettled && (t.members == nullptr || t.members->thread == by);
    u.error_bound_bytes = is_alone ? 0 : 2 * w.users * settle_bytes;
    return u;
  }

  [[nodiscard]] static event_totals events_of(const task_seat& s) noexcept {
    event_totals events = s.thread->totals();
    events -= s.totals_at_entry;
    return events;
  }

  // Seats in a task and in those around it, which come after `last`. The first of them, or null.
  template <class Make>
  [[nodiscard]] task_seat* take_seats(task_account* innermost, thread_account& by, task_seat* last,
                                      Make make) noexcept {
    task_seat* first = nullptr;
    for (task_account* at = innermost; at != nullptr; at = at->parent) {
      task_seat* seat = make();
      if (seat == nullptr) {
        at->misses_a_thread = true;
        continue;
      }
      take_seat(*seat, *at, by, last);
      if (first == nullptr) first = seat;
      if (last != nullptr) last->in_ancestor = seat;
      last = seat;
    }
    return first;
  }

  // Below `above` in the thread's list, or as its newest: the innermost task comes first.
  void take_seat(task_seat& s, task_account& t, thread_account& by, task_seat* above) noexcept {
    s.task = &t;
    s.ticket = t.ticket;
    s.thread = &by;
    s.in_ancestor = nullptr;
    s.counts = true;
    for (const task_seat* other = by.newest_seat_; other != nullptr; other = other->older) {
      if (other->counts && other->is_in(t)) s.counts = false;
    }
    s.newer = above;
    s.older = above != nullptr ? above->older : by.newest_seat_;
    (above != nullptr ? above->older : by.newest_seat_) = &s;
    if (s.older != nullptr) s.older->newer = &s;
    if (!s.counts) return;
    s.totals_at_entry = by.totals();
    become_member(s);
    t.balance.enter();
  }

  static void become_member(task_seat& s) noexcept {
    s.previous = nullptr;
    s.next = s.task->members;
    if (s.next != nullptr) s.next->previous = &s;
    s.task->members = &s;
  }

  // Settled before. Another seat of the thread in the same task counts in its place, if there is one.
  static void leave_seat(task_seat& s) noexcept {
    (s.newer != nullptr ? s.newer->older : s.thread->newest_seat_) = s.older;
    if (s.older != nullptr) s.older->newer = s.newer;
    if (!s.counts || !s.is_valid()) return;
    (s.previous != nullptr ? s.previous->next : s.task->members) = s.next;
    if (s.next != nullptr) s.next->previous = s.previous;
    for (task_seat* other = s.thread->newest_seat_; other != nullptr; other = other->older) {
      if (!other->is_in(*s.task)) continue;
      other->counts = true;
      other->totals_at_entry = s.totals_at_entry;
      return become_member(*other);
    }
    s.task->of_those_who_left += events_of(s);
    s.task->balance.leave();
  }

  spin_lock lock_;
  settled_balance process_;
  window_list windows_;
  window_node whole_life_;
  thread_account* accounts_ = nullptr;
  task_account* newest_task_ = nullptr;  // open ones
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
  shared_->leave(*this);
}

template <class Make>
task_seat* thread_account::open_task(task_account& t, Make make) noexcept {
  return shared_->open_task(t, *this, make);
}

template <class Make>
task_seat* thread_account::join_task(task_account& t, std::uint64_t ticket, Make make) noexcept {
  return shared_->join_task(t, ticket, *this, make);
}

inline void thread_account::leave_task(task_seat& seat) noexcept { shared_->leave_task(seat); }

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
