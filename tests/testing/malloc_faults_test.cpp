// SPDX-License-Identifier: MIT
// The tests of faults.hpp for every function of the C family too, with the same numbers, and what only a realloc does.
#include <tidemark/hook/malloc.hpp>

#if TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // which cannot refuse; tested in sanitized_guards.cpp
  #include "test.hpp"
TEST_CASE("under a listening hook nothing can be refused") {
  CHECK(tidemark::hook_state() == tidemark::hook_kind::sanitizer);
}
#else

  #include "faults.hpp"

  #include <cerrno>
  #include <cstdlib>
  #include <cstring>

namespace {

void* resize(void* p, std::size_t n) { return launder(std::realloc(launder(p), hidden(n))); }

/// Two strings in one, in C's way; null where memory is out.
char* joined(const char* a, const char* b, bool is_careful) {
  auto* whole = static_cast<char*>(launder(std::malloc(hidden(std::strlen(a) + 1))));
  if (whole == nullptr) return nullptr;
  std::strcpy(whole, a);
  auto* longer = static_cast<char*>(resize(whole, std::strlen(a) + std::strlen(b) + 1));
  if (longer == nullptr) {
    if (is_careful) std::free(whole);
    return nullptr;
  }
  return std::strcat(longer, b);
}

}  // namespace

TEST_CASE(
    "a realloc is counted whether it grows or shrinks, fails as malloc does, and leaves the block; one to nothing "
    "frees") {
  for (const std::size_t next : {10UL, 1'000UL, 5'000UL}) {
    void* p = launder(std::malloc(hidden(1'000)));
    hooked::fill(p, 1'000, 'x');
    bool steps[3] = {};
    std::uint64_t requests = 0;
    {
      const t::fail_allocation fault(1);
      errno = 0;
      steps[0] = resize(p, next) == nullptr && errno == ENOMEM && fault.failed_bytes() == next;
      steps[1] = hooked::is_filled(p, 1'000, 'x');
      void* q = resize(p, next);
      steps[2] = q != nullptr && hooked::is_filled(q, next < 1'000 ? next : 1'000, 'x');
      static_cast<void>(resize(q, 0));
      requests = fault.requests();
    }
    for (const bool holds : steps) CHECK(holds);
    CHECK(requests == 2);
  }
}

TEST_CASE("counts that overflow fail before they are counted") {
  std::uint64_t requests = 9;
  {
    const t::fail_allocation fault(1);
    static_cast<void>(launder(std::calloc(hidden(SIZE_MAX / 2), hidden(3))));
    static_cast<void>(launder(::reallocarray(nullptr, hidden(SIZE_MAX / 2), hidden(3))));
    requests = fault.requests();
  }
  CHECK(requests == 0);
}

TEST_CASE("a C function that checks for null survives, and one that forgets to free is found") {
  const auto run = [](bool is_careful) {
    return t::for_each_allocation_failure([is_careful] { std::free(joined("from here ", "to there", is_careful)); });
  };
  const t::failure_report careful = run(true);
  INFO(careful.message);
  CHECK(careful.ok);
  CHECK(careful.points == 2);
  const t::failure_report careless_one = run(false);
  CHECK_FALSE(careless_one.ok);
  CHECK(careless_one.number == 2);
  CHECK(careless_one.bytes == 19);
  CHECK(says(careless_one, "11 bytes"));
}

TEST_CASE("what the C library allocates for its caller fails, and is counted") {
  const t::failure_report r = t::for_each_allocation_failure([] {
    char* copy = launder(::strdup("a text"));
    std::free(copy);
  });
  CHECK(r.ok);
  CHECK(r.points == 1);
}

#endif
