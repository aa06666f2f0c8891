// SPDX-License-Identifier: MIT
// What happens to one block: it is requested with room for a stamp, stamped and booked at its birth; read, wiped and
// booked at its death. The hooks are made of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__has_include)
  #if __has_include(<malloc.h>)
    #include <malloc.h>
  #endif
#endif
#if defined(__GLIBC__)
  #include <dlfcn.h>
  #include <gnu/libc-version.h>
#endif

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/stamp.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// The allocator below, called through pointers that the compiler cannot see through. With a visible `malloc` and
/// -D_FORTIFY_SOURCE=3 the stamp would abort as a write past the end, and clang would delete its wiping before `free`.
struct allocator_below {
  void* (*malloc)(std::size_t) noexcept;
  void (*free)(void*) noexcept;
  int (*posix_memalign)(void**, std::size_t, std::size_t) noexcept;
  std::size_t (*malloc_usable_size)(void*) noexcept;
};

// Here and not in the ledger: it belongs to the one file that includes a hook, and the first event needs it initialised.
TIDEMARK_CONSTINIT inline allocator_below below{&std::malloc, &std::free, &::posix_memalign, &::malloc_usable_size};

TIDEMARK_ALWAYS_INLINE void* real_malloc(std::size_t n) noexcept {
  void* p = below.malloc(n);
  asm("" : "+r"(p));  // clang -O3 drops reads in front of a block that it knows to be fresh
  return p;
}

TIDEMARK_ALWAYS_INLINE void real_free(void* p) noexcept { below.free(p); }

inline void* real_aligned(std::size_t alignment, std::size_t n) noexcept {
  void* p = nullptr;
  if (alignment < sizeof(void*)) alignment = sizeof(void*);
  if (below.posix_memalign(&p, alignment, n) != 0) return nullptr;
  asm("" : "+r"(p));
  return p;
}

TIDEMARK_ALWAYS_INLINE std::size_t real_usable(void* p) noexcept { return below.malloc_usable_size(p); }

/// Once, before any block: from here on no compiler, with whole-program knowledge either, knows what `below` holds.
inline void hide_allocator() noexcept { asm volatile("" : "+m"(below)); }

// glibc keeps the size of a block in the word in front of it, with three flags in the low bits; bit 1 says that the block
// is a mapping of its own, which has one more word in front.
// Source: glibc malloc/malloc.c, "malloc_chunk details" and musable().
inline constexpr std::size_t chunk_is_mapped = 2;

[[nodiscard]] TIDEMARK_ALWAYS_INLINE std::size_t chunk_word(const void* p) noexcept {
  std::size_t word = 0;
  std::memcpy(&word, static_cast<const unsigned char*>(p) - sizeof word, sizeof word);
  return word;
}

/// Of a block that is no mapping of its own.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE std::size_t usable_in_chunk(std::size_t word) noexcept {
  std::size_t size = word & ~std::size_t{7};
  asm("" : "+r"(size));  // clang would add before it masks, and then once more for the place of each word
  return size - sizeof word;
}

[[nodiscard]] inline std::size_t usable_by_chunk_word(const void* p) noexcept {
  const std::size_t word = chunk_word(p);
  return (word & ~std::size_t{7}) - sizeof word - ((word & chunk_is_mapped) << 2);
}

