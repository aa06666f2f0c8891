// SPDX-License-Identifier: MIT
// The two common paths of an event, an allocation and a free, and the rare endings that they leave to.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/allocation_failure.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/detail/block.hpp>
#include <tidemark/hook/detail/bootstrap.hpp>
#include <tidemark/hook/detail/start.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// An allocation off the common path: no clean slot, no memory at the first try, an absurd size, an alignment (0: none).
/// Null where memory is out. The gate was asked.
TIDEMARK_NOINLINE inline void* try_allocate(std::size_t n, std::size_t alignment) noexcept {
  if (n > largest_block) return nullptr;
  if (TIDEMARK_UNLIKELY(!has_allocator())) return bootstrap.allocate(n);
  void* p = alignment == 0 ? real_malloc(n + stamp_bytes) : real_aligned(alignment, n + stamp_bytes);
  if (TIDEMARK_UNLIKELY(p == nullptr)) return nullptr;
  if (passes()) {
    was_reached = true;
  } else {
    book_birth_slowly(p, n);
  }
  return p;
}

/// The operators' way: what is left when the new-handler gives up is null.
TIDEMARK_NOINLINE inline void* new_slowly(std::size_t n, std::size_t alignment, bool may_throw) {
  gate_passage gate({n, 0, nullptr, may_throw ? allocation_caller::throwing_new : allocation_caller::nothrow_new});
  possible_failure failure(n);
  for (;;) {
    if (TIDEMARK_LIKELY(gate.is_open())) {
      void* p = try_allocate(n, alignment);
      failure.tried(p);
      if (p != nullptr) return p;
    }
    gate.step_back();
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
    gate.ask_again();
  }
}

TIDEMARK_NOINLINE inline void* new_or_bad_alloc(std::size_t n, std::size_t alignment) {
  void* p = new_slowly(n, alignment, true);
  if (p == nullptr) std::__throw_bad_alloc();
  return p;
}

/// What the C family gives where memory is out.
TIDEMARK_COLD inline void* fail_with_enomem(std::size_t n) noexcept {
  tell_failure({n, {}, 0, 0});
  errno = ENOMEM;
  return nullptr;
}

/// The C family's way.
TIDEMARK_NOINLINE inline void* allocate_or_enomem(std::size_t n, std::size_t alignment) noexcept {
  const gate_passage gate({n, 0, nullptr, allocation_caller::c_family});
  if (TIDEMARK_UNLIKELY(!gate.is_open())) {
    errno = ENOMEM;
    return nullptr;
  }
  void* p = try_allocate(n, alignment);
  return TIDEMARK_LIKELY(p != nullptr) ? p : fail_with_enomem(n);
}

// Rare endings of the common paths below, each a tail call.

TIDEMARK_COLD inline void* finish_birth(void* p, slot& s, std::size_t n) noexcept {
  s.account.settle_allocated(n);
  return p;
}

/// A mapping of its own, which costs a system call anyway.
TIDEMARK_COLD inline void* finish_mapped_birth(void* p, std::size_t n) noexcept {
  book_birth(*slot_of(own_thread.word), p, usable_by_chunk_word(p), n);
  return p;
}

TIDEMARK_COLD inline void finish_death(void* p, slot& s, std::uint64_t n) noexcept {
  s.account.settle_freed(n);
  real_free(p);
}

TIDEMARK_COLD inline void finish_unusual_death(void* p, slot& s, std::uint64_t size, std::uint32_t owner) noexcept {
  count_death(s, stamp{size, owner});
  real_free(p);
}

TIDEMARK_COLD inline void finish_foreign_death(void* p, slot& s) noexcept {
  s.foreign_frees.add(1);
  real_free(p);
}

template <bool Bootstrapped>
TIDEMARK_NOINLINE void release_slowly(void* p) noexcept {
  if (p == nullptr || (Bootstrapped && bootstrap.has(p)) || !has_allocator()) return;
  if (!passes()) book_death_slowly(p);
  real_free(p);
}

// The two common paths: where sizes are read from glibc's own word, and where the allocator is asked.
// One sign tells that the thread has a clean slot, and a size that can exist or a pointer that is not null.

template <bool Ask, auto Slowly>
TIDEMARK_NOINLINE void* allocate(std::size_t n) noexcept(noexcept(Slowly(n, 0))) {
  if (TIDEMARK_UNLIKELY((own_thread.word | static_cast<std::intptr_t>(n)) < 0)) return Slowly(n, 0);
  void* p = real_malloc(n + stamp_bytes);
  if (TIDEMARK_UNLIKELY(p == nullptr)) return Slowly(n, 0);
  std::size_t usable = 0;
  if constexpr (Ask) {
    usable = real_usable(p);
  } else {
    const std::size_t word = chunk_word(p);
    if (TIDEMARK_UNLIKELY((word & chunk_is_mapped) != 0)) return finish_mapped_birth(p, n);
    usable = usable_in_chunk(word);
  }
  // The word is read again rather than kept: one instruction instead of a saved register. No allocator changes it.
  slot& s = *reinterpret_cast<slot*>(own_thread.word);
  if (TIDEMARK_UNLIKELY(!try_book_birth(s, p, usable, n))) return finish_birth(p, s, n);
  return p;
}

