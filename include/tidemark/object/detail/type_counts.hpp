// SPDX-License-Identifier: MIT
// How many objects of each counted type there are, and the list of them where a type keeps one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/object/detail/type_name.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Where a counted object was made; lies in the object.
struct counted_place {
  const path_node* path = nullptr;  // of the scope open at its creation; null: none
  location where;
  std::int64_t born_ns = 0;

  // Under the lock of the type's counts.
  counted_place* older = nullptr;
  counted_place* newer = nullptr;
};

/// The counts of one type, on a cache line of their own. One of them is there without any memory being asked for, so
/// that no object is ever missed.
class TIDEMARK_EXPORT type_counts {
 public:
  constexpr type_counts(std::string_view name, std::size_t object_bytes) noexcept
      : name_(name), object_bytes_(static_cast<std::int64_t>(object_bytes)) {}

  // One number alone tells how many live, and what each addition returns is one of its values: the highest of these is
  // the peak. All are counters only.
  void add() noexcept {
    total_.fetch_add(1, std::memory_order_relaxed);
    const std::int64_t now = live_.fetch_add(1, std::memory_order_relaxed) + 1;
    std::int64_t highest = peak_.load(std::memory_order_relaxed);
    while (now > highest && !peak_.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
    }
  }
  void remove() noexcept { live_.fetch_sub(1, std::memory_order_relaxed); }

  void list(counted_place& p) noexcept {
    const spin_guard held(lock_);
    p.older = newest_;
    if (newest_ != nullptr) newest_->newer = &p;
    newest_ = &p;
    ++placed_;
  }
  void unlist(counted_place& p) noexcept {
    const spin_guard held(lock_);
    (p.newer != nullptr ? p.newer->older : newest_) = p.older;
    if (p.older != nullptr) p.older->newer = p.newer;
    --placed_;
  }

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] std::int64_t object_bytes() const noexcept { return object_bytes_; }
  // Counters only.
  [[nodiscard]] std::int64_t live() const noexcept { return live_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_.load(std::memory_order_relaxed); }

  /// Runs `f(newest place, how many there are)` while none comes or goes.
  template <class F>
  void with_places(F f) noexcept {
    const spin_guard held(lock_);
    f(newest_, static_cast<std::size_t>(placed_));
  }

  /// Whether the registry has it. Relaxed: asked again there, under its lock.
  [[nodiscard]] bool is_enlisted() const noexcept { return is_enlisted_.load(std::memory_order_relaxed); }
  /// From 0 in the order of the types' first objects.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] const type_counts* older() const noexcept { return older_; }

 private:
  friend class counted_types;

  alignas(64) std::atomic<std::int64_t> live_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::uint64_t> total_{0};
  spin_lock lock_;
  counted_place* newest_ = nullptr;  // of the objects with a place
  std::int64_t placed_ = 0;

  // Not written any more once it is enlisted.
  alignas(64) std::string_view name_;
  std::int64_t object_bytes_;
  std::size_t index_ = 0;
  type_counts* older_ = nullptr;
  std::atomic<bool> is_enlisted_{false};
};

/// Registry of the counted types.
class TIDEMARK_EXPORT counted_types {
 public:
  static constexpr std::uint64_t key = registry_key("counted types");

  void enlist(type_counts& c) noexcept {
    const spin_guard held(lock_);
    if (c.is_enlisted()) return;
    type_counts* const newest = newest_.own();
    c.older_ = newest;
    c.index_ = newest == nullptr ? 0 : newest->index_ + 1;
    newest_.store(&c);
    c.is_enlisted_.store(true, std::memory_order_relaxed);  // a hint; under the lock a fact
  }

  /// The others follow by `older()`.
  [[nodiscard]] const type_counts* newest() const noexcept { return newest_.load(); }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) lock_.lock();
    for (type_counts* c = newest_.own(); c != nullptr; c = c->older_) {
      moment == fork_moment::before ? c->lock_.lock() : c->lock_.unlock();
    }
    if (moment != fork_moment::before) lock_.unlock();
  }

 private:
  spin_lock lock_;
  published<type_counts> newest_;
};

/// What counts the objects of `T`: one for all shared objects that see the same `T`, as of any inline variable.
/// Not in core/ledger, since there is one for each type.
template <class T>
TIDEMARK_CONSTINIT TIDEMARK_EXPORT inline type_counts counts_of{type_name<T>(), sizeof(T)};

// In the shared object that has the counts, which a function that is not of `T` might not be.
template <class T>
TIDEMARK_COLD void enlist() noexcept {
  os::keep_loaded(&counts_of<T>);  // they are enlisted for ever, and so is the name
  os::keep_loaded(counts_of<T>.name().data());
  if (counted_types* all = registry<counted_types>()) all->enlist(counts_of<T>);  // or the next object does it
}

template <class T>
void count_one_more() noexcept {
  if (TIDEMARK_UNLIKELY(!counts_of<T>.is_enlisted())) enlist<T>();  // first: a fork child has it, or none of it
  counts_of<T>.add();
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
