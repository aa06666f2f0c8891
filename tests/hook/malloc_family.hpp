// SPDX-License-Identifier: MIT
// What holds of the C allocation family, however the hook learns the size of a block. Each file that includes this compiles
// the hook in another mode; the 20 operators are tested along.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include <malloc.h>
#include <sys/types.h>
#include <unistd.h>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/scope/meter.hpp>

#include "blocks.hpp"
#include "hooked.hpp"
#include "test.hpp"

#if !TIDEMARK_OPT_SANITIZER_HOOKS || !TIDEMARK_HAS_SANITIZER_ALLOCATOR()
  #include "operators.hpp"  // frees blocks by other functions than gave them, which a sanitizer takes for errors
#endif

namespace family {

using namespace tidemark::literals;
using hooked::counts;
using hooked::fill;
using hooked::foreign_malloc;
using hooked::hidden;
using hooked::is_aligned;
using hooked::is_filled;
using hooked::is_same;
using hooked::launder;

inline constexpr bool is_listening = hooked::is_sanitizer_listening;
inline constexpr int marker = EDOM;  // an errno that no allocation function sets

inline const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

inline std::size_t whole_pages(std::size_t n) { return (n + page - 1) / page * page; }

inline bool is_preloaded(const char* library) {
  const char* preloaded = std::getenv("LD_PRELOAD");
  return preloaded != nullptr && std::strstr(preloaded, library) != nullptr;
}
inline bool is_over_glibc() { return std::getenv("LD_PRELOAD") == nullptr && !TIDEMARK_HAS_SANITIZER_ALLOCATOR(); }

// ---- the functions ----

struct make_form {
  const char* name;
  bool takes_alignment;
  bool is_by_page;
  void* (*make)(std::size_t n, std::size_t alignment);

