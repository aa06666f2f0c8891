// SPDX-License-Identifier: MIT
// The macros that the bindings of all test frameworks share. A binding names its framework in
// `detail::checks::framework`, and in TIDEMARK_DETAIL_LEAVE_TEST what ends a test after a failed REQUIRE, where no
// exception does.
//
// The body is any statements, commas included, and runs as a plain block: `return` leaves the test, and the check is
// judged by what was done so far. An exception that leaves the body fails the check, is told with the figures, and goes
// on. Every figure is this thread's; for another extent there are the functions of testing/expect.hpp and
// TIDEMARK_CHECK_VERDICT. A REQUIRE form is as the CHECK form beside it, and ends the test where it fails.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/baseline.hpp>
#include <tidemark/testing/detail/reported_check.hpp>
#include <tidemark/testing/expect.hpp>

/// The live bytes rise at most `limit` bytes above what was live before the body.
#define TIDEMARK_CHECK_PEAK(limit, ...) TIDEMARK_DETAIL_CHECK_PEAK(CHECK, limit, __VA_ARGS__)
#define TIDEMARK_REQUIRE_PEAK(limit, ...) TIDEMARK_DETAIL_CHECK_PEAK(REQUIRE, limit, __VA_ARGS__)

/// The body allocates nothing.
#define TIDEMARK_CHECK_NO_ALLOCATIONS(...) TIDEMARK_DETAIL_CHECK_NO_ALLOCATIONS(CHECK, __VA_ARGS__)
#define TIDEMARK_REQUIRE_NO_ALLOCATIONS(...) TIDEMARK_DETAIL_CHECK_NO_ALLOCATIONS(REQUIRE, __VA_ARGS__)

/// The body allocates exactly `n` blocks.
#define TIDEMARK_CHECK_ALLOCATIONS(n, ...) TIDEMARK_DETAIL_CHECK_ALLOCATIONS(CHECK, n, __VA_ARGS__)
#define TIDEMARK_REQUIRE_ALLOCATIONS(n, ...) TIDEMARK_DETAIL_CHECK_ALLOCATIONS(REQUIRE, n, __VA_ARGS__)

/// The body runs twice, and the second time leaves as many blocks and bytes as it found.
#define TIDEMARK_CHECK_NO_LEAK(...) TIDEMARK_DETAIL_CHECK_NO_LEAK(CHECK, __VA_ARGS__)
#define TIDEMARK_REQUIRE_NO_LEAK(...) TIDEMARK_DETAIL_CHECK_NO_LEAK(REQUIRE, __VA_ARGS__)

/// What the body leaves behind stops growing: 20 rounds to warm up, `rounds` that are judged, and more where it grows.
#define TIDEMARK_CHECK_NO_GROWTH(rounds, ...) TIDEMARK_DETAIL_CHECK_NO_GROWTH(CHECK, rounds, __VA_ARGS__)
#define TIDEMARK_REQUIRE_NO_GROWTH(rounds, ...) TIDEMARK_DETAIL_CHECK_NO_GROWTH(REQUIRE, rounds, __VA_ARGS__)

/// The body runs again and again, with another of its allocations failing each time; see for_each_allocation_failure().
#define TIDEMARK_CHECK_SURVIVES_ALLOCATION_FAILURES(...) TIDEMARK_DETAIL_CHECK_SURVIVES(CHECK, __VA_ARGS__)
#define TIDEMARK_REQUIRE_SURVIVES_ALLOCATION_FAILURES(...) TIDEMARK_DETAIL_CHECK_SURVIVES(REQUIRE, __VA_ARGS__)

/// The body runs twice, and the second time takes what the baseline of that name says; see testing/baseline.hpp.
#define TIDEMARK_CHECK_BASELINE(name, ...) TIDEMARK_DETAIL_CHECK_BASELINE(CHECK, name, __VA_ARGS__)
#define TIDEMARK_REQUIRE_BASELINE(name, ...) TIDEMARK_DETAIL_CHECK_BASELINE(REQUIRE, name, __VA_ARGS__)

/// A verdict of tidemark::testing: `TIDEMARK_CHECK_VERDICT(no_leak(f, extent::process))`.
#define TIDEMARK_CHECK_VERDICT(...) TIDEMARK_DETAIL_CHECK_VERDICT(CHECK, __VA_ARGS__)
#define TIDEMARK_REQUIRE_VERDICT(...) TIDEMARK_DETAIL_CHECK_VERDICT(REQUIRE, __VA_ARGS__)

// ---- what they are made of ----

#define TIDEMARK_DETAIL_CHECK_IS_FATAL_CHECK false
#define TIDEMARK_DETAIL_CHECK_IS_FATAL_REQUIRE true
#define TIDEMARK_DETAIL_CHECK_AFTER_CHECK
#define TIDEMARK_DETAIL_CHECK_AFTER_REQUIRE TIDEMARK_DETAIL_LEAVE_TEST

