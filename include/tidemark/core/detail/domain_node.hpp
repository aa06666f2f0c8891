// SPDX-License-Identifier: MIT
// The account behind a domain, and the list of them all. A node lies inside its parent: an event counts in both, and every
// limit on the way is asked first, under the locks of all, so that the last byte of a budget is given away once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/account.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/task_account.hpp>
#include <tidemark/core/detail/window.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

class domain_node;

/// What is called when a domain comes near its limit.
struct near_limit_listener {
  near_limit_listener() = default;
  virtual ~near_limit_listener() = default;
  near_limit_listener(const near_limit_listener&) = delete;
  near_limit_listener& operator=(const near_limit_listener&) = delete;
  virtual void call(const domain_node& node, std::int64_t live, std::int64_t limit) noexcept = 0;
};

/// Why an allocation is not counted: a limit, with what was live then, and what was about to be.
struct budget_refusal {
  const domain_node* full = nullptr;  ///< null: it is counted
  std::int64_t live = 0;
  std::int64_t limit = -1;  ///< -1: none, but no number holds more

  explicit operator bool() const noexcept { return full != nullptr; }
};

/// A window over a domain.
struct domain_window : window_node {
  domain_node* node = nullptr;
  domain_window* older_of_scope = nullptr;
};

/// Never freed: containers outlive the handles.
class TIDEMARK_EXPORT domain_node {
 public:
  domain_node(std::string_view kept_name, std::string_view kept_meter, domain_node* parent, bool external) noexcept
      : name(kept_name), meter(kept_meter), is_external(external), parent_(parent) {
    windows_.restart(whole_life_);
  }

  const std::string_view name;   // interned
  const std::string_view meter;  // "domain:" and the name
  const bool is_external;
  std::atomic<std::int64_t> handles{0};

  // ---- events; each in this node and every one around it ----

  /// Where it is refused nothing has changed.
  [[nodiscard]] budget_refusal try_allocated(std::int64_t n) noexcept {
    const chain_guard held(*this);
    if (const budget_refusal refused = refusal_of(n)) return refused;
    count_allocation(n);
    return {};
  }

  /// Whether there is a limit here or around, or so much that a number may not hold more. One that is set meanwhile holds for
  /// what comes next, and nobody allocates half of what a number holds at once.
  [[nodiscard]] bool is_limited() const noexcept {
    for (const domain_node* d = this; d != nullptr; d = d->parent_) {
      const bool has_limit = d->limit_.load(std::memory_order_relaxed) >= 0;  // a hint: asked again under the lock
      if (has_limit || TIDEMARK_UNLIKELY(d->is_vast_.load(std::memory_order_relaxed))) return true;  // likewise
    }
    return false;
  }

  /// Keeps room for an allocation that may still fail; `commit` or `cancel` follows.
  [[nodiscard]] budget_refusal try_reserve(std::int64_t n) noexcept {
    const chain_guard held(*this);
    if (const budget_refusal refused = refusal_of(n)) return refused;
    for (domain_node* d = this; d != nullptr; d = d->parent_) d->reserved_ += n;
    return {};
  }
  void commit(std::int64_t n) noexcept {
    const chain_guard held(*this);
    give_room_back(n);
    count_allocation(n);
  }
  /// Counts what is there already, whatever the limit.
  void count(std::int64_t n) noexcept {
    const chain_guard held(*this);
    count_allocation(n);
  }
  void cancel(std::int64_t n) noexcept {
    const chain_guard held(*this);
    give_room_back(n);
  }

  /// False: it was fed less than that, and nothing has changed.
  [[nodiscard]] bool try_freed(std::int64_t n) noexcept {
    const chain_guard held(*this);
    if (n > own_) return false;
    own_ -= n;
    for (domain_node* d = this; d != nullptr; d = d->parent_) {
      d->balance_.settle(-n, 0, 0);
      ++d->totals_.deallocations;
      d->totals_.freed_bytes += static_cast<std::uint64_t>(n);
      if (d->balance_.bytes < d->near_bytes_) d->leave_near();
      d->note_size();
    }
    return true;
  }

  /// Calls the listeners of those that this thread has just taken near their limit. Threads: outside every lock.
  void tell_near() noexcept {
    for (domain_node* d = this; d != nullptr; d = d->parent_) {
      if (TIDEMARK_LIKELY(d->teller_.load(std::memory_order_relaxed) == nullptr)) continue;  // not set by this thread
      std::shared_ptr<near_limit_listener> listener;
      std::int64_t live = 0;
      std::int64_t limit = 0;
      {
        const spin_guard held(d->lock_);
        if (d->teller_.load(std::memory_order_relaxed) != os::thread_mark()) continue;  // under the lock
        d->teller_.store(nullptr, std::memory_order_relaxed);
        listener = d->listener_;
        live = d->balance_.bytes;
        limit = d->limit_.load(std::memory_order_relaxed);  // under the lock
      }
      if (listener != nullptr) listener->call(*d, live, limit);
    }
  }