  [[nodiscard]] bool is_reported() const { return !is_listening || (!takes_alignment && !is_by_page); }
  [[nodiscard]] bool is_pvalloc() const { return std::strcmp(name, "pvalloc") == 0; }
  /// What a block of n bytes counts.
  [[nodiscard]] std::int64_t counted(std::size_t n) const {
    return static_cast<std::int64_t>(is_pvalloc() ? whole_pages(n) : hooked::counted(n));
  }
  [[nodiscard]] std::size_t least_alignment(std::size_t asked) const {
    return takes_alignment ? asked : is_by_page ? page : alignof(std::max_align_t);
  }
};

inline void* by_posix_memalign(std::size_t n, std::size_t alignment) {
  void* p = nullptr;
  const int error = ::posix_memalign(&p, alignment, n);
  if (error != 0) errno = error;  // as the others say it
  return launder(p);
}

// Under their own names clang's sanitizer checks that an alignment is a power of two before the functions can.
inline void* hidden_aligned_alloc(std::size_t alignment, std::size_t n) {
  return launder<void*(std::size_t, std::size_t)>(&std::aligned_alloc)(alignment, n);
}
inline void* hidden_memalign(std::size_t alignment, std::size_t n) {
  return launder<void*(std::size_t, std::size_t)>(&::memalign)(alignment, n);
}

inline constexpr make_form make_forms[] = {
    {"malloc", false, false, [](std::size_t n, std::size_t) { return launder(std::malloc(n)); }},
    {"calloc(1, n)", false, false, [](std::size_t n, std::size_t) { return launder(std::calloc(hidden(1), n)); }},
    {"calloc(n, 1)", false, false, [](std::size_t n, std::size_t) { return launder(std::calloc(n, hidden(1))); }},
    {"realloc(nullptr, n)", false, false,
     [](std::size_t n, std::size_t) { return launder(std::realloc(launder<void>(nullptr), n)); }},
    {"reallocarray(nullptr, n, 1)", false, false,
     [](std::size_t n, std::size_t) { return launder(::reallocarray(launder<void>(nullptr), n, hidden(1))); }},
    {"aligned_alloc", true, false, [](std::size_t n, std::size_t a) { return launder(hidden_aligned_alloc(a, n)); }},
    {"posix_memalign", true, false, by_posix_memalign},
    {"memalign", true, false, [](std::size_t n, std::size_t a) { return launder(hidden_memalign(a, n)); }},
    {"valloc", false, true, [](std::size_t n, std::size_t) { return launder(::valloc(n)); }},
    {"pvalloc", false, true, [](std::size_t n, std::size_t) { return launder(::pvalloc(n)); }},
};
inline constexpr std::size_t make_form_count = sizeof make_forms / sizeof make_forms[0];

struct free_form {
  const char* name;
  void (*free)(void* p, std::size_t n, std::size_t alignment);
};

inline void by_realloc(void* p, std::size_t, std::size_t) {
  void* left = launder(std::realloc(launder(p), hidden(0)));
  if (left != nullptr) std::free(left);  // other allocators answer with a block of no bytes
}

inline constexpr free_form free_forms[] = {
    {"free", [](void* p, std::size_t, std::size_t) { std::free(launder(p)); }},
    {"realloc(p, 0)", by_realloc},
#if !TIDEMARK_OPT_SANITIZER_HOOKS || !TIDEMARK_HAS_SANITIZER_ALLOCATOR()
    {"free_sized", [](void* p, std::size_t n, std::size_t) { ::free_sized(launder(p), n); }},
    {"free_aligned_sized", [](void* p, std::size_t n, std::size_t a) { ::free_aligned_sized(launder(p), a, n); }},
#endif
};
inline constexpr std::size_t free_form_count = sizeof free_forms / sizeof free_forms[0];

// ---- what an event is ----

/// One block of that many bytes was counted, once, and nothing else was.
inline bool is_one_birth(const counts& from, const counts& to, std::int64_t bytes) {
  return has_moved(from, to, bytes, 1) && to.thread.allocations - from.thread.allocations == 1 &&
         to.thread.deallocations == from.thread.deallocations && to.self.events - from.self.events == 1 &&
         to.thread.allocated_bytes - from.thread.allocated_bytes == static_cast<std::uint64_t>(bytes);
}

inline bool is_one_death(const counts& from, const counts& to, std::int64_t bytes) {
  return has_moved(from, to, -bytes, -1) && to.thread.deallocations - from.thread.deallocations == 1 &&
         to.thread.allocations == from.thread.allocations && to.self.events - from.self.events == 1 &&
         to.thread.freed_bytes - from.thread.freed_bytes == static_cast<std::uint64_t>(bytes);
}

/// One block became another: a death and a birth.
inline bool is_one_of_each(const counts& from, const counts& to, std::int64_t was, std::int64_t is) {
  return has_moved(from, to, is - was, 0) && to.thread.allocations - from.thread.allocations == 1 &&
         to.thread.deallocations - from.thread.deallocations == 1 && to.self.events - from.self.events == 2 &&
         to.thread.allocated_bytes - from.thread.allocated_bytes == static_cast<std::uint64_t>(is) &&
         to.thread.freed_bytes - from.thread.freed_bytes == static_cast<std::uint64_t>(was);
}

inline bool is_untouched(const counts& from, const counts& to) {
  return is_same(from, to) && from.self.foreign_frees == to.self.foreign_frees;
}

// ---- a block from its birth to its death ----

struct life {
  bool is_given = false;
  bool is_aligned = false;
  bool is_birth_exact = false;
  bool is_usable = false;
  bool keeps_contents = false;
  bool is_death_exact = false;
  bool is_back_at_start = false;
  bool keeps_errno = false;
};

inline life live_through(const make_form& made, std::size_t n, std::size_t alignment, const free_form& freed) {
  life r;
  const std::int64_t bytes = made.counted(n);
  const counts before;
  errno = marker;
  void* p = made.make(hidden(n), hidden(alignment));
  r.keeps_errno = errno == marker;
  const counts born;
  r.is_given = p != nullptr;
  if (p == nullptr) return r;
  r.is_aligned = is_aligned(p, made.least_alignment(alignment));
  r.is_birth_exact = is_one_birth(before, born, bytes);
  r.is_usable =
      ::malloc_usable_size(p) >= static_cast<std::size_t>(made.is_pvalloc() ? bytes : static_cast<std::int64_t>(n));
  fill(p, n, 'x');
  r.keeps_contents = is_filled(p, n, 'x');
  const counts filled;
  errno = marker;
  freed.free(p, n, alignment);
  r.keeps_errno &= errno == marker;
  const counts after;
  const bool may_answer_with_a_block = freed.free == by_realloc && !is_over_glibc();
  r.is_death_exact =
      may_answer_with_a_block ? has_moved(filled, after, -bytes, -1) : is_one_death(filled, after, bytes);
  r.is_back_at_start = has_moved(before, after, 0, 0);
  return r;
}

inline void check_life(const make_form& made, std::size_t n, std::size_t alignment, const free_form& freed) {
  const life r = live_through(made, n, alignment, freed);
  INFO(doctest::String(made.name));
  INFO(doctest::String(freed.name));
  CAPTURE(n);
  CAPTURE(alignment);
  CHECK(r.is_given);
  CHECK(r.is_aligned);
  CHECK(r.is_birth_exact);
  CHECK(r.is_usable);
  CHECK(r.keeps_contents);
  CHECK(r.is_death_exact);
  CHECK(r.is_back_at_start);
  CHECK(r.keeps_errno);
}

/// memcheck copies and shadows each byte.
inline bool takes_too_long(std::size_t n) { return n > 1'048'576 && is_preloaded("vgpreload"); }

inline constexpr std::size_t impossible_sizes[] = {PTRDIFF_MAX - std::size_t{17},
                                                   PTRDIFF_MAX - std::size_t{16},
                                                   PTRDIFF_MAX - std::size_t{15},
                                                   PTRDIFF_MAX,
                                                   SIZE_MAX - 100,
                                                   SIZE_MAX - 16,
                                                   SIZE_MAX - 15,
                                                   SIZE_MAX};

// ---- contents that say where they belong ----

inline unsigned char mark_at(std::size_t i, unsigned char seed) {
  return static_cast<unsigned char>(i * 31 + (i >> 8) + seed);
}

inline constexpr std::size_t painted_whole = 65'536;
inline constexpr std::size_t painted_end = 4'096;

/// Calls `f(i)` for each byte that is painted: of a large block only the ends.
template <class F>
void for_each_painted(std::size_t n, F f) {
  const std::size_t head = n <= painted_whole ? n : painted_end;
  for (std::size_t i = 0; i < head; ++i) f(i);
  for (std::size_t i = n - (n - head < painted_end ? n - head : painted_end); i < n; ++i) f(i);
}

inline void paint(void* p, std::size_t n, unsigned char seed) {
  auto* bytes = static_cast<unsigned char*>(launder(p));
  for_each_painted(n, [&](std::size_t i) { bytes[i] = mark_at(i, seed); });
  tidemark::escape(p);
}

/// Whether the first `kept` bytes are still those of a block of n bytes that was painted.
inline bool is_painted(const void* p, std::size_t n, unsigned char seed, std::size_t kept) {
  const auto* bytes = static_cast<const unsigned char*>(launder(p));
  bool is_right = true;
  for_each_painted(n, [&](std::size_t i) { is_right &= i >= kept || bytes[i] == mark_at(i, seed); });
  return is_right;
}

}  // namespace family

TEST_CASE("the hook says that it is the family's") {
  const tidemark::hook_kind kind = tidemark::hook_state();
  CHECK(kind == (family::is_listening ? tidemark::hook_kind::sanitizer : tidemark::hook_kind::malloc_family));
}

TEST_CASE("every function counts a block of any size once and as requested, and every free takes it off again") {
  using namespace family;
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17},
                              std::size_t{24}, std::size_t{25}, page - 1, page, page + 1, std::size_t{100'000},
                              std::size_t{1'048'575}, static_cast<std::size_t>(40_MiB)}) {
    for (const make_form& made : make_forms) {
      if (!made.is_reported()) continue;  // ThreadSanitizer says nothing of the others
      for (const free_form& freed : free_forms) check_life(made, n, 64, freed);
    }
  }
}

