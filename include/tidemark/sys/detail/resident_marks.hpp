// SPDX-License-Identifier: MIT
// One high-water mark of the resident set, shared by every window: the kernel keeps it, and whoever resets it first hands what
// it knew to every window that is open.
#pragma once

#include <cstdint>
#include <new>

#include <tidemark/core/detail/window.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/sys/detail/resident_linux.hpp>
#include <tidemark/sys/detail/resident_unknown.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

struct resident_window {
  std::int64_t entry = 0;
  std::int64_t peak = 0;      // was reached in the window
  std::int64_t possible = 0;  // may have been
  std::int64_t floor = 0;     // the mark when the kernel's began to say something about this window
  bool reached_floor = false;
  const char* absent = nullptr;  // why its peak cannot be known
  resident_window* older = nullptr;
  resident_window* newer = nullptr;
};

/// Registry of the resident windows. Threads: any; each call is a few system calls under one lock.
class TIDEMARK_EXPORT resident_marks {
 public:
  static constexpr std::uint64_t key = registry_key("resident set");

  void allow_reset(bool allowed) noexcept {
    const spin_guard held(lock_);
    may_reset_ = allowed;
  }

  /// Null: `why` says why.
  [[nodiscard]] resident_window* open(const char*& why) noexcept {
    const spin_guard held(lock_);
    os::resident_now now;
    const char* refused = nullptr;
    why = read(now);
    if (why != nullptr) return nullptr;
    if (may_reset_) {
      refused = reset(now);
    }
    resident_window* w = take();
    if (w == nullptr) {
      why = "no memory for a window";
      return nullptr;
    }
    w->entry = w->peak = w->possible = now.resident;
    w->floor = now.mark;
    w->reached_floor = now.mark == now.resident || (may_reset_ && refused == nullptr);
    w->absent = refused;
    w->newer = nullptr;
    w->older = newest_;
    if (newest_ != nullptr) newest_->newer = w;
    newest_ = w;
    return w;
  }

  /// The window so far. `why` says why there is none, or is null.
  [[nodiscard]] window_usage read_window(resident_window& w, const char*& why) noexcept {
    const spin_guard held(lock_);
    os::resident_now now;
    why = read(now);
    if (why == nullptr) why = w.absent;
    window_usage u;
    u.counts_events = false;
    if (why != nullptr) return u;
    note(w, now);
    u.entry_bytes = w.entry;
    u.exit_bytes = now.resident;
    u.peak_bytes = w.peak;
    u.error_bound_bytes = error_bytes_ + (w.possible > w.peak ? w.possible - w.peak : 0);
    return u;
  }

  void close(resident_window& w) noexcept {
    const spin_guard held(lock_);
    (w.newer != nullptr ? w.newer->older : newest_) = w.older;
    if (w.older != nullptr) w.older->newer = w.newer;
    w.older = free_;
    free_ = &w;
  }

  /// Calls `look(now)`, which reads what is resident and the mark and returns null or why not; the mark is then the highest since
  /// the process began or since `reset_lifetime()`.
  template <class Look>
  [[nodiscard]] const char* read_lifetime(os::resident_now& now, Look look) noexcept {
    const spin_guard held(lock_);
    const char* why = look(now);
    if (now.resident < 0 || now.mark < 0) return why;
    learn(now);
    raise_to(now.mark, highest_seen_);
    return why;
  }
  [[nodiscard]] const char* reset_lifetime() noexcept {
    const spin_guard held(lock_);
    os::resident_now now;
    const char* why = read(now);
    if (why == nullptr) why = reset(now);
    if (why == nullptr) highest_seen_ = 0;
    return why;
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) return lock_.lock();
    if (moment == fork_moment::after_in_child) {
      mark_ = highest_seen_ = 0;
      for (resident_window* w = newest_; w != nullptr; w = w->older) {
        w->absent = "the process forked during the window: the child's resident set is another";
      }
    }
    lock_.unlock();
  }

 private:
  [[nodiscard]] const char* read(os::resident_now& now) noexcept {
    if (error_bytes_ == 0) error_bytes_ = os::resident_error_bytes();
    if (const char* why = os::read_resident(now)) return why;
    learn(now);
    return nullptr;
  }

  // Where the mark is above what is resident it is one that the kernel stored, and never falls by itself: someone else reset
  // it. One equal to what is resident may be of this moment only, and follows the per-CPU counters.
  void learn(const os::resident_now& now) noexcept {
    raise_to(highest_seen_, now.mark);
    if (now.mark < mark_) {
      for (resident_window* w = newest_; w != nullptr; w = w->older) {
        w->absent =
            "something else reset the kernel's high-water mark during the window (it wrote to /proc/self/clear_refs)";
      }
      mark_ = 0;
    }
    if (now.mark > now.resident) raise_to(mark_, now.mark);
  }

  [[nodiscard]] const char* reset(os::resident_now& now) noexcept {
    for (resident_window* w = newest_; w != nullptr; w = w->older) note(*w, now);
    if (const char* why = os::reset_mark()) return why;
    mark_ = 0;
    // From here on the mark is about every open window, and where it starts was reached in each.
    os::resident_now fresh;
    if (const char* why = os::read_resident(fresh)) return why;
    now = fresh;
    for (resident_window* w = newest_; w != nullptr; w = w->older) {
      w->floor = fresh.mark;
      w->reached_floor = true;
    }
    return nullptr;
  }

  static void note(resident_window& w, const os::resident_now& now) noexcept {
    raise_to(w.peak, now.resident);
    if (now.mark > w.floor || w.reached_floor) {
      raise_to(w.peak, now.mark);
    } else {
      raise_to(w.possible, now.mark);
    }
  }

  [[nodiscard]] resident_window* take() noexcept {
    if (resident_window* w = free_) {
      free_ = w->older;
      return w;
    }
    void* piece = ledger().memory.allocate(sizeof(resident_window));
    return piece == nullptr ? nullptr : new (piece) resident_window;
  }

  spin_lock lock_;
  bool may_reset_ = false;
  std::int64_t error_bytes_ = 0;
  std::int64_t mark_ = 0;          // what the kernel surely keeps since the last reset
  std::int64_t highest_seen_ = 0;  // since the process began, or since `reset_lifetime()`
  resident_window* newest_ = nullptr;
  resident_window* free_ = nullptr;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