  // ---- the limit ----

  [[nodiscard]] std::int64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// -1: none. False: more than that is live or about to be, and nothing has changed.
  [[nodiscard]] bool try_limit(std::int64_t bytes) noexcept {
    const spin_guard held(lock_);
    if (bytes >= 0 && balance_.bytes + reserved_ > bytes) return false;
    limit_.store(bytes, std::memory_order_relaxed);  // under the lock
    set_near();
    return true;
  }
  /// The one that was there is given back, to die outside the lock.
  [[nodiscard]] std::shared_ptr<near_limit_listener> listen(double fraction,
                                                            std::shared_ptr<near_limit_listener> listener) noexcept {
    const spin_guard held(lock_);
    listener_.swap(listener);
    near_fraction_ = fraction;
    leave_near();
    set_near();
    return listener;
  }

  // ---- readings ----

  [[nodiscard]] usage current() noexcept {
    const spin_guard held(lock_);
    fold();
    return usage_of_life(usage_of(whole_life_, balance_.bytes, totals_), totals_);
  }
  void open(domain_window& w) noexcept {
    const spin_guard held(lock_);
    fold();
    w.entry = w.peak = balance_.bytes;
    w.largest = 0;
    w.totals_at_entry = totals_;
    w.node = this;
    windows_.push(w);
  }
  window_usage close(domain_window& w) noexcept {
    const spin_guard held(lock_);
    fold();
    windows_.remove(w);
    return usage_of(w, balance_.bytes, totals_);
  }
  [[nodiscard]] window_usage read(const domain_window& w) noexcept {
    const spin_guard held(lock_);
    fold();
    return usage_of(w, balance_.bytes, totals_);
  }
  /// As a window that was open before the domain was made.
  [[nodiscard]] window_usage whole_life() noexcept {
    const spin_guard held(lock_);
    fold();
    return usage_of(whole_life_, balance_.bytes, totals_);
  }

  /// The one that it lies in, or null.
  [[nodiscard]] const domain_node* parent() const noexcept { return parent_; }

  /// Whether a report should name it: someone holds it, or it holds something.
  [[nodiscard]] bool is_alive() noexcept {
    if (handles.load(std::memory_order_acquire) > 0) return true;  // pairs with the handle's copy
    const spin_guard held(lock_);
    return balance_.bytes != 0;
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) return lock_.lock();
    if (moment == fork_moment::after_in_child) {
      // Asked for by threads that the child lacks.
      reserved_ = 0;
      teller_.store(nullptr, std::memory_order_relaxed);
    }
    lock_.unlock();
  }

  domain_node* older = nullptr;  // in the registry's list
  std::uint64_t number = 0;      // counted from 1, in the order of their making

 private:
  // From the node outwards; a parent is older than its children, and a fork locks in that order too.
  class chain_guard {
   public:
    explicit chain_guard(domain_node& innermost) noexcept : innermost_(innermost) {
      for (domain_node* d = &innermost_; d != nullptr; d = d->parent_) d->lock_.lock();
    }
    ~chain_guard() {
      for (domain_node* d = &innermost_; d != nullptr;) {
        domain_node* const next = d->parent_;
        d->lock_.unlock();
        d = next;
      }
    }
    chain_guard(const chain_guard&) = delete;
    chain_guard& operator=(const chain_guard&) = delete;

   private:
    domain_node& innermost_;
  };

  [[nodiscard]] budget_refusal refusal_of(std::int64_t n) const noexcept {
    for (const domain_node* d = this; d != nullptr; d = d->parent_) {
      const std::int64_t most = d->limit() >= 0 ? d->limit() : INT64_MAX;
      const std::int64_t taken = d->balance_.bytes + d->reserved_;
      if (taken > most || n > most - taken) return {d, taken, d->limit()};
    }
    return {};
  }

  void give_room_back(std::int64_t n) noexcept {
    for (domain_node* d = this; d != nullptr; d = d->parent_) {
      d->reserved_ = d->reserved_ > n ? d->reserved_ - n : 0;  // less was kept where the thread forked meanwhile
    }
  }

  void count_allocation(std::int64_t n) noexcept {
    own_ += n;
    for (domain_node* d = this; d != nullptr; d = d->parent_) {
      d->balance_.settle(n, n, static_cast<std::uint64_t>(n));
      ++d->totals_.allocations;
      d->totals_.allocated_bytes += static_cast<std::uint64_t>(n);
      if (d->balance_.bytes >= d->near_bytes_ && d->limit() >= 0) d->come_near();
      d->note_size();
    }
  }

  void note_size() noexcept {
    const bool is_vast = balance_.bytes > INT64_MAX / 2;
    if (TIDEMARK_UNLIKELY(is_vast != is_vast_.load(std::memory_order_relaxed))) {  // under the lock
      is_vast_.store(is_vast, std::memory_order_relaxed);
    }
  }

  void come_near() noexcept {
    if (is_near_ || listener_ == nullptr) return;
    is_near_ = true;
    teller_.store(os::thread_mark(), std::memory_order_relaxed);  // under the lock
  }
  void leave_near() noexcept {
    is_near_ = false;
    teller_.store(nullptr, std::memory_order_relaxed);  // under the lock: what is over is not told later
  }
  void set_near() noexcept {
    near_bytes_ = limit() < 0 ? INT64_MAX : near_bytes(limit(), near_fraction_);
    if (limit() >= 0 && balance_.bytes >= near_bytes_) {
      come_near();
    } else {
      leave_near();
    }
  }
  /// The first whole number of bytes that reaches the fraction, at least 1. 7 % of 100 is 7, though 0.07 is a little more.
  [[nodiscard]] static std::int64_t near_bytes(std::int64_t limit, double fraction) noexcept {
    constexpr double rounding = 1.0 / (std::int64_t{1} << 51);  // that of the fraction and of the product
    const double least = static_cast<double>(limit) * fraction * (1 - rounding);
    if (least >= static_cast<double>(limit) || least >= 9e18) return limit > 1 ? limit : 1;
    auto whole = static_cast<std::int64_t>(least);
    if (static_cast<double>(whole) < least) ++whole;
    return whole > 1 ? whole : 1;
  }

  void fold() noexcept {
    for (window_node* w = windows_.newest(); w != nullptr; w = w->older) balance_.hand_to(*w);
    balance_.start_afresh();
  }

  spin_lock lock_;
  settled_balance balance_;
  std::int64_t own_ = 0;                 // of the balance, what was fed here and not further in
  std::int64_t reserved_ = 0;            // asked for, and not yet there
  std::atomic<std::int64_t> limit_{-1};  // changed under the lock
  std::atomic<bool> is_vast_{false};
  std::int64_t near_bytes_ = INT64_MAX;
  double near_fraction_ = 1;
  bool is_near_ = false;
  std::atomic<const void*> teller_{nullptr};  // the thread that came near and has yet to tell
  event_totals totals_;
  window_list windows_;
  window_node whole_life_;
  domain_node* const parent_;
  std::shared_ptr<near_limit_listener> listener_;
};

