// SPDX-License-Identifier: MIT
// What a task is made of: a balance that its threads settle into, and each thread's seat in it. Plain data; the shared
// account, whose lock guards it, has the operations.
#pragma once

#include <cstdint>

#include <tidemark/core/detail/window.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

class thread_account;
struct task_seat;

/// A balance that several threads settle into in batches, with what its next fold hands to windows.
struct settled_balance {
  std::int64_t bytes = 0;
  std::int64_t high = 0;      // highest candidate since the last fold
  std::uint64_t largest = 0;  // largest settled allocation since the last fold
  std::int64_t users = 0;     // thread accounts in use
  std::int64_t users_high = 0;

  void enter() noexcept { raise_to(users_high, ++users); }
  void leave() noexcept { --users; }

  void settle(std::int64_t pending, std::int64_t highest_pending, std::uint64_t largest_pending) noexcept {
    raise_to(high, bytes + highest_pending);
    raise_to(high, bytes + pending);
    raise_to(largest, largest_pending);
    bytes += pending;
  }

  void hand_to(window_node& w) const noexcept {
    raise_to(w.peak, high);
    raise_to(w.largest, largest);
    raise_to(w.users, users_high);
  }
  void start_afresh() noexcept {
    high = bytes;
    largest = 0;
    users_high = users;
  }
};

/// Windows over the threads that sit in it: one over its whole life, and others. Its memory is used again and never
/// given back.
struct task_account {
  std::uint64_t ticket = 0;  // moves on when the task closes: seats and tokens of an earlier one are void
  settled_balance balance;
  window_node window;   // from its opening to its close
  window_list windows;  // that one, and those opened since
  event_totals of_those_who_left;
  task_seat* members = nullptr;    // seats that count
  task_account* parent = nullptr;  // the innermost open task of the thread that opened it
  task_account* older = nullptr;   // open tasks
  task_account* newer = nullptr;
  bool misses_a_thread = false;  // one that joined has no account, or found no memory for a seat
};

/// A thread's place in a task. It joins the task's ancestors too, with a seat in each.
struct task_seat {
  task_account* task = nullptr;
  std::uint64_t ticket = 0;
  thread_account* thread = nullptr;
  bool counts = false;  // one of a thread's seats in a task does
  event_totals totals_at_entry;
  task_seat* older = nullptr;  // the thread's
  task_seat* newer = nullptr;
  task_seat* previous = nullptr;  // the task's members
  task_seat* next = nullptr;
  task_seat* in_ancestor = nullptr;  // taken by the same join

  [[nodiscard]] bool is_in(const task_account& t) const noexcept { return task == &t && ticket == t.ticket; }
  [[nodiscard]] bool is_valid() const noexcept { return task != nullptr && is_in(*task); }
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
