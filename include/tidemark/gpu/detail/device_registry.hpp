// SPDX-License-Identifier: MIT
// The devices that this process has asked about: the last reading of each, the windows that are open over it, and its
// domain.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/gpu/detail/figures.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// A window over what is used of a device, or over its pool.
struct device_window {
  std::int64_t entry = 0;
  std::int64_t peak = 0;
  std::int64_t opened_ns = 0;
  const char* source = nullptr;  // of every figure in it
  const void* pool = nullptr;    // the same, for a pool
  std::int64_t floor = 0;        // the pool's high mark when it began to say something about this window
  std::int64_t possible = 0;     // what it may have reached before the mark was reset
  bool is_over_pool = false;
  bool reached_floor = false;    // the mark lay within the window when it was reset
  const char* absent = nullptr;  // why it cannot be told any more
  device_window* older = nullptr;
  device_window* newer = nullptr;
};

/// What the last list said of a device. Texts are interned, or literals.
struct device_state {
  std::string_view uuid, pci_address, driver;  // empty while unknown
  bool is_mig_parent = false;
  figure is_unified;
  int ordinal = -1;  // visible as; -1: not known
  const char* why_no_ordinal = "";
};

/// A device. Never freed.
class TIDEMARK_EXPORT device_node {
 public:
  explicit device_node(std::string_view kept_key) noexcept : key(kept_key) {}

  const std::string_view key;  // interned
  device_node* older = nullptr;

  // Written under the registry's lock.
  device_state state;
  memory_figures last;
  std::int64_t last_ns = 0;
  const char* why_last = nullptr;
  bool has_last = false;
  device_window* newest = nullptr;

  // Handles of two types, since what may throw is a type of its own; each made at its first use.
  std::atomic<void*> domains[2] = {{nullptr}, {nullptr}};
};

/// Registry of the devices. Threads: any.
class TIDEMARK_EXPORT device_registry {
 public:
  static constexpr std::uint64_t key = registry_key("gpu devices");

  /// The device with that identity, known from here on. Null: no memory.
  [[nodiscard]] device_node* find(std::string_view identity) noexcept {
    if (device_node* known = find_known(identity)) return known;
    const std::string_view kept = intern(identity);
    const spin_guard held(lock_);
    for (device_node* d = newest_; d != nullptr; d = d->older) {
      if (d->key == identity) return d;
    }
    void* const piece = kept != identity ? nullptr : ledger().memory.allocate(sizeof(device_node));
    if (piece == nullptr) return nullptr;
    auto* made = new (piece) device_node(kept);
    made->older = newest_;
    newest_ = made;
    return made;
  }

  /// Runs `f(device_node&)` for each, under the lock.
  template <class F>
  void for_each(F f) noexcept {
    const spin_guard held(lock_);
    for (device_node* d = newest_; d != nullptr; d = d->older) f(*d);
  }
  template <class F>
  void with_lock(F f) noexcept {
    const spin_guard held(lock_);
    f();
  }

  // ---- readings ----

  /// The last one, where it is not older than that.
  [[nodiscard]] bool recent(const device_node& d, std::int64_t since_ns, memory_figures& found,
                            const char*& why) noexcept {
    const spin_guard held(lock_);
    if (!d.has_last || d.last_ns < since_ns) return false;
    found = d.last;
    why = d.why_last;
    return true;
  }
  /// A new one, for those who ask soon, and for the windows that are open.
  void note(device_node& d, const memory_figures& figures, const char* why, std::int64_t asked_ns) noexcept {
    const spin_guard held(lock_);
    if (!d.has_last || asked_ns >= d.last_ns) {
      d.last = figures;
      d.why_last = why;
      d.last_ns = asked_ns;
      d.has_last = true;
    }
    if (why != nullptr || !figures.used.is_known()) return;
    for (device_window* w = d.newest; w != nullptr; w = w->older) {
      // Asked before the window was open, it may tell of the time before.
      if (w->is_over_pool || asked_ns < w->opened_ns || std::string_view(w->source) != figures.source) continue;
      if (figures.used.value > w->peak) w->peak = figures.used.value;
    }
  }

  // ---- windows ----