TEST_CASE("a block of 3 GiB that is hardly written to counts 3 GiB") {
  using namespace family;
  // A sanitizer keeps a shadow of each byte, and its calloc writes each.
  if (TIDEMARK_HAS_SANITIZER_ALLOCATOR() || takes_too_long(static_cast<std::size_t>(3_GiB))) return;
  std::size_t freed = 0;
  for (const make_form& made : make_forms) {
    check_life(made, static_cast<std::size_t>(3_GiB), 4'096, free_forms[freed++ % free_form_count]);
  }
}

TEST_CASE("blocks of any alignment are aligned and count what was requested") {
  using namespace family;
  if (is_listening) return;  // ThreadSanitizer says nothing of these
  std::size_t freed = 0;
  for (std::size_t alignment = 16; alignment <= 1'048'576; alignment *= 2) {
    for (const make_form& made : make_forms) {
      if (!made.takes_alignment) continue;
      for (const std::size_t n : {0UL, 1UL, 17UL, 1'000UL, 4'097UL, 131'072UL, 2'000'000UL, 40'000'000UL}) {
        check_life(made, n, alignment, free_forms[freed++ % free_form_count]);
      }
    }
  }
}

TEST_CASE("an alignment below a pointer's is taken by aligned_alloc and memalign") {
  using namespace family;
  if (is_listening) return;  // ThreadSanitizer says nothing of these
  for (const std::size_t alignment : {1UL, 2UL, 4UL, 8UL}) {
    check_life(make_forms[5], 100, alignment, free_forms[0]);
    check_life(make_forms[7], 100, alignment, free_forms[0]);
  }
}

TEST_CASE("valloc counts what was requested, pvalloc the whole pages that it gives") {
  using namespace family;
  if (is_listening) return;  // ThreadSanitizer says nothing of these
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, page - 1, page, page + 1, 10 * page - 7}) {
    const counts start;
    void* by_valloc = launder(::valloc(hidden(n)));
    const counts first;
    void* by_pvalloc = launder(::pvalloc(hidden(n)));
    const counts second;
    const std::size_t rounded = whole_pages(n);
    fill(by_pvalloc, rounded, 'p');
    fill(by_valloc, n, 'v');
    const bool is_kept = is_filled(by_pvalloc, rounded, 'p') && is_filled(by_valloc, n, 'v');
    const bool is_by_page = is_aligned(by_valloc, page) && is_aligned(by_pvalloc, page);
    std::free(by_valloc);
    std::free(by_pvalloc);
    const counts after;
    CAPTURE(n);
    CHECK(is_one_birth(start, first, static_cast<std::int64_t>(n)));
    CHECK(is_one_birth(first, second, static_cast<std::int64_t>(rounded)));
    CHECK(is_kept);
    CHECK(is_by_page);
    CHECK(has_moved(start, after, 0, 0));
  }
}

TEST_CASE(
    "blocks of zero bytes are unique, are no null pointers, and count as blocks of no bytes, from every function") {
  using namespace family;
  if (is_listening) return;  // AddressSanitizer makes a byte of none
  constexpr std::size_t many = 10 * make_form_count;
  void* blocks[many] = {};
  bool is_unique = true;
  std::int64_t bytes = 0;
  const counts before;
  for (std::size_t i = 0; i < many; ++i) {
    const make_form& made = make_forms[i % make_form_count];
    blocks[i] = made.make(hidden(0), 64);
    bytes += made.counted(0);
    is_unique &= blocks[i] != nullptr;
    for (std::size_t j = 0; j < i; ++j) is_unique &= blocks[i] != blocks[j];
  }
  const counts between;
  for (std::size_t i = 0; i < many; ++i) free_forms[i % free_form_count].free(blocks[i], 0, 64);
  const counts after;
  CHECK(is_unique);
  CHECK(bytes == 0);
  CHECK(has_moved(before, between, 0, many));
  CHECK(has_moved(before, after, 0, 0));
}

TEST_CASE("freeing a null pointer is no event, and has no usable size") {
  using namespace family;
  const counts before;
  errno = marker;
  std::free(launder<void>(nullptr));
#if !TIDEMARK_OPT_SANITIZER_HOOKS || !TIDEMARK_HAS_SANITIZER_ALLOCATOR()
  ::free_sized(launder<void>(nullptr), 0);
  ::free_aligned_sized(launder<void>(nullptr), 64, 0);
#endif
  const std::size_t usable = ::malloc_usable_size(launder<void>(nullptr));
  const bool keeps_errno = errno == marker;
  const counts after;
  CHECK(is_untouched(before, after));
  CHECK(usable == 0);
  CHECK(keeps_errno);
}

TEST_CASE("impossible sizes are out of memory to every function, and leave no trace in the counts") {
  using namespace family;
  for (const std::size_t n : impossible_sizes) {
    for (const make_form& made : make_forms) {
      if (!made.is_reported()) continue;  // AddressSanitizer's own rules come before
      const counts before;
      errno = 0;
      void* p = made.make(hidden(n), 64);
      const int error = errno;
      const counts after;
      INFO(doctest::String(made.name));
      CAPTURE(n);
      CHECK(p == nullptr);
      CHECK(error == ENOMEM);
      CHECK(is_untouched(before, after));
    }
  }
}

TEST_CASE("posix_memalign that cannot be served says so, and leaves errno and the pointer alone") {
  using namespace family;
  if (is_listening) return;  // the sanitizer's own
  int before_it = 0;
  const auto try_it = [&](std::size_t alignment, std::size_t n, int expected) {
    void* out = &before_it;
    const counts before;
    errno = marker;
    const int error = ::posix_memalign(&out, hidden(alignment), hidden(n));
    const bool is_alone = errno == marker && launder(out) == &before_it;
    const counts after;
    CAPTURE(alignment);
    CAPTURE(n);
    CHECK(error == expected);
    CHECK(is_alone);
    CHECK(is_untouched(before, after));
  };
  for (const std::size_t n : impossible_sizes) try_it(64, n, ENOMEM);
  for (const std::size_t alignment : {0UL, 1UL, 2UL, 3UL, 4UL, 12UL, 24UL, SIZE_MAX}) try_it(alignment, 100, EINVAL);
  try_it(SIZE_MAX / 2 + 1, 100, ENOMEM);
}