// A name of its own for each check: they nest.
#define TIDEMARK_DETAIL_CHECK_RUN(kind, type, arguments, block, ...) \
  TIDEMARK_DETAIL_CHECK_NAMED(TIDEMARK_DETAIL_JOIN(tidemark_check_, __COUNTER__), kind, type, arguments, block, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_NAMED(name, kind, type, arguments, block, ...)          \
  do {                                                                                \
    ::tidemark::detail::checks::reported_check<::tidemark::detail::checks::framework, \
                                               ::tidemark::detail::checks::type>      \
        name arguments;                                                               \
    while (name.next()) block(name, __VA_ARGS__)                                      \
    if (!name.report(TIDEMARK_DETAIL_CHECK_IS_FATAL_##kind)) {                        \
      TIDEMARK_DETAIL_CHECK_AFTER_##kind;                                             \
    }                                                                                 \
  } while (false)
#define TIDEMARK_DETAIL_CHECK_BLOCK(name, ...) \
  {                                            \
    __VA_ARGS__;                               \
  }
#if TIDEMARK_HAS_EXCEPTIONS()
  #define TIDEMARK_DETAIL_CHECK_BLOCK_THAT_MAY_FAIL(name, ...) \
    {                                                          \
      try {                                                    \
        __VA_ARGS__;                                           \
      } catch (...) {                                          \
        if (!name.keeps_exception()) throw;                    \
      }                                                        \
    }
#else
  #define TIDEMARK_DETAIL_CHECK_BLOCK_THAT_MAY_FAIL TIDEMARK_DETAIL_CHECK_BLOCK
#endif

#define TIDEMARK_DETAIL_CHECK_FIGURE(kind, name, figure, limit, ...)                                          \
  TIDEMARK_DETAIL_CHECK_RUN(kind, figure_check,                                                               \
                            (::tidemark::location::current(),                                                 \
                             ::tidemark::detail::checks::expected("TIDEMARK_" #kind "_" name,                 \
                                                                  ::tidemark::detail::checks::figure, limit), \
                             ::tidemark::testing::extent::thread),                                            \
                            TIDEMARK_DETAIL_CHECK_BLOCK, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_PEAK(kind, limit, ...) \
  TIDEMARK_DETAIL_CHECK_FIGURE(kind, "PEAK", figure::peak_growth, limit, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_NO_ALLOCATIONS(kind, ...) \
  TIDEMARK_DETAIL_CHECK_FIGURE(kind, "NO_ALLOCATIONS", figure::allocations_at_most, 0, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_ALLOCATIONS(kind, n, ...) \
  TIDEMARK_DETAIL_CHECK_FIGURE(kind, "ALLOCATIONS", figure::allocations_exactly, n, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_NO_LEAK(kind, ...) \
  TIDEMARK_DETAIL_CHECK_FIGURE(kind, "NO_LEAK", figure::left_behind, 0, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_NO_GROWTH(kind, rounds, ...)                                                      \
  TIDEMARK_DETAIL_CHECK_RUN(kind, growth_check,                                                                 \
                            (::tidemark::location::current(),                                                   \
                             ::tidemark::testing::growth_options{::tidemark::detail::checks::limit_of(rounds)}, \
                             ::tidemark::testing::extent::thread),                                              \
                            TIDEMARK_DETAIL_CHECK_BLOCK, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_SURVIVES(kind, ...)                                                   \
  TIDEMARK_DETAIL_CHECK_RUN(kind, failure_runs,                                                     \
                            (::tidemark::location::current(), ::tidemark::testing::extent::thread), \
                            TIDEMARK_DETAIL_CHECK_BLOCK_THAT_MAY_FAIL, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_BASELINE(kind, name, ...)                                                      \
  TIDEMARK_DETAIL_CHECK_RUN(kind, baseline_check,                                                            \
                            (::tidemark::location::current(), name, ::tidemark::testing::baseline_options{}, \
                             ::tidemark::testing::extent::thread),                                           \
                            TIDEMARK_DETAIL_CHECK_BLOCK, __VA_ARGS__)
#define TIDEMARK_DETAIL_CHECK_VERDICT(kind, ...)                                                                   \
  do {                                                                                                             \
    const bool tidemark_holds = ::tidemark::detail::checks::report_verdict<::tidemark::detail::checks::framework>( \
        __VA_ARGS__, TIDEMARK_DETAIL_CHECK_IS_FATAL_##kind);                                                       \
    if (!tidemark_holds) {                                                                                         \
      TIDEMARK_DETAIL_CHECK_AFTER_##kind;                                                                          \
    }                                                                                                              \
  } while (false)
