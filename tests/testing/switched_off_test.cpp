// SPDX-License-Identifier: MIT
// Everything switched off: bodies run, no check passes, and no guard keeps anything.
#define TIDEMARK_OPT_DISABLE 1
#include <tidemark/hook/global_new.hpp>
#include <tidemark/testing/baseline.hpp>
#include <tidemark/testing/expect.hpp>

#include <cstdint>
#include <new>
#include <string>

#include "test.hpp"

namespace t = tidemark::testing;

TEST_CASE("switched off, every check runs its body and fails with the reason") {
  int runs = 0;
  const auto f = [&] { ++runs; };
  const auto is_disabled = [&](const t::verdict& v) {
    return !v.ok && v.message.find("disabled") != std::string::npos && !v.usage.counts_events;
  };
  CHECK(is_disabled(t::peak_at_most(INT64_MAX, f)));
  CHECK(is_disabled(t::no_allocations(f)));
  CHECK(is_disabled(t::allocations_exactly(0, f, t::extent::process)));
  CHECK(is_disabled(t::no_leak(f)));
  CHECK(is_disabled(t::no_growth(f)));
  CHECK(is_disabled(t::resident_growth_at_most(INT64_MAX, f)));
  CHECK(is_disabled(t::for_each_allocation_failure(f)));
  CHECK(is_disabled(t::matches_baseline("any", f)));
  CHECK(runs >= 8);
}

TEST_CASE("switched off, guards keep nothing and refuse nothing") {
  const t::heap_limit limit(0);
  const t::heap_limit of_all(0, t::extent::process);
  const t::no_allocation_region region(t::reaction::abort);
  const t::fail_allocation fault(1);
  void* p = ::operator new(100, std::nothrow);
  tidemark::escape(p);
  CHECK(p != nullptr);
  ::operator delete(p);
  CHECK(limit.refusals() == 0);
  CHECK(of_all.refusals() == 0);
  CHECK(region.allocations() == 0);
  CHECK(fault.requests() == 0);
}