TEST_CASE(
    "aligned_alloc takes no alignment that is not a power of two; memalign makes one of it; neither what cannot be") {
  using namespace family;
  if (is_listening) return;  // the sanitizer's own
  const auto fails_with = [](void* (*make)(std::size_t, std::size_t), std::size_t alignment, int expected) {
    const counts before;
    errno = marker;
    void* p = make(hidden(100), hidden(alignment));
    const int error = errno;
    const counts after;
    CAPTURE(alignment);
    CHECK(p == nullptr);
    CHECK(error == expected);
    CHECK(is_untouched(before, after));
  };
  for (const std::size_t alignment : {0UL, 3UL, 24UL, 100UL, SIZE_MAX}) {
    fails_with(make_forms[5].make, alignment, EINVAL);
  }
  for (const std::size_t alignment : {SIZE_MAX / 2 + 2, SIZE_MAX - 1, SIZE_MAX}) {
    fails_with(make_forms[7].make, alignment, EINVAL);
  }
  for (const make_form* made : {&make_forms[5], &make_forms[7]}) fails_with(made->make, SIZE_MAX / 2 + 1, ENOMEM);
  for (const std::size_t asked : {0UL, 3UL, 24UL, 33UL, 1'000UL, 5'000UL, 70'000UL}) {
    std::size_t power = 1;
    while (power < asked) power *= 2;
    const counts before;
    void* p = launder(hidden_memalign(hidden(asked), 100));
    const counts born;
    fill(p, 100, 'x');
    std::free(p);
    const counts after;
    CAPTURE(asked);
    CHECK(is_aligned(p, power));
    CHECK(is_one_birth(before, born, 100));
    CHECK(has_moved(before, after, 0, 0));
  }
}

TEST_CASE("calloc clears what it gives, also where a block was freed before") {
  using namespace family;
  for (const std::size_t n : {1UL, 8UL, 24UL, 25UL, 100UL, 1'000UL, 4'096UL, 60'000UL, 200'000UL, 1'000'000UL}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      void* dirty = launder(std::malloc(hidden(n)));
      fill(dirty, n, 'x');
      std::free(dirty);
      const counts before;
      void* p = launder(std::calloc(hidden(n), hidden(3)));
      const counts born;
      void* q = launder(std::calloc(hidden(3), hidden(n)));
      const bool is_cleared = is_filled(p, 3 * n, 0) && is_filled(q, 3 * n, 0);
      std::free(p);
      std::free(q);
      const counts after;
      CAPTURE(n);
      CHECK(is_one_birth(before, born, 3 * static_cast<std::int64_t>(n)));
      CHECK(is_cleared);
      CHECK(has_moved(before, after, 0, 0));
    }
  }
}