/// Whether the allocator below is glibc's and keeps its books as above. Nothing is read in front of a block before the
/// usable sizes have shown glibc's pattern: under valgrind or another allocator that word is nobody's.
inline bool chunk_words_agree() noexcept {
#if TIDEMARK_OPT_ASK_SIZES || !defined(__GLIBC__) || !defined(__x86_64__)
  return false;
#else
  Dl_info libc{};
  Dl_info allocator{};
  if (dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &libc) == 0 ||
      dladdr(reinterpret_cast<void*>(below.malloc), &allocator) == 0 || libc.dli_fbase != allocator.dli_fbase) {
    return false;
  }
  // A mapping of its own starts above 32 MiB at the latest; freeing a smaller one would move glibc's threshold.
  constexpr std::size_t mapped = std::size_t{33} << 20;
  constexpr std::size_t sizes[] = {1, 24, 25, 40, 41, 100, 1'000, 1'032, 1'033, 5'000, 70'000};
  const auto agrees = [](void* p, std::size_t n, bool patterned) {
    if (p == nullptr) return false;
    const std::size_t usable = real_usable(p);
    const std::size_t least = n <= 24 ? 24 : (n + 8 + 15) / 16 * 16 - 8;
    // glibc leaves a remainder of 16 bytes with the block rather than split it off.
    const bool as_expected = patterned ? usable == least || usable == least + 16 : usable >= n;
    const bool same = as_expected && usable_by_chunk_word(p) == usable;
    real_free(p);
    return same;
  };
  for (const std::size_t n : sizes) {
    if (!agrees(real_malloc(n), n, true)) return false;
  }
  return agrees(real_aligned(64, 100), 100, false) && agrees(real_aligned(4'096, 5'000), 5'000, false) &&
         agrees(real_malloc(mapped), mapped, false) &&
         agrees(real_aligned(std::size_t{2} << 20, mapped), mapped, false);
#endif
}

// Under AddressSanitizer a write past the block would land in the stamp unseen: it is closed to the program, and opened for
// the library's own look.
#if TIDEMARK_HAS_ASAN()
extern "C" void __asan_poison_memory_region(const volatile void* begin, std::size_t bytes);
extern "C" void __asan_unpoison_memory_region(const volatile void* begin, std::size_t bytes);

inline void close_stamp(void* p, std::size_t usable) noexcept {
  __asan_poison_memory_region(stamp_place(p, usable), stamp_bytes);
}
inline void open_stamp(void* p, std::size_t usable) noexcept {
  __asan_unpoison_memory_region(stamp_place(p, usable), stamp_bytes);
}
#else
TIDEMARK_ALWAYS_INLINE void close_stamp(void*, std::size_t) noexcept {}
TIDEMARK_ALWAYS_INLINE void open_stamp(void*, std::size_t) noexcept {}
#endif

// The steps of an event are written so that whatever is rare can be a tail call: the common path then saves no register.

/// Stamps a fresh block and books it. False: `s.account.settle_allocated(n)` must follow.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool try_book_birth(slot& s, void* p, std::size_t usable, std::size_t n) noexcept {
  write_stamp(p, usable, n, s.owner_word, ledger.secret);
  close_stamp(p, usable);
  s.owner_cell->add(static_cast<std::int64_t>(n));
  return s.account.try_allocated(n);
}

inline void book_birth(slot& s, void* p, std::size_t usable, std::size_t n) noexcept {
  if (!try_book_birth(s, p, usable, n)) s.account.settle_allocated(n);
}

inline void book_quiet_birth(slot& s, void* p, std::size_t usable, std::size_t n) noexcept {
  write_stamp(p, usable, n, quiet_owner, ledger.secret);
  close_stamp(p, usable);
  s.quiet_bytes.add(static_cast<std::int64_t>(n));
  s.quiet_blocks.add(1);
}

/// Books the death of a block whose stamp is wiped already. `was.owner` may be a path that this slot has not met, or the
/// owner of blocks that were never counted.
inline void book_death(slot& s, const stamp& was) noexcept {
  if (was.owner == quiet_owner) {
    s.quiet_bytes.subtract(static_cast<std::int64_t>(was.size));
    s.quiet_blocks.subtract(1);
    return;
  }
  const bool known = was.owner < path_capacity && s.reserve_owner(was.owner, ledger.memory, ledger.table_lock);
  s.owned[known ? was.owner : other_path_id].subtract(static_cast<std::int64_t>(was.size));
  s.account.freed(was.size);
}

/// The first size query of a thread, whose word says that events pass.
inline void first_size_query() noexcept {
  void* p = real_malloc(1);
  if (p != nullptr) static_cast<void>(real_usable(p));
  real_free(p);
}

inline std::size_t usable_bytes(void* p) noexcept {
  return ledger.ask_sizes ? real_usable(p) : usable_by_chunk_word(p);
}

/// This thread's slot, or null where events go to the shared one.
TIDEMARK_ALWAYS_INLINE slot* slot_for_event() noexcept {
  const std::intptr_t word = this_thread.word;
  return is_slot(word) ? slot_of(word) : begin_thread();
}

/// The birth of a block off the fast path: the thread has no clean slot.
TIDEMARK_NOINLINE inline void book_birth_slowly(void* p, std::size_t n) noexcept {
  slot* own = slot_for_event();
  const std::size_t usable = usable_bytes(p);
  const bool hidden = this_thread.quiet_depth > 0;
  const auto book = [=](slot& s) { hidden ? book_quiet_birth(s, p, usable, n) : book_birth(s, p, usable, n); };
  if (TIDEMARK_LIKELY(own != nullptr)) return book(*own);
  on_shared_slot(book);
}

TIDEMARK_NOINLINE inline void book_death_slowly(void* p) noexcept {
  slot* own = slot_for_event();
  const std::size_t usable = usable_bytes(p);
  const auto book = [=](slot& s) {
    stamp was;
    // Other allocators have blocks too small for a stamp: what lies in front of them is not ours to read.
    if (usable < stamp_bytes) return s.foreign_frees.add(1);
    open_stamp(p, usable);
    if (!read_stamp(was, p, usable, ledger.secret)) return s.foreign_frees.add(1);
    wipe_stamp(p, usable);
    book_death(s, was);
  };
  if (TIDEMARK_LIKELY(own != nullptr)) return book(*own);
  on_shared_slot(book);
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
