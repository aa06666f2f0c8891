// SPDX-License-Identifier: MIT
// Replaces the 8 `operator new` and the 12 `operator delete` of the program with counted ones over malloc and free.
// Include it in exactly one .cpp file. A second inclusion, or another hook header, does not link.
//
// Sees: new, delete, and what is built on them. Does not see: malloc and its family, mmap, other allocators' own calls.
// Cost: about 60 instructions per new and delete together, and 16 bytes per block; bench/README.md has the table.
// docs/semantics.md says what is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/detail/block.hpp>

// One strong symbol in every mode: including a hook twice is a link error that names its cause.
extern "C" {
TIDEMARK_EXPORT extern const char tidemark_only_one_cpp_may_include_a_hook_header;
const char tidemark_only_one_cpp_may_include_a_hook_header = 1;
}

#if TIDEMARK_OPT_DISABLE

extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    tidemark::hook_kind::none, 0, "the hook header was included with TIDEMARK_OPT_DISABLE=1", nullptr, nullptr};

#elif TIDEMARK_HAS_CLANG() && (TIDEMARK_HAS_ASAN() || TIDEMARK_HAS_TSAN() || TIDEMARK_HAS_MSAN())

// A second definition of the operators does not link with TSan and MSan.
extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    tidemark::hook_kind::none, 0,
    "no heap hook in this build: clang's sanitizers define operator new themselves (g++ with a sanitizer has the hook)",
    nullptr, nullptr};

