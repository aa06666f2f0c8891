// SPDX-License-Identifier: MIT
// Checks of what a call does to memory, for any test framework: each runs a callable and returns a verdict.
//
//   auto v = tidemark::testing::peak_at_most(64_MiB, [&] { model.forward(batch); });
//   if (!v) std::fputs(v.message.c_str(), stderr);
//
// The bindings (testing/doctest.hpp, gtest.hpp, catch2.hpp) have macros for the same. docs/testing.md is the guide.
#pragma once

#include <cstdint>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/figure_check.hpp>
#include <tidemark/testing/detail/growth_check.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/faults.hpp>
#include <tidemark/testing/guards.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {
inline namespace TIDEMARK_TAG {

// What holds for all of them. `f` is called on this thread, without arguments; what it returns is dropped before the
// exit is read. An exception of f passes through. Without a heap hook, in `quiet`, or where a figure cannot be had, f
// runs and the verdict is not ok and says why; with a domain as extent no hook is needed. A compiler may delete an
// allocation that nothing else uses: see tidemark::escape(). Checks nest, and count nothing of their own.
// Units: bytes as requested. Throws: std::invalid_argument for a negative limit; what f throws. Threads: any.
// Cost: as a scope; the message is made in `quiet`.

/// The live bytes never rise more than that above what was live at the entry. With several threads in the extent, the
/// error bound is held against the check: it holds only where the true peak must be low enough.
template <class F>
verdict peak_at_most(std::int64_t bytes, F&& f, extent over = extent::thread, location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::peak_growth, bytes, "peak_at_most"}, over, where);
  return detail::checks::verdict_of(run, f);
}

/// Nothing is allocated. Freeing is no allocation; a realloc is one.
template <class F>
verdict no_allocations(F&& f, extent over = extent::thread, location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::allocations_at_most, 0, "no_allocations"}, over, where);
  return detail::checks::verdict_of(run, f);
}

/// That many blocks are allocated, freed again or not.
template <class F>
verdict allocations_exactly(std::int64_t n, F&& f, extent over = extent::thread, location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::allocations_exactly, n, "allocations_exactly"}, over,
                                   where);
  return detail::checks::verdict_of(run, f);
}

template <class F>
verdict allocations_at_most(std::int64_t n, F&& f, extent over = extent::thread, location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::allocations_at_most, n, "allocations_at_most"}, over,
                                   where);
  return detail::checks::verdict_of(run, f);
}

/// The sizes of all blocks that are allocated, freed again or not, come to at most that.
template <class F>
verdict allocated_bytes_at_most(std::int64_t bytes, F&& f, extent over = extent::thread,
                                location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::allocated_bytes, bytes, "allocated_bytes_at_most"}, over,
                                   where);
  return detail::checks::verdict_of(run, f);
}

/// f runs twice: once to make what is made only once, and then it must leave as many blocks and bytes as it found. Over
/// a thread, what another thread frees of its blocks seems left behind: take the process or a task.
template <class F>
verdict no_leak(F&& f, extent over = extent::thread, location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::left_behind, 0, "no_leak"}, over, where);
  return detail::checks::verdict_of(run, f);
}

/// What f leaves behind stops growing. After the warm-up, a stretch of rounds is judged: a rise from its first to its
/// last round, or, where the level goes up and down, a slope that stands out of the scatter. A stretch that grows is
/// followed by another that is as long as all rounds so far, four at the most: a cache that fills once passes, a leak
/// of 8 bytes a round fails, and so does a vector that begins empty. Not seen is what grows in steps further apart than
/// the rounds, and a leak that is small beside what fills and empties. f runs `warm_up + repetitions` times, and up to
/// 8 times as often where it grows.
/// Throws: also `std::invalid_argument` for less than one repetition, and for negative options.
template <class F>
verdict no_growth(F&& f, growth_options options = {}, extent over = extent::thread,
                  location where = location::current()) {
  detail::checks::growth_check run(options, over, where);
  return detail::checks::verdict_of(run, f);
}

/// The resident set of the process, at its peak as far as that is known, rises at most that much. It is what the system
/// charges, in pages and for all threads, whatever the extent: give it room for noise. A peak below an earlier one of
/// the process is not seen unless allow_peak_resident_reset(true) was called. Needs no heap hook.
template <class F>
verdict resident_growth_at_most(std::int64_t bytes, F&& f, extent over = extent::process,
                                location where = location::current()) {
  detail::checks::figure_check run({detail::checks::figure::resident_growth, bytes, "resident_growth_at_most"}, over,
                                   where);
  return detail::checks::verdict_of(run, f);
}

}  // namespace TIDEMARK_TAG
}  // namespace testing
}  // namespace v0
}  // namespace tidemark
