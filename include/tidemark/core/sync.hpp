// SPDX-License-Identifier: MIT
// What threads share: a spin lock that a hook may take, and a counter with one writer. Neither allocates, and neither
// needs a constructor or a destructor to run.
#pragma once

#include <atomic>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_thread.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Held for a few dozen instructions at a time. A waiter spins briefly, then gives up its turn to the holder.
/// The holder may take it again: a fork handler of someone else's allocates while the library holds every lock, and so may
/// a signal handler.
class spin_lock {
 public:
  void lock() noexcept {
    const void* const me = os::thread_mark();
    for (int spins = 0;; ++spins) {
      const void* holder = nullptr;
      if (holder_.compare_exchange_strong(holder, me, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {  // pairs with unlock()
        return;
      }
      if (holder == me) {
        ++again_;
        return;
      }
      // A yield never lets a thread of lower priority on; a pause does.
      if (spins >= 200) {
        os::pause_ns(50'000);
      } else if (spins >= 100) {
        os::yield_thread();
      }
    }
  }
  void unlock() noexcept {
    if (again_ > 0) {
      --again_;
    } else {
      holder_.store(nullptr, std::memory_order_release);  // pairs with lock()
    }
  }

 private:
  std::atomic<const void*> holder_{nullptr};
  int again_ = 0;  // the holder's
};

class [[nodiscard]] spin_guard {
 public:
  explicit spin_guard(spin_lock& lock) noexcept : lock_(lock) { lock_.lock(); }
  ~spin_guard() { lock_.unlock(); }
  spin_guard(const spin_guard&) = delete;
  spin_guard& operator=(const spin_guard&) = delete;

 private:
  spin_lock& lock_;
};

/// A number that one thread at a time changes and any thread may read: no locked instruction, no torn value.
/// Every shared access is relaxed (counter only): a reader orders itself by other means where it must.
template <class T>
class single_writer {
  static_assert(sizeof(T) == 8, "a single 64-bit access");

 public:
  constexpr single_writer() noexcept = default;

#if defined(__GNUC__)
  // The builtins let the writer read its own value as an operand of the next instruction; std::atomic does not.
  [[nodiscard]] TIDEMARK_ALWAYS_INLINE T load() const noexcept { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
  [[nodiscard]] TIDEMARK_ALWAYS_INLINE T own() const noexcept { return value_; }
  TIDEMARK_ALWAYS_INLINE void store(T value) noexcept { __atomic_store_n(&value_, value, __ATOMIC_RELAXED); }
#else
  [[nodiscard]] T load() const noexcept { return value_.load(std::memory_order_relaxed); }
  /// What the writing thread reads.
  [[nodiscard]] T own() const noexcept { return load(); }
  void store(T value) noexcept { value_.store(value, std::memory_order_relaxed); }
#endif

  TIDEMARK_ALWAYS_INLINE void add(T n) noexcept {
#if TIDEMARK_HAS_ADD_TO_MEMORY()
    asm("addq %1, %0" : "+m"(value_) : "er"(n) : "cc");
#else
    store(own() + n);
#endif
  }
  TIDEMARK_ALWAYS_INLINE void subtract(T n) noexcept {
#if TIDEMARK_HAS_ADD_TO_MEMORY()
    asm("subq %1, %0" : "+m"(value_) : "er"(n) : "cc");
#else
    store(own() - n);
#endif
  }

 private:
#if defined(__GNUC__)
  alignas(8) T value_ = 0;
#else
  std::atomic<T> value_{0};
#endif
};

/// A pointer that one thread sets, and any thread may follow: what it points to was complete when it was set.
template <class T>
class published {
 public:
  constexpr published() noexcept = default;

  /// What the setting thread reads.
  [[nodiscard]] T* own() const noexcept { return pointer_.load(std::memory_order_relaxed); }   // its own store
  [[nodiscard]] T* load() const noexcept { return pointer_.load(std::memory_order_acquire); }  // pairs with store()
  void store(T* p) noexcept { pointer_.store(p, std::memory_order_release); }                  // pairs with load()

 private:
  std::atomic<T*> pointer_{nullptr};
};

using counter = single_writer<std::uint64_t>;
using balance = single_writer<std::int64_t>;

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
