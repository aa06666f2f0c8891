// SPDX-License-Identifier: MIT
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <tidemark/testing/doctest.hpp>

#if !defined(WITHOUT_HOOK)
  #include <tidemark/hook/global_new.hpp>
#endif

#define TEST_NAMED(name) TEST_CASE(#name)
#define CHECK_TRUE(...) CHECK(__VA_ARGS__)
#define FAIL_NOW(text) FAIL(text)
#include "cases.hpp"

// A test's helper that returns something: a failed REQUIRE throws.
static int checked() {
  TIDEMARK_REQUIRE_PEAK(10, take(10));
  return 7;
}
TEST_CASE("in_a_function") { CHECK(checked() == 7); }