#else

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// Everything but the common case: no clean slot, no memory at the first try, an absurd size, an alignment.
/// Null only where memory is out and no new-handler helps.
TIDEMARK_NOINLINE inline void* new_slowly(std::size_t n, std::size_t alignment) {
  for (;;) {
    std::size_t padded = 0;
    if (!__builtin_add_overflow(n, stamp_bytes, &padded)) {
      void* p = alignment == 0 ? real_malloc(padded) : real_aligned(alignment, padded);
      if (TIDEMARK_LIKELY(p != nullptr)) {
        if (TIDEMARK_UNLIKELY(this_thread.word == word_passing)) {
          ledger.hook_seen.store(true, std::memory_order_relaxed);  // find_hook() on this thread
          return p;
        }
        book_birth_slowly(p, n);
        return p;
      }
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

TIDEMARK_NOINLINE inline void* new_or_bad_alloc(std::size_t n, std::size_t alignment) {
  void* p = new_slowly(n, alignment);
  if (p == nullptr) std::__throw_bad_alloc();
  return p;
}

// Rare endings of the common paths below, each a tail call.

TIDEMARK_COLD inline void* finish_birth(void* p, slot& s, std::size_t n) noexcept {
  s.account.settle_allocated(n);
  return p;
}

/// A mapping of its own, which costs a system call anyway.
TIDEMARK_COLD inline void* finish_mapped_birth(void* p, std::size_t n) noexcept {
  book_birth(*slot_of(this_thread.word), p, usable_by_chunk_word(p), n);
  return p;
}

TIDEMARK_COLD inline void finish_death(void* p, slot& s, std::uint64_t n) noexcept {
  s.account.settle_freed(n);
  real_free(p);
}

TIDEMARK_COLD inline void finish_unusual_death(void* p, slot& s, std::uint64_t size, std::uint32_t owner) noexcept {
  book_death(s, stamp{size, owner});
  real_free(p);
}

TIDEMARK_COLD inline void finish_foreign_death(void* p, slot& s) noexcept {
  s.foreign_frees.add(1);
  real_free(p);
}

TIDEMARK_NOINLINE inline void delete_slowly(void* p) noexcept {
  if (p == nullptr) return;
  if (this_thread.word != word_passing) book_death_slowly(p);
  real_free(p);
}

// The two common paths: where sizes are read from glibc's own word, and where the allocator is asked.
// One sign tells that the thread has a clean slot, and a size that can exist or a pointer that is not null.

template <bool Ask>
TIDEMARK_NOINLINE void* allocate(std::size_t n) {
  if (TIDEMARK_UNLIKELY((this_thread.word | static_cast<std::intptr_t>(n)) < 0)) return new_or_bad_alloc(n, 0);
  void* p = real_malloc(n + stamp_bytes);
  if (TIDEMARK_UNLIKELY(p == nullptr)) return new_or_bad_alloc(n, 0);
  std::size_t usable = 0;
  if constexpr (Ask) {
    usable = real_usable(p);
  } else {
    const std::size_t word = chunk_word(p);
    if (TIDEMARK_UNLIKELY((word & chunk_is_mapped) != 0)) return finish_mapped_birth(p, n);
    usable = usable_in_chunk(word);
  }
  // The word is read again rather than kept: one instruction instead of a saved register. No allocator changes it.
  slot& s = *reinterpret_cast<slot*>(this_thread.word);
  if (TIDEMARK_UNLIKELY(!try_book_birth(s, p, usable, n))) return finish_birth(p, s, n);
  return p;
}

template <bool Ask>
TIDEMARK_NOINLINE void release(void* p) noexcept {
  if (TIDEMARK_UNLIKELY((this_thread.word | (reinterpret_cast<std::intptr_t>(p) - 1)) < 0)) return delete_slowly(p);
  std::size_t usable = 0;
  if constexpr (Ask) {
    usable = real_usable(p);
    if (TIDEMARK_UNLIKELY(usable < stamp_bytes)) return delete_slowly(p);
  } else {
    const std::size_t word = chunk_word(p);
    if (TIDEMARK_UNLIKELY((word & chunk_is_mapped) != 0)) return delete_slowly(p);
    usable = usable_in_chunk(word);
  }
  slot& s = *reinterpret_cast<slot*>(this_thread.word);
  open_stamp(p, usable);
  stamp was;
  if (TIDEMARK_UNLIKELY(!read_stamp(was, p, usable, ledger.secret))) return finish_foreign_death(p, s);
  wipe_stamp(p, usable);
  if (TIDEMARK_UNLIKELY(was.owner >= s.owned_capacity)) return finish_unusual_death(p, s, was.size, was.owner);
  s.owned[was.owner].subtract(static_cast<std::int64_t>(was.size));
  if (TIDEMARK_UNLIKELY(!s.account.try_freed(was.size))) return finish_death(p, s, was.size);
  real_free(p);
}

/// Which of the two, chosen before any thread has a slot; until then each goes the slow way.
struct common_paths {
  void* (*allocate)(std::size_t);
  void (*release)(void*) noexcept;
};
TIDEMARK_CONSTINIT inline common_paths common{allocate<false>, release<false>};

inline bool must_ask_sizes() noexcept {
  hide_allocator();
  const bool must = !chunk_words_agree();
  if (must) common = {allocate<true>, release<true>};
  return must;
}

// The nothrow forms must swallow the bad_alloc that a new-handler may throw.
TIDEMARK_NOINLINE inline void* nothrow_new(std::size_t n, std::size_t alignment) noexcept {
  #if TIDEMARK_HAS_EXCEPTIONS()
  try {
    return new_slowly(n, alignment);
  } catch (...) {
    return nullptr;
  }
  #else
  return new_slowly(n, alignment);
  #endif
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    tidemark::hook_kind::global_new, TIDEMARK_OPT_SETTLE_BYTES, "", tidemark::detail::hook::must_ask_sizes,
    tidemark::detail::hook::first_size_query};

// The ledger is prepared while the program has one thread, by the first event or here, whichever comes first: preparing it
// asks the dynamic linker, whose lock another thread could hold.
extern "C" __attribute__((constructor)) inline void tidemark_prepare_hook() {
  static_cast<void>(tidemark::detail::current_slot());
}

  #define TIDEMARK_DETAIL_OPERATOR TIDEMARK_EXPORT TIDEMARK_NOINLINE void

TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n) { return tidemark::detail::hook::common.allocate(n); }
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n) { return tidemark::detail::hook::common.allocate(n); }
TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, 0);
}
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, 0);
}
TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n, std::align_val_t a) {
  return tidemark::detail::hook::new_or_bad_alloc(n, static_cast<std::size_t>(a));
}
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n, std::align_val_t a) {
  return tidemark::detail::hook::new_or_bad_alloc(n, static_cast<std::size_t>(a));
}
TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, static_cast<std::size_t>(a));
}
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, static_cast<std::size_t>(a));
}

TIDEMARK_DETAIL_OPERATOR operator delete(void* p) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::size_t) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::size_t) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}

  #undef TIDEMARK_DETAIL_OPERATOR

#endif