TEST_CASE("a product too large for a size cannot be allocated, and reallocarray leaves the old block as it was") {
  using namespace family;
  if (is_listening && TIDEMARK_HAS_TSAN()) return;  // it reports a free before it knows that there is no memory
  struct factors {
    std::size_t a, b;
  };
  // The last two wrap around to a small size.
  for (const factors f : {factors{SIZE_MAX, 2}, factors{2, SIZE_MAX}, factors{SIZE_MAX / 2 + 1, 2},
                          factors{std::size_t{1} << 32, (std::size_t{1} << 32) + 1}}) {
    void* old = launder(std::malloc(1'000));
    paint(old, 1'000, 1);
    const counts before;
    errno = 0;
    void* by_calloc = launder(std::calloc(hidden(f.a), hidden(f.b)));
    const int error_of_calloc = errno;
    errno = 0;
    void* fresh = launder(::reallocarray(launder<void>(nullptr), hidden(f.a), hidden(f.b)));
    const int error_of_fresh = errno;
    errno = 0;
    void* resized = launder(::reallocarray(launder(old), hidden(f.a), hidden(f.b)));
    const int error_of_resized = errno;
    const counts after;
    const bool is_kept = is_painted(old, 1'000, 1, 1'000);
    const counts still;
    std::free(launder(old));
    const counts freed;
    CHECK(by_calloc == nullptr);
    CHECK(error_of_calloc == ENOMEM);
    CHECK(fresh == nullptr);
    CHECK(error_of_fresh == ENOMEM);
    CHECK(resized == nullptr);
    CHECK(error_of_resized == ENOMEM);
    CHECK(is_untouched(before, after));
    CHECK(is_kept);
    CHECK(is_one_death(still, freed, 1'000));
  }
}

// ---- realloc ----

namespace family {

// Up and down through glibc's own lists, its heap and its mappings, which begin at 128 KiB unless freeing one moves that.
inline constexpr std::size_t chain[] = {
    1,          16,         15,         17,        100,     24,        25,         41,        1'000,      1'032,
    5'000,      4'096,      100'000,    130'000,   131'056, 131'057,   140'000,    131'072,   70'000,     200'000,
    1'048'576,  150'000,    300'000,    5'000'000, 400'000, 6'000'000, 5'999'000,  6'001'000, 33'554'432, 8'000'000,
    67'108'864, 41'943'040, 67'108'865, 160'000,   1'000,   20,        33'000'000, 1};

struct step {
  bool is_given = false;
  bool is_exact = false;
  bool has_never_both = false;
  bool keeps_contents = false;
  bool keeps_errno = false;
};

/// One realloc of a block of `was` bytes that was painted with `seed`. `counted`: what it counts.
inline step resize(void*& p, std::size_t was, std::int64_t counted, std::size_t n, unsigned char seed, bool by_array) {
  step r;
  tidemark::meter::thread_heap::window of_thread;
  tidemark::meter::process_heap::window of_process;
  const counts before;
  errno = marker;
  void* q = by_array && n % 5 == 0 ? launder(::reallocarray(launder(p), n / 5, hidden(5)))
                                   : launder(std::realloc(launder(p), hidden(n)));
  r.keeps_errno = errno == marker;
  const counts after;
  const tidemark::window_usage t = of_thread.close().value();
  const tidemark::window_usage all = of_process.close().value();
  r.is_given = q != nullptr;
  if (q == nullptr) return r;
  p = q;
  const auto bytes = static_cast<std::int64_t>(n);
  const std::int64_t growth = bytes > counted ? bytes - counted : 0;
  r.is_exact = is_one_of_each(before, after, counted, bytes);
  r.has_never_both = t.peak_growth() == growth && all.peak_growth() == growth && t.allocations == 1 &&
                     t.deallocations == 1 && t.largest_bytes == n;
  r.keeps_contents = is_painted(p, was, seed, was < n ? was : n);
  return r;
}

inline void check_chain(const make_form& made, std::size_t first, std::size_t alignment, bool by_array) {
  const counts start;
  void* p = made.make(hidden(first), alignment);
  std::size_t n = first;
  std::int64_t counted = made.counted(first);
  unsigned char seed = 0;
  paint(p, n, seed);
  step worst{true, true, true, true, true};
  for (const std::size_t next : chain) {
    if (takes_too_long(next)) continue;
    const step s = resize(p, n, counted, next, seed, by_array);
    worst.is_given &= s.is_given;
    worst.is_exact &= s.is_exact;
    worst.has_never_both &= s.has_never_both;
    worst.keeps_contents &= s.keeps_contents;
    worst.keeps_errno &= s.keeps_errno;
    if (!s.is_given) break;
    n = next;
    counted = static_cast<std::int64_t>(next);
    paint(p, n, ++seed);
  }
  std::free(p);
  const counts after;
  INFO(doctest::String(made.name));
  CAPTURE(first);
  CAPTURE(alignment);
  CHECK(worst.is_given);
  CHECK(worst.is_exact);
  CHECK(worst.has_never_both);
  CHECK(worst.keeps_contents);
  CHECK(worst.keeps_errno);
  CHECK(has_moved(start, after, 0, 0));
}

inline void check_chains() {
  bool by_array = false;
  for (const make_form& made : make_forms) {
    for (const std::size_t first : {0UL, 100UL, 5'000UL, 200'000UL, 41'000'000UL}) {
      if (takes_too_long(first)) continue;
      check_chain(made, first, 64, by_array = !by_array);
      if (made.takes_alignment) check_chain(made, first, 65'536, by_array);
    }
  }
}

}  // namespace family

TEST_CASE("a realloc is one deallocation and one allocation, keeps the contents, and its peak never has both blocks") {
  if (family::is_listening) return;  // a sanitizer's realloc counts the new block before the old one is gone
  family::check_chains();
}

TEST_CASE("the same holds where each block above 128 KiB is a mapping of its own") {
  if (family::is_listening) return;  // a sanitizer's realloc counts the new block before the old one is gone
  // Set by hand, the threshold stays.
  mallopt(M_MMAP_THRESHOLD, 131'072);
  family::check_chains();
}

TEST_CASE("realloc of a block that new gave counts like any other") {
  using namespace family;
  if (is_listening) return;  // AddressSanitizer takes it for an error
  void* p = launder(::operator new(hidden(1'000)));
  paint(p, 1'000, 3);
  const step s = resize(p, 1'000, 1'000, 70'000, 3, false);
  const counts before;
  ::operator delete(launder(p));
  const counts after;
  CHECK(s.is_exact);
  CHECK(s.has_never_both);
  CHECK(s.keeps_contents);
  CHECK(is_one_death(before, after, 70'000));
}

TEST_CASE("realloc to no bytes does what the allocator below does: glibc's frees the block") {
  using namespace family;
  if (is_listening) return;  // the sanitizer's own
  for (const std::size_t n : {0UL, 1UL, 100UL, 5'000UL, 200'000UL, 40'000'000UL}) {
    for (const make_form& made : make_forms) {
      for (const bool by_array : {false, true}) {
        const counts before;
        void* p = made.make(hidden(n), 64);
        const counts born;
        errno = marker;
        void* q =
            launder(by_array ? ::reallocarray(launder(p), hidden(0), hidden(8)) : std::realloc(launder(p), hidden(0)));
        const bool keeps_errno = errno == marker;
        const counts resized;
        const bool is_freed = q == nullptr;
        std::free(q);
        const counts after;
        INFO(doctest::String(made.name));
        CAPTURE(n);
        if (is_over_glibc()) CHECK(is_freed);
        CHECK((is_freed ? is_one_death(born, resized, made.counted(n))
                        : is_one_of_each(born, resized, made.counted(n), 0)));
        CHECK(keeps_errno);
        CHECK(has_moved(before, after, 0, 0));
      }
    }
  }
}

TEST_CASE("a realloc that must fail leaves no trace, and its block as it was: still counted, and freed as its own") {
  using namespace family;
  if (is_listening) return;  // the sanitizer's own
  // The first ones are refused by the allocator below, the others before it is asked.
  constexpr std::size_t refused[] = {std::size_t{1} << 47,
                                     PTRDIFF_MAX - std::size_t{17},
                                     PTRDIFF_MAX - std::size_t{16},
                                     PTRDIFF_MAX - std::size_t{15},
                                     PTRDIFF_MAX,
                                     SIZE_MAX - 100,
                                     SIZE_MAX - 15,
                                     SIZE_MAX};
  std::size_t freed = 0;
  for (const std::size_t n : {0UL, 1UL, 24UL, 25UL, 1'000UL, 200'000UL, 40'000'000UL}) {
    for (const make_form& made : make_forms) {
      for (const bool is_resized_later : {false, true}) {
        void* p = made.make(hidden(n), 64);
        paint(p, n, 9);
        tidemark::meter::thread_heap::window window;
        const std::size_t usable = ::malloc_usable_size(p);
        const counts before;
        bool is_refused = true;
        for (const std::size_t size : refused) {
          errno = 0;
          void* q = launder(std::realloc(launder(p), hidden(size)));
          is_refused &= q == nullptr && errno == ENOMEM;
        }
        const counts after;
        const bool is_as_it_was = is_painted(p, n, 9, n) && ::malloc_usable_size(p) == usable;
        const tidemark::window_usage u = window.close().value();
        std::int64_t counted = made.counted(n);
        step later{true, true, true, true, true};
        if (is_resized_later) {
          later = resize(p, n, counted, 3'000, 9, false);
          counted = 3'000;
        }
        const counts still;
        free_forms[freed % free_form_count].free(p, static_cast<std::size_t>(counted), 64);
        const counts gone;
        INFO(doctest::String(made.name));
        CAPTURE(n);
        CHECK(is_refused);
        CHECK(is_untouched(before, after));
        CHECK(u.peak_growth() == 0);
        CHECK(u.largest_bytes == 0);
        CHECK(is_as_it_was);
        CHECK(later.is_exact);
        CHECK(later.keeps_contents);
        CHECK(has_moved(still, gone, -counted, -1));
        ++freed;
      }
    }
  }
}

// ---- malloc_usable_size ----

TEST_CASE(
    "a program that writes all of malloc_usable_size breaks nothing, whoever gave the block and whatever frees it") {
  using namespace family;
  if (is_listening) return;  // nothing is written into a block there
  std::size_t turn = 0;
  const auto write_all = [&](const make_form& made, std::size_t n) {
    bool is_exact = true;
    bool is_enough = true;
    bool is_kept = true;
    const counts start;
    void* p = made.make(hidden(n), 64);
    std::size_t counted = static_cast<std::size_t>(made.counted(n));
    std::size_t usable = ::malloc_usable_size(p);
    is_enough &= usable >= counted;
    fill(p, usable, 'U');
    is_kept &= ::malloc_usable_size(p) == usable && is_filled(p, usable, 'U');
    if (turn % 3 != 0) {
      const std::size_t next = turn % 3 == 1 ? n / 2 + 1 : n * 2 + 40;
      const counts before;
      p = launder(std::realloc(launder(p), hidden(next)));
      is_exact &= is_one_of_each(before, counts(), static_cast<std::int64_t>(counted), static_cast<std::int64_t>(next));
      is_kept &= is_filled(p, n < next && n <= hooked::filled_whole ? n : 1, 'U');
      counted = next;
      usable = ::malloc_usable_size(p);
      is_enough &= usable >= counted;
      fill(p, usable, 'V');
    }
    const counts before;
    free_forms[turn++ % free_form_count].free(p, counted, 64);
    const counts after;
    is_exact &= has_moved(before, after, -static_cast<std::int64_t>(counted), -1) && has_moved(start, after, 0, 0);
    INFO(doctest::String(made.name));
    CAPTURE(n);
    CHECK(is_enough);
    CHECK(is_kept);
    CHECK(is_exact);
  };
  for (const make_form& made : make_forms) {
    for (std::size_t n = 0; n < 140; ++n) write_all(made, n);
    for (const std::size_t n : {500UL, 1'000UL, 1'016UL, 1'017UL, 4'064UL, 4'080UL, 4'081UL, 65'000UL, 131'000UL,
                                131'040UL, 131'072UL, 1'000'000UL, 5'000'000UL, 40'000'000UL, 67'108'864UL}) {
      if (takes_too_long(n)) continue;
      for (int repeat = 0; repeat < 3; ++repeat) write_all(made, n);
    }
  }
}

#if !TIDEMARK_OPT_SANITIZER_HOOKS || !TIDEMARK_HAS_SANITIZER_ALLOCATOR()

TEST_CASE("the usable size is the allocator's own without the 16 bytes of the stamp") {
  using namespace family;
  for (const make_form& made : make_forms) {
    for (const std::size_t n : {0UL, 1UL, 24UL, 25UL, 1'000UL, 100'000UL, 40'000'000UL}) {
      void* p = made.make(hidden(n), 64);
      const std::size_t usable = ::malloc_usable_size(p);
      const std::size_t below = tidemark::detail::hook::below.malloc_usable_size(p);
      std::free(p);
      INFO(doctest::String(made.name));
      CAPTURE(n);
      CHECK(usable + 16 == below);
    }
  }
}

// ---- blocks of others ----

TEST_CASE("a foreign block is freed safely by every free, and only foreign_frees changes") {
  using namespace family;
  for (const std::size_t n : {0UL, 1UL, 15UL, 16UL, 17UL, 24UL, 25UL, 4'096UL, 100'000UL, 40'000'000UL}) {
    for (const free_form& freed : free_forms) {
      void* p = foreign_malloc(n);
      const std::size_t usable = tidemark::detail::hook::below.malloc_usable_size(p);
      fill(p, usable, 'Z');  // an even byte passes no check, whatever this run's secret is
      const counts before;
      errno = marker;
      const std::size_t said = ::malloc_usable_size(p);
      const counts asked;
      freed.free(p, n, 16);
      const bool keeps_errno = errno == marker;
      const counts after;
      CAPTURE(n);
      INFO(doctest::String(freed.name));
      CHECK(said == usable);
      CHECK(is_untouched(before, asked));
      CHECK(after.self.foreign_frees == before.self.foreign_frees + 1);
      if (freed.free != by_realloc || is_over_glibc()) CHECK(is_same(before, after));
      CHECK(keeps_errno);
    }
  }
}

TEST_CASE("a foreign block that is resized counts from then on, and one that cannot be stays foreign") {
  using namespace family;
  for (const std::size_t n : {0UL, 1UL, 24UL, 25UL, 1'000UL, 200'000UL, 40'000'000UL}) {
    for (const std::size_t next : {1UL, 24UL, 25UL, 5'000UL, 250'000UL, 41'000'000UL}) {
      void* p = foreign_malloc(n);
      const std::size_t usable = tidemark::detail::hook::below.malloc_usable_size(p);
      fill(p, usable, 'Z');
      const counts before;
      errno = 0;
      void* impossible = launder(std::realloc(launder(p), hidden(PTRDIFF_MAX - 16)));
      const int error = errno;
      const counts failed;
      const bool is_as_it_was = is_filled(p, usable, 'Z');
      p = launder(std::realloc(launder(p), hidden(next)));
      const counts resized;
      const bool is_kept = is_filled(p, n < next && n <= hooked::filled_whole ? n : 0, 'Z');
      fill(p, ::malloc_usable_size(p), 'Z');
      std::free(p);
      const counts after;
      CAPTURE(n);
      CAPTURE(next);
      CHECK(impossible == nullptr);
      CHECK(error == ENOMEM);
      CHECK(is_untouched(before, failed));
      CHECK(is_as_it_was);
      CHECK(is_kept);
      CHECK(resized.self.foreign_frees == failed.self.foreign_frees + 1);
      CHECK(resized.thread.live_bytes - failed.thread.live_bytes == static_cast<std::int64_t>(next));
      CHECK(resized.process.live_blocks - failed.process.live_blocks == 1);
      CHECK(resized.thread.deallocations == failed.thread.deallocations);
      CHECK(resized.self.events == failed.self.events + 1);
      CHECK(is_one_death(resized, after, static_cast<std::int64_t>(next)));
    }
  }
}

TEST_CASE("what a realloc moved away from is foreign once it is handed out again past the hook") {
  using namespace family;
  const counts start;
  constexpr std::uint64_t times = 200;
  for (std::uint64_t i = 0; i < times; ++i) {
    const std::size_t n = 32 + i;
    void* p = launder(std::malloc(hidden(n)));
    p = launder(std::realloc(launder(p), hidden(300'000)));
    void* foreign = foreign_malloc(n + 16);
    std::free(launder(foreign));
    std::free(launder(p));
  }
  const counts after;
  CHECK(after.self.foreign_frees == start.self.foreign_frees + times);
  CHECK(after.thread.live_bytes == start.thread.live_bytes);
  CHECK(after.thread.deallocations == start.thread.deallocations + 2 * times);
}

TEST_CASE("blocks from before the allocator was found are safe with every function, and never counted") {
  using namespace family;
  auto& pool = tidemark::detail::hook::bootstrap;
  struct sizes {
    std::size_t was, is;
  };
  for (const sizes s : {sizes{100, 1'000}, sizes{100, 10}, sizes{0, 5}, sizes{200, 40'000'000}}) {
    void* p = launder(pool.allocate(s.was));
    REQUIRE(p != nullptr);
    paint(p, s.was, 4);
    const counts before;
    errno = marker;
    const std::size_t usable = ::malloc_usable_size(p);
    for (const free_form& freed : free_forms) {
      if (freed.free != by_realloc) freed.free(p, s.was, 16);
    }
    ::operator delete(launder(p));
    const bool keeps_errno = errno == marker;
    const counts freed;
    const bool is_kept = is_painted(p, s.was, 4, s.was);
    errno = 0;
    void* impossible = launder(std::realloc(launder(p), hidden(PTRDIFF_MAX - 16)));
    const int error = errno;
    const counts failed;
    void* q = launder(std::realloc(launder(p), hidden(s.is)));
    const counts moved;
    const bool is_moved = q != nullptr && q != p && is_painted(q, s.was, 4, s.was < s.is ? s.was : s.is);
    std::free(q);
    const counts after;
    CAPTURE(s.was);
    CAPTURE(s.is);
    CHECK(is_aligned(p, 16));
    CHECK(usable == s.was);
    CHECK(keeps_errno);
    CHECK(is_untouched(before, freed));
    CHECK(is_kept);
    CHECK(impossible == nullptr);
    CHECK(error == ENOMEM);
    CHECK(is_untouched(before, failed));
    CHECK(is_moved);
    CHECK(is_one_birth(failed, moved, static_cast<std::int64_t>(s.is)));
    CHECK(is_one_death(moved, after, static_cast<std::int64_t>(s.is)));
  }
  void* p = launder(pool.allocate(17));
  const counts before;
  void* gone = launder(std::realloc(launder(p), hidden(0)));
  const counts after;
  CHECK(gone == nullptr);
  CHECK(is_untouched(before, after));
}

TEST_CASE("a thread that begins with a block from before the allocator was found frees it as safely") {
  using namespace family;
  void* p = launder(tidemark::detail::hook::bootstrap.allocate(50));
  REQUIRE(p != nullptr);
  bool is_right = false;
  std::thread([&] {
    std::free(launder(p));
    const std::size_t usable = ::malloc_usable_size(p);
    const counts before;
    void* q = launder(::reallocarray(launder(p), hidden(7), hidden(9)));
    is_right = usable == 50 && is_one_birth(before, counts(), 63);
    std::free(q);
  }).join();
  CHECK(is_right);
}

#endif

// ---- threads, quiet, the C library ----

TEST_CASE("each function may be the first event of a thread: it counts, and leaves errno alone") {
  using namespace family;
  if (is_listening) return;  // a sanitizer allocates for a thread of its own accord
  for (const make_form& made : make_forms) {
    std::int64_t live_bytes = -1;
    std::int64_t live_blocks = -1;
    bool keeps_errno = false;
    std::thread([&] {
      errno = marker;
      void* p = made.make(hidden(1'000), 64);
      keeps_errno = errno == marker;
      const tidemark::usage u = *tidemark::thread_usage();
      live_bytes = u.live_bytes;
      live_blocks = u.live_blocks;
      std::free(p);
    }).join();
    INFO(doctest::String(made.name));
    CHECK(live_bytes == made.counted(1'000));
    CHECK(live_blocks == 1);
    CHECK(keeps_errno);
  }
  for (const free_form& freed : free_forms) {
    void* p = launder(std::malloc(1'000));
    std::int64_t live_bytes = 0;
    bool keeps_errno = false;
    std::thread([&] {
      errno = marker;
      freed.free(p, 1'000, 16);
      keeps_errno = errno == marker;
      live_bytes = tidemark::thread_usage()->live_bytes;
    }).join();
    INFO(doctest::String(freed.name));
    CHECK(live_bytes == -1'000);
    CHECK(keeps_errno);
  }
}

TEST_CASE("what is allocated inside quiet is never counted, whoever frees or resizes it and when") {
  using namespace family;
  if (is_listening) return;  // tested in sanitized.cpp
  const auto nothing_counted = [](const counts& a, const counts& b) {
    return is_same(a.thread, b.thread) && is_same(a.process, b.process) && a.self.events == b.self.events &&
           a.self.foreign_frees == b.self.foreign_frees;
  };
  std::size_t turn = 0;
  for (const std::size_t n : {0UL, 1UL, 100UL, 5'000UL, 200'000UL, 40'000'000UL}) {
    if (takes_too_long(n)) continue;
    for (const make_form& made : make_forms) {
      const free_form& freed = free_forms[turn++ % free_form_count];
      const counts before;
      void* blocks[3] = {};
      {
        const tidemark::quiet hidden_here;
        for (void*& p : blocks) p = made.make(hidden(n), 64);
        blocks[1] = launder(std::realloc(launder(blocks[1]), hidden(n + 1'000)));
        freed.free(blocks[0], n, 64);
      }
      const counts outside;
      freed.free(blocks[1], n + 1'000, 64);
      const counts after;
      // Here outside, the block that it becomes is counted.
      blocks[2] = launder(std::realloc(launder(blocks[2]), hidden(77)));
      const counts resized;
      std::free(blocks[2]);
      INFO(doctest::String(made.name));
      INFO(doctest::String(freed.name));
      CAPTURE(n);
      CHECK(nothing_counted(before, outside));
      if (freed.free != by_realloc || is_over_glibc()) CHECK(nothing_counted(before, after));
      CHECK(resized.thread.live_bytes - after.thread.live_bytes == 77);
      CHECK(resized.self.events - after.self.events == 1);
    }
  }
  void* given = nullptr;
  {
    const tidemark::quiet hidden_here;
    given = launder(std::calloc(10, 10));
  }
  bool is_nothing = false;
  std::thread([&] {
    const counts before;
    std::free(launder(given));
    is_nothing = nothing_counted(before, counts());
  }).join();
  CHECK(is_nothing);
}

TEST_CASE("a block counted at its birth is subtracted where quiet resizes or frees it") {
  using namespace family;
  if (is_listening) return;  // a sanitizer's realloc is its own
  void* p = launder(std::malloc(1'000));
  void* q = launder(std::malloc(500));
  const counts before;
  counts resized = before;
  counts freed = before;
  {
    const tidemark::quiet hidden_here;
    p = launder(std::realloc(launder(p), hidden(9'000)));
    resized = counts();
    std::free(launder(q));
    freed = counts();
  }
  std::free(launder(p));
  const counts after;
  CHECK(resized.thread.live_bytes - before.thread.live_bytes == -1'000);
  CHECK(resized.thread.allocations == before.thread.allocations);
  CHECK(freed.thread.live_bytes - resized.thread.live_bytes == -500);
  CHECK(is_same(freed.thread, after.thread));
}

TEST_CASE("what the C library allocates for its caller is seen, and free takes it off again") {
  using namespace family;
  if (TIDEMARK_HAS_SANITIZER_ALLOCATOR()) return;  // a sanitizer's strdup has a way of its own to its malloc
  const std::string text(hidden(1'000), 't');
  std::string lines = text + '\n' + text + text + '\n';

  const counts start;
  char* copy = launder(::strdup(text.c_str()));
  const counts copied;
  std::free(copy);
  const counts after_copy;

  char* printed = nullptr;
  const int length = ::asprintf(&printed, "%s %d", text.c_str(), 7);
  const counts after_print;
  std::free(launder(printed));
  const counts after_asprintf;

  char* memory = nullptr;
  std::size_t memory_bytes = 0;
  std::FILE* stream = ::open_memstream(&memory, &memory_bytes);
  for (int i = 0; i < 300; ++i) std::fputs(text.c_str(), stream);
  std::fclose(stream);
  const counts streamed;
  const std::size_t usable = ::malloc_usable_size(launder(memory));
  std::free(launder(memory));
  const counts after_stream;

  char* line = nullptr;
  std::size_t capacity = 0;
  std::FILE* file = ::fmemopen(lines.data(), lines.size(), "r");
  ssize_t longest = 0;
  for (ssize_t got = 0; got >= 0; got = ::getline(&line, &capacity, file)) longest = got > longest ? got : longest;
  std::fclose(file);
  const counts read;
  std::free(launder(line));
  const counts after_getline;

  constexpr std::size_t many = 100'000;
  void* numbers = launder(std::malloc(many * sizeof(int)));
  for (std::size_t i = 0; i < many; ++i) static_cast<int*>(numbers)[i] = static_cast<int>(i * 7'919 % many);
  const counts before_sort;
  std::qsort(numbers, many, sizeof(int),
             [](const void* a, const void* b) { return *static_cast<const int*>(a) - *static_cast<const int*>(b); });
  const counts after_sort;
  const bool is_sorted = static_cast<int*>(numbers)[many - 1] == static_cast<int>(many - 1);
  std::free(numbers);
  const counts end;

  CHECK(is_one_birth(start, copied, 1'001));
  CHECK(is_one_death(copied, after_copy, 1'001));
  CHECK(length == 1'002);
  CHECK(has_moved(after_copy, after_print, 1'003, 1));
  CHECK(has_moved(after_copy, after_asprintf, 0, 0));
  CHECK(memory_bytes == 300'000);
  CHECK(streamed.thread.live_bytes - after_asprintf.thread.live_bytes >= 300'001);
  CHECK(streamed.thread.live_blocks - after_asprintf.thread.live_blocks == 1);
  CHECK(usable >= 300'001);
  CHECK(has_moved(after_asprintf, after_stream, 0, 0));
  CHECK(longest == 2'001);
  CHECK(read.thread.live_blocks == after_stream.thread.live_blocks + 1);
  CHECK(read.thread.live_bytes - start.thread.live_bytes >= static_cast<std::int64_t>(capacity));
  CHECK(is_sorted);
  CHECK(has_moved(before_sort, after_sort, 0, 0));
#if defined(__GLIBC_PREREQ)
  #if !__GLIBC_PREREQ(2, 37)
  CHECK(after_sort.self.events == before_sort.self.events + 2);  // later ones sort in place
  #endif
#endif
  CHECK(has_moved(start, after_getline, 0, 0));
  CHECK(has_moved(start, end, 0, 0));
}

TEST_CASE("10,000 random operations over all functions agree at each step with a sum kept by hand") {
  using namespace family;
  if (is_listening) return;  // its realloc and its aligned functions count otherwise
  struct block {
    void* p = nullptr;
    std::size_t n = 0;
    std::int64_t counted = 0;
    unsigned char seed = 0;
  };
  constexpr std::size_t places = 128;
  block blocks[places];
  hooked::dice dice(7);
  const counts start;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  int wrong = 0;
  int spoiled = 0;
  for (int i = 0; i < 10'000; ++i) {
    block& b = blocks[dice.below(places)];
    const std::size_t n = dice.below(200) == 0  ? dice.below(40'000'000)
                          : dice.below(16) == 0 ? dice.below(300'000)
                                                : dice.below(600);
    const std::size_t alignment = std::size_t{16} << dice.below(9);
    const std::uint64_t action = dice.below(4);
    if (b.p == nullptr) {
      const make_form& made = make_forms[dice.below(make_form_count)];
      b = {made.make(n, alignment), n, made.counted(n), static_cast<unsigned char>(i)};
      bytes += b.counted;
      ++count;
      paint(b.p, n, b.seed);
    } else if (action == 0 && n > 0) {
      b.p = launder(std::realloc(launder(b.p), n));
      if (!is_painted(b.p, b.n, b.seed, b.n < n ? b.n : n)) ++spoiled;
      bytes += static_cast<std::int64_t>(n) - b.counted;
      b = {b.p, n, static_cast<std::int64_t>(n), static_cast<unsigned char>(i)};
      paint(b.p, n, b.seed);
    } else if (action == 1) {
      if (std::realloc(launder(b.p), hidden(PTRDIFF_MAX - 16)) != nullptr) ++spoiled;
      fill(b.p, ::malloc_usable_size(b.p), 'U');
      paint(b.p, b.n, b.seed);
    } else {
      if (!is_painted(b.p, b.n, b.seed, b.n)) ++spoiled;
      free_forms[dice.below(free_form_count)].free(b.p, b.n, 16);
      bytes -= b.counted;
      --count;
      b = {};
    }
    if (!has_moved(start, counts(), bytes, count)) ++wrong;
  }
  for (block& b : blocks) std::free(launder(b.p));
  const counts after;
  CHECK(wrong == 0);
  CHECK(spoiled == 0);
  CHECK(has_moved(start, after, 0, 0));
}
