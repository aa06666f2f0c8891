// SPDX-License-Identifier: MIT
// The tests of guards.hpp for every function of the C family too, and what only a realloc and a calloc do.
#include <tidemark/hook/malloc.hpp>

#if TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // which cannot refuse; tested in sanitized_guards.cpp
  #include "test.hpp"
TEST_CASE("under a listening hook nothing can be refused") {
  CHECK(tidemark::hook_state() == tidemark::hook_kind::sanitizer);
}
#else

  #include "guards.hpp"

TEST_CASE("a region is told of a realloc by its new size, whether it grows or shrinks, and of no realloc that frees") {
  void* p = launder(std::malloc(hidden(100)));
  std::uint64_t numbers[3] = {};
  std::uint64_t bytes[3] = {};
  {
    const t::no_allocation_region region;
    const auto note = [&](int i) {
      numbers[i] = region.allocations();
      bytes[i] = region.allocated_bytes();
    };
    p = resize(p, 1'000);
    note(0);
    p = resize(p, 10);
    note(1);
    static_cast<void>(resize(p, 0));
    note(2);
  }
  CHECK(numbers[0] == 1);
  CHECK(bytes[0] == 1'000);
  CHECK(numbers[1] == 2);
  CHECK(bytes[1] == 1'010);
  CHECK(numbers[2] == 2);
}

TEST_CASE("a region is not told of what can never be allocated for its count overflows") {
  std::uint64_t told_of = 9;
  {
    const t::no_allocation_region region;
    static_cast<void>(launder(std::calloc(hidden(SIZE_MAX / 2), hidden(3))));
    static_cast<void>(launder(::reallocarray(nullptr, hidden(SIZE_MAX / 2), hidden(3))));
    told_of = region.allocations();
  }
  CHECK(told_of == 0);
}

TEST_CASE("a realloc that grows needs room for the difference alone, and one that is refused leaves the block") {
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    void* p = launder(std::malloc(hidden(1'000)));
    hooked::fill(p, 1'000, 'x');
    bool steps[6] = {};
    const tidemark::usage before = thread_now();
    {
      const t::heap_limit limit(500, over);
      errno = 0;
      steps[0] = resize(p, 1'501) == nullptr && errno == ENOMEM && hooked::is_filled(p, 1'000, 'x');
      steps[1] = is_same(before, thread_now()) && limit.refusals() == 1;
      void* q = resize(p, 1'500);
      steps[2] = q != nullptr && hooked::is_filled(q, 1'000, 'x');
      steps[3] = !can_take(1) && resize(q, 1'501) == nullptr && launder(::reallocarray(q, 3, 501)) == nullptr;
      void* s = resize(q, 200);
      steps[4] = s != nullptr && can_take(1'300) && !can_take(1'301);
      steps[5] = (p = resize(s, 1'500)) != nullptr;
    }
    std::free(p);
    for (const bool holds : steps) CHECK(holds);
  }
}

TEST_CASE("a realloc that shrinks or keeps the size passes above a limit that is full") {
  void* p = launder(std::malloc(hidden(1'000)));
  bool steps[3] = {};
  {
    const t::heap_limit limit(0);
    const t::heap_limit limit_of_all(0, t::extent::process);
    steps[0] = (p = resize(p, 1'000)) != nullptr;
    steps[1] = (p = resize(p, 999)) != nullptr;
    steps[2] = resize(p, 1'001) == nullptr && limit.refusals() == 1;
  }
  std::free(p);
  for (const bool holds : steps) CHECK(holds);
}

TEST_CASE("a block that no limit counted needs room for all of itself when it is resized") {
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    for (const bool is_foreign : {false, true}) {
      void* p = nullptr;
      if (is_foreign) {
        p = hooked::foreign_malloc(1'000);
        hooked::fill(p, ::malloc_usable_size(p), 'Z');  // passes no check
      } else {
        const tidemark::quiet hidden_here;
        p = launder(std::malloc(hidden(1'000)));
      }
      bool is_refused = false;
      std::int64_t growth = -1;
      void* q = nullptr;
      {
        const t::heap_limit limit(500, over);
        const std::int64_t before = thread_now().live_bytes;
        q = resize(p, 700);
        is_refused = q == nullptr;
        growth = thread_now().live_bytes - before;
      }
      std::free(is_refused ? p : q);
      CAPTURE(is_foreign);
      CHECK(growth <= 500);
      CHECK(is_refused);
    }
  }
}

TEST_CASE("a block of another thread makes the room on this one that it takes away in a realloc") {
  helper other;
  void* p = nullptr;
  other.run_there([&] { p = launder(std::malloc(hidden(1'000))); });
  bool steps[2] = {};
  {
    const t::heap_limit limit(100);
    steps[0] = resize(p, 1'101) == nullptr;
    void* q = resize(p, 1'100);
    steps[1] = q != nullptr;
    if (q != nullptr) p = q;
  }
  std::free(p);
  CHECK(steps[0]);
  CHECK(steps[1]);
}

TEST_CASE("a count that overflows fails as ever, and is no limit's refusal") {
  std::uint64_t refusals = 9;
  bool steps[2] = {};
  {
    const t::heap_limit limit(1'000);
    errno = 0;
    steps[0] = launder(std::calloc(hidden(SIZE_MAX / 2), hidden(3))) == nullptr && errno == ENOMEM;
    errno = 0;
    steps[1] = launder(::reallocarray(nullptr, hidden(SIZE_MAX / 2), hidden(3))) == nullptr && errno == ENOMEM;
    refusals = limit.refusals();
  }
  CHECK(steps[0]);
  CHECK(steps[1]);
  CHECK(refusals == 0);
}

TEST_CASE("calloc under a limit gives zeros") {
  bool is_zero = false;
  for (int i = 0; i < 20; ++i) {
    void* dirty = launder(std::malloc(hidden(1'000)));
    hooked::fill(dirty, 1'000, 'x');
    std::free(dirty);
    const t::heap_limit limit(1'000);
    void* p = launder(std::calloc(hidden(10), hidden(100)));
    is_zero = p != nullptr && hooked::is_filled(p, 1'000, 0);
    std::free(p);
    if (!is_zero) break;
  }
  CHECK(is_zero);
}

#endif