template <bool Ask, bool Bootstrapped>
TIDEMARK_NOINLINE void release(void* p) noexcept {
  if (TIDEMARK_UNLIKELY((own_thread.word | (reinterpret_cast<std::intptr_t>(p) - 1)) < 0)) {
    return release_slowly<Bootstrapped>(p);
  }
  std::size_t usable = 0;
  if constexpr (Ask) {
    if (TIDEMARK_UNLIKELY(Bootstrapped && bootstrap.has(p))) return;
    usable = real_usable(p);
    if (TIDEMARK_UNLIKELY(usable < stamp_bytes)) return release_slowly<Bootstrapped>(p);
  } else {
    const std::size_t word = chunk_word(p);
    if (TIDEMARK_UNLIKELY((word & chunk_is_mapped) != 0)) return release_slowly<Bootstrapped>(p);
    usable = usable_in_chunk(word);
  }
  slot& s = *reinterpret_cast<slot*>(own_thread.word);
  stamp was;
  if (TIDEMARK_UNLIKELY(!read_stamp(was, p, usable, own_ledger.secret))) return finish_foreign_death(p, s);
  wipe_stamp(p, usable);
  if (TIDEMARK_UNLIKELY(was.owner >= s.owned_capacity)) return finish_unusual_death(p, s, was.size, was.owner);
  s.owned[was.owner].subtract(static_cast<std::int64_t>(was.size));
  if (TIDEMARK_UNLIKELY(!s.account.try_freed(was.size))) return finish_death(p, s, was.size);
  real_free(p);
}

/// Which of the two, and the slow ones in their place.
struct path_set {
  void* (*allocate)(std::size_t);               // as `operator new`
  void* (*try_allocate)(std::size_t) noexcept;  // as `malloc`
  void (*release)(void*) noexcept;
};

/// `Bootstrapped`: some blocks may be from before the allocator below was found.
template <bool Ask, bool Bootstrapped>
inline constexpr path_set paths{allocate<Ask, new_or_bad_alloc>, allocate<Ask, allocate_or_enomem>,
                                release<Ask, Bootstrapped>};

/// Nothing is counted or stamped.
template <bool Bootstrapped>
inline constexpr path_set passing_paths{[](std::size_t n) { return new_or_bad_alloc(n, 0); },
                                        [](std::size_t n) noexcept { return allocate_or_enomem(n, 0); },
                                        release_slowly<Bootstrapped>};

/// Every allocation asks at the gate.
template <bool Ask, bool Bootstrapped>
inline constexpr path_set guarded_paths{passing_paths<Bootstrapped>.allocate, passing_paths<Bootstrapped>.try_allocate,
                                        release<Ask, Bootstrapped>};

/// The paths in use. Chosen before any thread has a slot, until when each goes the slow way; exchanged while something
/// guards the heap of every thread.
class common_paths {
 public:
  constexpr explicit common_paths(const path_set& set) noexcept
      : allocate_(set.allocate), try_allocate_(set.try_allocate), release_(set.release) {}

  void choose(const path_set& set) noexcept {
    // Relaxed: each is right with every other; whoever opens a guard waits for no thread.
    allocate_.store(set.allocate, std::memory_order_relaxed);
    try_allocate_.store(set.try_allocate, std::memory_order_relaxed);
    release_.store(set.release, std::memory_order_relaxed);
  }

  TIDEMARK_ALWAYS_INLINE void* allocate(std::size_t n) { return allocate_.load(std::memory_order_relaxed)(n); }
  TIDEMARK_ALWAYS_INLINE void* try_allocate(std::size_t n) noexcept {
    return try_allocate_.load(std::memory_order_relaxed)(n);
  }
  TIDEMARK_ALWAYS_INLINE void release(void* p) noexcept { release_.load(std::memory_order_relaxed)(p); }

 private:
  std::atomic<void* (*)(std::size_t)> allocate_;
  std::atomic<void* (*)(std::size_t) noexcept> try_allocate_;
  std::atomic<void (*)(void*) noexcept> release_;
};

extern common_paths common;  // the hook header defines it

/// Chooses, and says whether sizes must be asked for. Once, before any block is stamped.
template <bool Bootstrapped>
[[nodiscard]] bool choose_paths() noexcept {
  const bool must_ask = !chunk_words_agree();
  if (must_ask) common.choose(paths<true, Bootstrapped>);
  return must_ask;
}

template <bool Bootstrapped>
void guard_all(bool is_guarded) noexcept {
  if (own_ledger.ask_sizes) {
    common.choose(is_guarded ? guarded_paths<true, Bootstrapped> : paths<true, Bootstrapped>);
  } else {
    common.choose(is_guarded ? guarded_paths<false, Bootstrapped> : paths<false, Bootstrapped>);
  }
}

// The nothrow forms must swallow the bad_alloc that a new-handler may throw.
TIDEMARK_NOINLINE inline void* nothrow_new(std::size_t n, std::size_t alignment) noexcept {
#if TIDEMARK_HAS_EXCEPTIONS()
  try {
    return new_slowly(n, alignment, false);
  } catch (...) {
    return nullptr;
  }
#else
  return new_slowly(n, alignment, false);
#endif
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
