// SPDX-License-Identifier: MIT
// The macros that the bindings of all test frameworks share. A binding names its framework in `detail::checks::framework`, and in
// TIDEMARK_DETAIL_LEAVE_TEST what ends a test after a failed REQUIRE, where no exception does.
//
// The body is any statements, commas included, and runs as a plain block: `return` leaves the test, and the check is judged by
// what was done so far. An exception that leaves the body fails the check, is told with the figures, and goes on.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/reported_check.hpp>
#include <tidemark/testing/expect.hpp>

#define TIDEMARK_DETAIL_JOIN(a, b) TIDEMARK_DETAIL_JOIN_NOW(a, b)
#define TIDEMARK_DETAIL_JOIN_NOW(a, b) a##b

// A name of its own for each check: they nest.
#define TIDEMARK_DETAIL_CHECK(type, arguments, at_failure, is_fatal, ...)                                      \
  TIDEMARK_DETAIL_CHECK_NAMED(TIDEMARK_DETAIL_JOIN(tidemark_check_, __COUNTER__), type, arguments, at_failure, \
                              is_fatal, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_NAMED(name, type, arguments, at_failure, is_fatal, ...) \
  do {                                                                                \
    ::tidemark::detail::checks::reported_check<::tidemark::detail::checks::framework, \
                                               ::tidemark::detail::checks::type>      \
        name arguments;                                                               \
    while (name.next()) {                                                             \
      __VA_ARGS__;                                                                    \
    }                                                                                 \
    if (!name.report(is_fatal)) {                                                     \
      at_failure;                                                                     \
    }                                                                                 \
  } while (false)

#define TIDEMARK_DETAIL_FIGURE(figure, limit, text)                                            \
  (::tidemark::location::current(),                                                            \
   ::tidemark::detail::checks::expectation{::tidemark::detail::checks::figure,                 \
                                           ::tidemark::detail::checks::limit_of(limit), text}, \
   ::tidemark::testing::extent::thread)
#define TIDEMARK_DETAIL_ROUNDS(rounds)                                                                                 \
  (::tidemark::location::current(), ::tidemark::testing::growth_options{::tidemark::detail::checks::limit_of(rounds)}, \
   ::tidemark::testing::extent::thread)

#if TIDEMARK_HAS_EXCEPTIONS()
  #define TIDEMARK_DETAIL_RUNS_NAMED(name, at_failure, is_fatal, ...)                      \
    do {                                                                                   \
      ::tidemark::detail::checks::reported_check<::tidemark::detail::checks::framework,    \
                                                 ::tidemark::detail::checks::failure_runs> \
          name(::tidemark::location::current(), ::tidemark::testing::extent::thread);      \
      while (name.next()) {                                                                \
        try {                                                                              \
          __VA_ARGS__;                                                                     \
        } catch (...) {                                                                    \
          if (!name.keeps_exception()) throw;                                              \
        }                                                                                  \
      }                                                                                    \
      if (!name.report(is_fatal)) {                                                        \
        at_failure;                                                                        \
      }                                                                                    \
    } while (false)
#else
  #define TIDEMARK_DETAIL_RUNS_NAMED(name, at_failure, is_fatal, ...)                                               \
    TIDEMARK_DETAIL_CHECK_NAMED(name, failure_runs,                                                                 \
                                (::tidemark::location::current(), ::tidemark::testing::extent::thread), at_failure, \
                                is_fatal, __VA_ARGS__)
#endif
#define TIDEMARK_DETAIL_RUNS(at_failure, is_fatal, ...) \
  TIDEMARK_DETAIL_RUNS_NAMED(TIDEMARK_DETAIL_JOIN(tidemark_check_, __COUNTER__), at_failure, is_fatal, __VA_ARGS__)

// ---- CHECK: a failure is told, and the test goes on ----

/// The live bytes of this thread rise at most `limit` bytes above what was live before the body.
#define TIDEMARK_CHECK_PEAK(limit, ...)                                                                            \
  TIDEMARK_DETAIL_CHECK(figure_check, TIDEMARK_DETAIL_FIGURE(figure::peak_growth, limit, "TIDEMARK_CHECK_PEAK"), , \
                        false, __VA_ARGS__)
/// The body allocates nothing.
#define TIDEMARK_CHECK_NO_ALLOCATIONS(...)                                                                         \
  TIDEMARK_DETAIL_CHECK(figure_check,                                                                              \
                        TIDEMARK_DETAIL_FIGURE(figure::allocations_at_most, 0, "TIDEMARK_CHECK_NO_ALLOCATIONS"), , \
                        false, __VA_ARGS__)
/// The body allocates exactly `n` blocks.
#define TIDEMARK_CHECK_ALLOCATIONS(n, ...)                                                                             \
  TIDEMARK_DETAIL_CHECK(figure_check,                                                                                  \
                        TIDEMARK_DETAIL_FIGURE(figure::allocations_exactly, n, "TIDEMARK_CHECK_ALLOCATIONS"), , false, \
                        __VA_ARGS__)
/// The body runs twice, and the second time leaves as many blocks and bytes as it found.
#define TIDEMARK_CHECK_NO_LEAK(...)                                                                               \
  TIDEMARK_DETAIL_CHECK(figure_check, TIDEMARK_DETAIL_FIGURE(figure::left_behind, 0, "TIDEMARK_CHECK_NO_LEAK"), , \
                        false, __VA_ARGS__)
/// What the body leaves behind stops growing: 20 rounds to warm up, `rounds` that are judged, and more where it grows.
#define TIDEMARK_CHECK_NO_GROWTH(rounds, ...) \
  TIDEMARK_DETAIL_CHECK(growth_check, TIDEMARK_DETAIL_ROUNDS(rounds), , false, __VA_ARGS__)
/// The body runs again and again, with another of its allocations failing each time; see for_each_allocation_failure().
#define TIDEMARK_CHECK_SURVIVES_ALLOCATION_FAILURES(...) TIDEMARK_DETAIL_RUNS(, false, __VA_ARGS__)
/// A verdict of tidemark::testing, for what the others do not say: `TIDEMARK_CHECK_VERDICT(no_leak(f, extent::process))`.
#define TIDEMARK_CHECK_VERDICT(...) \
  static_cast<void>(                \
      ::tidemark::detail::checks::report_verdict<::tidemark::detail::checks::framework>(__VA_ARGS__, false))

// ---- REQUIRE: a failure ends the test ----

#define TIDEMARK_REQUIRE_PEAK(limit, ...)                                                                          \
  TIDEMARK_DETAIL_CHECK(figure_check, TIDEMARK_DETAIL_FIGURE(figure::peak_growth, limit, "TIDEMARK_REQUIRE_PEAK"), \
                        TIDEMARK_DETAIL_LEAVE_TEST, true, __VA_ARGS__)
#define TIDEMARK_REQUIRE_NO_ALLOCATIONS(...)                                                                       \
  TIDEMARK_DETAIL_CHECK(figure_check,                                                                              \
                        TIDEMARK_DETAIL_FIGURE(figure::allocations_at_most, 0, "TIDEMARK_REQUIRE_NO_ALLOCATIONS"), \
                        TIDEMARK_DETAIL_LEAVE_TEST, true, __VA_ARGS__)
#define TIDEMARK_REQUIRE_ALLOCATIONS(n, ...)                                                                    \
  TIDEMARK_DETAIL_CHECK(figure_check,                                                                           \
                        TIDEMARK_DETAIL_FIGURE(figure::allocations_exactly, n, "TIDEMARK_REQUIRE_ALLOCATIONS"), \
                        TIDEMARK_DETAIL_LEAVE_TEST, true, __VA_ARGS__)
#define TIDEMARK_REQUIRE_NO_LEAK(...)                                                                             \
  TIDEMARK_DETAIL_CHECK(figure_check, TIDEMARK_DETAIL_FIGURE(figure::left_behind, 0, "TIDEMARK_REQUIRE_NO_LEAK"), \
                        TIDEMARK_DETAIL_LEAVE_TEST, true, __VA_ARGS__)
#define TIDEMARK_REQUIRE_NO_GROWTH(rounds, ...) \
  TIDEMARK_DETAIL_CHECK(growth_check, TIDEMARK_DETAIL_ROUNDS(rounds), TIDEMARK_DETAIL_LEAVE_TEST, true, __VA_ARGS__)
#define TIDEMARK_REQUIRE_SURVIVES_ALLOCATION_FAILURES(...) \
  TIDEMARK_DETAIL_RUNS(TIDEMARK_DETAIL_LEAVE_TEST, true, __VA_ARGS__)
#define TIDEMARK_REQUIRE_VERDICT(...)                                                                            \
  do {                                                                                                           \
    if (!::tidemark::detail::checks::report_verdict<::tidemark::detail::checks::framework>(__VA_ARGS__, true)) { \
      TIDEMARK_DETAIL_LEAVE_TEST;                                                                                \
    }                                                                                                            \
  } while (false)
