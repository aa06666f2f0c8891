// SPDX-License-Identifier: MIT
// The allocator below the hook: how it is called, and how the usable size of its blocks is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <dlfcn.h>
#endif
#if defined(__GLIBC__)
  #include <gnu/libc-version.h>
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// Called through pointers that the compiler cannot see through. With a visible `malloc` and -D_FORTIFY_SOURCE=3 the stamp
/// would abort as a write past the end, and clang would delete its wiping before `free`.
struct allocator_below {
  void* (*malloc)(std::size_t) noexcept;
  void (*free)(void*) noexcept;
  int (*posix_memalign)(void**, std::size_t, std::size_t) noexcept;
  std::size_t (*malloc_usable_size)(void*) noexcept;
  // Of the C family only.
  void* (*calloc)(std::size_t, std::size_t) noexcept;
  void* (*realloc)(void*, std::size_t) noexcept;
};

/// No object is larger: the difference of two pointers into it could not be said. Every allocator refuses more.
inline constexpr std::size_t largest_block = PTRDIFF_MAX - 16;  // and its stamp

/// All null until the first event. Here and not in the ledger: it belongs to the one file that includes a hook.
TIDEMARK_CONSTINIT inline allocator_below below{};

/// Fills `below`, `malloc` last; the hook header defines it. False: it is being filled by this very thread.
bool find_allocator() noexcept;

/// Off the common paths, which only a thread with a slot takes: whether there is an allocator to call yet.
[[nodiscard]] inline bool has_allocator() noexcept {
  return TIDEMARK_LIKELY(__atomic_load_n(&below.malloc, __ATOMIC_ACQUIRE) != nullptr) ||  // pairs with publish()
         find_allocator();
}

inline void publish(const allocator_below& found) noexcept {
  below.free = found.free;
  below.posix_memalign = found.posix_memalign;
  below.malloc_usable_size = found.malloc_usable_size;
  below.calloc = found.calloc;
  below.realloc = found.realloc;
  __atomic_store_n(&below.malloc, found.malloc, __ATOMIC_RELEASE);  // pairs with has_allocator()
  asm volatile("" : "+m"(below));  // no compiler, with whole-program knowledge either, knows what it holds
}

TIDEMARK_ALWAYS_INLINE void* real_malloc(std::size_t n) noexcept {
  void* p = below.malloc(n);
  asm("" : "+r"(p));  // clang -O3 drops reads in front of a block that it knows to be fresh
  return p;
}

TIDEMARK_ALWAYS_INLINE void real_free(void* p) noexcept { below.free(p); }

/// Null where it fails. `alignment`: a power of two.
inline void* real_aligned(std::size_t alignment, std::size_t n) noexcept {
  void* p = nullptr;
  if (alignment < sizeof(void*)) alignment = sizeof(void*);
  if (below.posix_memalign(&p, alignment, n) != 0) return nullptr;
  asm("" : "+r"(p));
  return p;
}

TIDEMARK_ALWAYS_INLINE std::size_t real_usable(void* p) noexcept { return below.malloc_usable_size(p); }

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

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
