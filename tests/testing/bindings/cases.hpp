// SPDX-License-Identifier: MIT
// Test cases that fail and pass on purpose, the same under each framework: bindings_check.py runs each and reads what it says.
// A program defines TEST_NAMED(name), CHECK_TRUE(x), FAIL_NOW() and includes its binding before.
#pragma once

#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace tidemark;  // beside gtest's ::testing

inline void take(std::size_t n) {
  void* p = ::operator new(n);
  escape(p);
  ::operator delete(p);
}
inline void leak(std::size_t n) { escape(::operator new(n)); }

template <class T>
struct box {
  T value;
};

// ---- these pass ----

TEST_NAMED(passes) {
  TIDEMARK_CHECK_PEAK(500, take(500));
  TIDEMARK_CHECK_NO_ALLOCATIONS();
  TIDEMARK_CHECK_ALLOCATIONS(2, take(1); take(2));
  TIDEMARK_CHECK_NO_LEAK(std::vector<int> v(10); escape(v.data()));
  TIDEMARK_CHECK_NO_GROWTH(10, take(100));
  TIDEMARK_CHECK_SURVIVES_ALLOCATION_FAILURES(std::map<int, std::string> m; m[1] = std::string(100, 'x'));
  TIDEMARK_CHECK_VERDICT(::tidemark::testing::no_leak([] { take(5); }, ::tidemark::testing::extent::process));
  TIDEMARK_REQUIRE_PEAK(500, take(500));
  TIDEMARK_REQUIRE_NO_ALLOCATIONS();
  TIDEMARK_REQUIRE_ALLOCATIONS(2u, take(1); take(2));
  TIDEMARK_REQUIRE_NO_LEAK(take(1));
  TIDEMARK_REQUIRE_NO_GROWTH(10, take(100));
  TIDEMARK_REQUIRE_SURVIVES_ALLOCATION_FAILURES(take(1));
  TIDEMARK_REQUIRE_VERDICT(::tidemark::testing::no_allocations([] {}));
}

TEST_NAMED(body_is_a_block) {
  int rounds = 0;
  TIDEMARK_CHECK_NO_GROWTH(10, if (++rounds % 2 == 0) continue; take(8));
  CHECK_TRUE(rounds == 30);
  TIDEMARK_CHECK_PEAK(64, {
    const auto [a, b] = std::pair<int, int>(1, 2);
    const box<std::pair<int, int>> c{{a, b}};
    CHECK_TRUE(c.value.first < c.value.second);
    const auto f = [&](int x, int y) { return x + y; };
    CHECK_TRUE(f(a, b) == 3);
  });
  if (rounds > 100) TIDEMARK_CHECK_NO_ALLOCATIONS(take(1));
  else
    TIDEMARK_CHECK_NO_ALLOCATIONS();
  for (int i = 0; i < 2; ++i) TIDEMARK_CHECK_ALLOCATIONS(1, take(1));
}

TEST_NAMED(nested_checks_count_nothing) {
  TIDEMARK_CHECK_NO_ALLOCATIONS(TIDEMARK_CHECK_PEAK(0, TIDEMARK_CHECK_NO_LEAK(););
                                TIDEMARK_CHECK_VERDICT(::tidemark::testing::no_allocations([] {})));
}

// ---- these fail ----

TEST_NAMED(peak_fails_and_goes_on) {
  TIDEMARK_CHECK_PEAK(1000, take(1500));
  FAIL_NOW("reached the end");
}
TEST_NAMED(require_ends_the_test) {
  TIDEMARK_REQUIRE_PEAK(1000, take(1500));
  FAIL_NOW("reached the end");
}
TEST_NAMED(allocates) { TIDEMARK_CHECK_NO_ALLOCATIONS(take(40); take(50)); }
TEST_NAMED(allocates_otherwise) { TIDEMARK_CHECK_ALLOCATIONS(3, take(40)); }
TEST_NAMED(leaks) { TIDEMARK_CHECK_NO_LEAK(leak(24)); }
TEST_NAMED(grows) { TIDEMARK_CHECK_NO_GROWTH(10, leak(8)); }
TEST_NAMED(does_not_survive) {
  TIDEMARK_CHECK_SURVIVES_ALLOCATION_FAILURES(int* first = new int(1); escape(first); int* second = new int(2);
                                              escape(second); delete first; delete second);
}
TEST_NAMED(verdict_fails) { TIDEMARK_CHECK_VERDICT(::tidemark::testing::no_allocations([] { take(7); })); }
TEST_NAMED(returns_out_of_the_body) {
  TIDEMARK_CHECK_PEAK(1000, take(1500); if (hook_state() != hook_kind::none) return );
  FAIL_NOW("reached the end");
}
TEST_NAMED(breaks_out_of_the_body) { TIDEMARK_CHECK_PEAK(1000, take(1500); break); }
TEST_NAMED(throws_out_of_the_body) { TIDEMARK_CHECK_PEAK(1000, take(600); throw std::runtime_error("thrown")); }
TEST_NAMED(lets_something_else_out) {
  TIDEMARK_CHECK_SURVIVES_ALLOCATION_FAILURES(try { take(1); } catch (const std::bad_alloc&) {
    throw std::runtime_error("translated");
  });
}
TEST_NAMED(inner_failure_is_not_the_outers) {
  TIDEMARK_CHECK_NO_ALLOCATIONS(TIDEMARK_CHECK_PEAK(0, TIDEMARK_CHECK_ALLOCATIONS(1, ;)));
}
TEST_NAMED(baseline_is_missing) { TIDEMARK_CHECK_BASELINE("no such entry", take(9)); }
