// SPDX-License-Identifier: MIT
// Allocations that fail on purpose: one that the test names, or each in turn, so that every way out of a function is
// tried.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/detail/os_exception.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/failure_runs.hpp>
#include <tidemark/testing/detail/fault.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {
inline namespace TIDEMARK_TAG {

/// While one is open, of the allocations of this thread the `nth` from now on fails (1 is the next), and the `count -
/// 1` that follow it: `new` throws `std::bad_alloc`, `malloc` returns null with ENOMEM. One allocation through several
/// layers (a resource over a tracked allocator over `new`) is one; what `quiet` hides, and the memory of exception
/// objects, is none. Where a new-handler makes room, the second try succeeds.
/// Over a domain only what its tracked allocators and resources, and those of the domains inside it, allocate is
/// counted and fails; that needs no hook. Over the process or a task there is no order to count in:
/// `std::invalid_argument`. If std::terminate is called meanwhile, what failed is said on the standard error.
/// Threads: opened and closed on one thread. Throws: `std::invalid_argument` for a number below 1; `std::logic_error`
/// inside another one, without a hook, and with a sanitizer's, which cannot refuse. Cost: about 250 instructions more
/// for each allocation meanwhile; 2 us for a call of malloc, to see whether it makes an exception object.
class [[nodiscard]] fail_allocation {
 public:
  explicit fail_allocation(std::int64_t nth, std::int64_t count = 1, [[maybe_unused]] extent over = extent::thread) {
    if (nth < 1 || count < 1) {
      detail::raise_invalid_argument(
          "tidemark::testing::fail_allocation: allocations are counted from 1, and at least 1 fails");
    }
#if !TIDEMARK_OPT_DISABLE
    fault_.open(static_cast<std::uint64_t>(nth), static_cast<std::uint64_t>(count), over);
#endif
  }

  /// How many allocations came by so far, those that failed included.
  [[nodiscard]] std::uint64_t requests() const noexcept { return fault_.requests(); }
  /// How many of them failed.
  [[nodiscard]] std::uint64_t failures() const noexcept { return fault_.failures(); }
  /// The size of the first that failed, in bytes as asked for; 0: none has.
  [[nodiscard]] std::uint64_t failed_bytes() const noexcept { return fault_.failed_bytes(); }

 private:
  detail::checks::fault fault_;
};

/// What `for_each_allocation_failure` found.
struct [[nodiscard]] failure_report : verdict {
  std::uint64_t points = 0;  ///< allocations that were made to fail, one in each run
  std::uint64_t number = 0;  ///< of the first that f did not survive, counted from 1; 0: it survived all
  std::uint64_t bytes = 0;   ///< its size
};

/// Runs `f` once undisturbed, then again and again with its 1st, 2nd, ... allocation failing, until it has none left to
/// fail. The verdict names the first failure after which f let anything but `std::bad_alloc` out, left more blocks or
/// bytes behind than it found (twice in a row, since what is made once, at the first failure, is no leak), or broke
/// `holds`, which is called after every run, with nothing failing, and returns whether what it checks is as it should
/// be. Blocks from before that f frees are not its leak, and could hide one.
/// f must start from the same state each time: where its first run alone allocates, nothing was tried, and it does not
/// pass. A failure that something below it swallows (a stream, std::stable_sort)
/// is no fault. What counts as an allocation: see `fail_allocation`. Without exceptions f must allocate by what returns
/// null.
/// Throws: what f throws undisturbed; `std::logic_error` inside a `fail_allocation`. Cost: as many runs as f has
/// allocations, and two.
template <class F, class Holds, class = std::enable_if_t<std::is_invocable_r_v<bool, Holds&>>>
failure_report for_each_allocation_failure(F&& f, Holds&& holds, extent over = extent::thread,
                                           location where = location::current()) {
  detail::checks::failure_runs runs(over, where);
  while (runs.next()) {
#if TIDEMARK_HAS_EXCEPTIONS()
    try {
      static_cast<void>(f());
    } catch (...) {
      if (!runs.has_caught()) throw;
    }
#else
    static_cast<void>(f());
#endif
    runs.finish_run();
    if (!static_cast<bool>(holds())) runs.has_broken();
  }
  failure_report report;
  runs.report(report, report.points, report.number, report.bytes);
  return report;
}

template <class F>
failure_report for_each_allocation_failure(F&& f, extent over = extent::thread, location where = location::current()) {
  return for_each_allocation_failure(
      std::forward<F>(f), [] { return true; }, over, where);
}

}  // namespace TIDEMARK_TAG
}  // namespace testing
}  // namespace v0
}  // namespace tidemark