  /// Null: no memory.
  [[nodiscard]] device_window* open(device_node& d, const memory_figures& now) noexcept {
    const spin_guard held(lock_);
    device_window* w = take();
    if (w == nullptr) return nullptr;
    w->entry = w->peak = now.used.value;
    w->source = now.source;
    w->opened_ns = os::steady_ns();
    link(d, *w);
    return w;
  }
  [[nodiscard]] device_window* open(device_node& d, const pool_figures& now) noexcept {
    const spin_guard held(lock_);
    device_window* w = take();
    if (w == nullptr) return nullptr;
    w->is_over_pool = true;
    w->entry = w->peak = now.used.value;
    w->pool = now.pool;
    w->floor = now.used_peak.value;
    link(d, *w);
    return w;
  }
  void close(device_node& d, device_window& w) noexcept {
    const spin_guard held(lock_);
    (w.newer != nullptr ? w.newer->older : d.newest) = w.older;
    if (w.older != nullptr) w.older->newer = w.newer;
    w.older = free_;
    free_ = &w;
  }

  /// The window up to a reading of now. Null, or why there is none.
  [[nodiscard]] const char* read(const device_window& w, const memory_figures& now, window_usage& u) noexcept {
    const spin_guard held(lock_);
    if (w.absent != nullptr) return w.absent;
    if (std::string_view(w.source) != now.source) {
      return "source_changed: the entry and the exit of the window were read from different sources, which do not "
             "compare";
    }
    u.counts_events = false;
    u.entry_bytes = w.entry;
    u.exit_bytes = now.used.value;
    u.peak_bytes = w.peak > now.used.value ? w.peak : now.used.value;
    // Between samples it may have been any number up to all that there is.
    const std::int64_t most = now.total.is_known() ? now.total.value : INT64_MAX;
    u.error_bound_bytes = most > u.peak_bytes ? most - u.peak_bytes : 0;
    return nullptr;
  }
  [[nodiscard]] const char* read(const device_window& w, const pool_figures& now, window_usage& u) noexcept {
    const spin_guard held(lock_);
    if (w.absent != nullptr) return w.absent;
    if (w.pool != now.pool) return "source_changed: the device's memory pool was replaced during the window";
    if (now.used_peak.value < w.floor) return mark_was_reset;
    u.counts_events = false;
    u.entry_bytes = w.entry;
    u.exit_bytes = now.used.value;
    u.peak_bytes = w.peak > now.used.value ? w.peak : now.used.value;
    // A mark that rose was reached in the window; one that did not says only that nothing was higher.
    if (now.used_peak.value > w.floor || w.reached_floor) {
      if (now.used_peak.value > u.peak_bytes) u.peak_bytes = now.used_peak.value;
    }
    const std::int64_t possible = w.possible > now.used_peak.value ? w.possible : now.used_peak.value;
    u.error_bound_bytes = possible > u.peak_bytes ? possible - u.peak_bytes : 0;
    return nullptr;
  }
  /// The pool's marks were reset: first what they said, then what they are now.
  void note_reset(device_node& d, const pool_figures& before, const pool_figures& after) noexcept {
    const spin_guard held(lock_);
    for (device_window* w = d.newest; w != nullptr; w = w->older) {
      if (!w->is_over_pool || w->absent != nullptr) continue;
      if (w->pool != before.pool || before.used_peak.value < w->floor) {
        w->absent = mark_was_reset;
        continue;
      }
      if (before.used_peak.value > w->floor || w->reached_floor) {
        if (before.used_peak.value > w->peak) w->peak = before.used_peak.value;
      } else if (before.used_peak.value > w->possible) {
        w->possible = before.used_peak.value;
      }
      w->floor = after.used_peak.value;
      w->reached_floor = true;
    }
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) return lock_.lock();
    if (moment == fork_moment::after_in_child) {
      for (device_node* d = newest_; d != nullptr; d = d->older) d->has_last = false;
    }
    lock_.unlock();
  }

 private:
  static constexpr const char* mark_was_reset =
      "mark_reset: something else reset the high mark of the device's memory pool during the window";

  [[nodiscard]] device_node* find_known(std::string_view identity) noexcept {
    const spin_guard held(lock_);
    for (device_node* d = newest_; d != nullptr; d = d->older) {
      if (d->key == identity) return d;
    }
    return nullptr;
  }
  [[nodiscard]] device_window* take() noexcept {
    void* piece = free_;
    if (free_ != nullptr) {
      free_ = free_->older;
    } else {
      piece = ledger().memory.allocate(sizeof(device_window));
    }
    return piece == nullptr ? nullptr : new (piece) device_window;
  }
  static void link(device_node& d, device_window& w) noexcept {
    w.older = d.newest;
    if (d.newest != nullptr) d.newest->newer = &w;
    d.newest = &w;
  }

  spin_lock lock_;
  device_node* newest_ = nullptr;
  device_window* free_ = nullptr;
};

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