/// Registry of the domains.
class TIDEMARK_EXPORT domain_registry {
 public:
  static constexpr std::uint64_t key = registry_key("domains");

  /// With one handle, the caller's. Null: no memory.
  [[nodiscard]] domain_node* make(std::string_view name, std::string_view meter, domain_node* parent,
                                  bool is_external) noexcept {
    void* piece = ledger().memory.allocate(sizeof(domain_node));
    if (piece == nullptr) return nullptr;
    auto* made = new (piece) domain_node(name, meter, parent, is_external);
    made->handles.store(1, std::memory_order_relaxed);  // before anyone sees it
    const spin_guard held(lock_);
    link(*made);
    return made;
  }

  /// That of allocators which name none. Null: no memory.
  [[nodiscard]] domain_node* default_node() noexcept {
    if (domain_node* known = default_.load(std::memory_order_acquire)) return known;  // pairs with the store below
    const std::string_view name = intern("default");
    const std::string_view meter = intern("domain:default");
    const spin_guard held(lock_);
    if (domain_node* known = default_.load(std::memory_order_relaxed)) return known;  // written under the lock
    void* piece = ledger().memory.allocate(sizeof(domain_node));
    if (piece == nullptr) return nullptr;
    auto* made = new (piece) domain_node(name, meter, nullptr, false);
    made->handles.store(1, std::memory_order_relaxed);  // for ever
    link(*made);
    default_.store(made, std::memory_order_release);  // pairs with the load above
    return made;
  }

  /// The newest; from there along `older`.
  [[nodiscard]] domain_node* newest() noexcept {
    const spin_guard held(lock_);
    return newest_;
  }

  [[nodiscard]] domain_window* take_window() noexcept {
    {
      const spin_guard held(lock_);
      if (domain_window* w = free_windows_) {
        free_windows_ = w->older_of_scope;
        return w;
      }
    }
    void* piece = ledger().memory.allocate(sizeof(domain_window));
    return piece == nullptr ? nullptr : new (piece) domain_window;
  }
  void give_back(domain_window& w) noexcept {
    const spin_guard held(lock_);
    w.older_of_scope = free_windows_;
    free_windows_ = &w;
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) lock_.lock();
    for (domain_node* d = newest_; d != nullptr; d = d->older) {
      d->on_fork(moment);
    }
    if (moment != fork_moment::before) lock_.unlock();
  }

 private:
  void link(domain_node& d) noexcept {
    d.older = newest_;
    d.number = newest_ == nullptr ? 1 : newest_->number + 1;
    newest_ = &d;
  }

  spin_lock lock_;
  domain_node* newest_ = nullptr;
  std::atomic<domain_node*> default_{nullptr};
  domain_window* free_windows_ = nullptr;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
