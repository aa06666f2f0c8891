// SPDX-License-Identifier: MIT
// Regions without allocations and limits on the heap, under whichever hook the program includes before.
#pragma once

#include <tidemark/testing/guards.hpp>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/scope/task.hpp>

#include "guards_support.hpp"

namespace t = tidemark::testing;
using guarded::attempt;
using guarded::can_make;
using guarded::can_take;
using guarded::form;
using guarded::forms;
using guarded::give_back;
using guarded::handler_guard;
using guarded::helper;
using guarded::in_child;
using guarded::is_on_the_fast_path;
using guarded::is_same;
using guarded::take;
using guarded::thread_now;
using guarded::try_make;
using hooked::hidden;
using hooked::launder;

namespace {

bool may_throw(const form& f) { return f.fails == guarded::way::throws; }

struct told {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;
  bool may_throw = false;
};

/// The same block in another size; null: refused.
void* resize(void* p, std::size_t n) { return launder(std::realloc(launder(p), hidden(n))); }

/// How many allocations a refused one makes itself: what a `new` throws needs room as any block, where malloc is seen, and where
/// it is refused the runtime has a reserve.
std::uint64_t exception_objects(const form& f) { return guarded::sees_malloc() && may_throw(f) ? 1 : 0; }

#if TIDEMARK_HAS_EXCEPTIONS()
struct refusal_of_ours {
  std::uint64_t bytes;
};

template <class Error, class F>
bool throws(F f, const char* text = "") {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()).find(text) != std::string::npos;
  } catch (...) {
  }
  return false;
}
#endif

}  // namespace

// ---- regions ----

TEST_CASE("a region is told once of each allocation, by every function, and of no free") {
  for (const form& f : forms) {
    INFO(doctest::String(f.name));
    for (const std::size_t n : {0UL, 1UL, 24UL, 1'000UL, 200'000UL, 40'000'000UL}) {
      const bool was_fast = is_on_the_fast_path();
      std::uint64_t none = 1, one = 0, after_free = 0, bytes = 0, largest = 0, first = 0;
      attempt a;
      {
        const t::no_allocation_region region;
        none = region.allocations();
        a = try_make(f, n);
        one = region.allocations();
        give_back(a.p);
        after_free = region.allocations();
        bytes = region.allocated_bytes();
        largest = region.largest_bytes();
        first = region.first_bytes();
      }
      CHECK(was_fast);
      CHECK(is_on_the_fast_path());
      CHECK(a.p != nullptr);
      CHECK(a.said_so_rightly);
      CHECK(none == 0);
      CHECK(one == 1);
      CHECK(after_free == 1);
      CHECK(bytes == f.counted(n));
      CHECK(largest == f.counted(n));
      CHECK(first == f.counted(n));
    }
  }
}

TEST_CASE("a region has the number, the sum, the largest and the first of what it was told") {
  void* before = take(500);
  std::uint64_t figures[4] = {};
  {
    const t::no_allocation_region region;
    give_back(before);
    for (const std::size_t n : {70UL, 30UL, 900UL, 0UL, 1UL}) give_back(take(n));
    figures[0] = region.allocations();
    figures[1] = region.allocated_bytes();
    figures[2] = region.largest_bytes();
    figures[3] = region.first_bytes();
  }
  CHECK(figures[0] == 5);
  CHECK(figures[1] == 1'001);
  CHECK(figures[2] == 900);
  CHECK(figures[3] == 70);
}

TEST_CASE("a region only looks: what is allocated and freed in it is counted as elsewhere") {
  const tidemark::usage before = thread_now();
  tidemark::usage during;
  void* p = nullptr;
  {
    const t::no_allocation_region region;
    p = take(1'000);
    during = thread_now();
  }
  give_back(p);
  const tidemark::usage after = thread_now();
  CHECK(during.live_bytes - before.live_bytes == 1'000);
  CHECK(during.allocations - before.allocations == 1);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.deallocations - before.deallocations == 1);
}

TEST_CASE("regions nest, and each is told of what is allocated within it, closed in whatever order") {
  std::optional<t::no_allocation_region> a;
  std::optional<t::no_allocation_region> b;
  std::optional<t::no_allocation_region> c;
  a.emplace();
  give_back(take(1));
  b.emplace();
  give_back(take(2));
  c.emplace();
  give_back(take(3));
  const std::uint64_t b_bytes = b->allocated_bytes();
  b.reset();
  give_back(take(4));
  const std::uint64_t a_bytes = a->allocated_bytes();
  a.reset();
  give_back(take(5));
  const std::uint64_t c_bytes = c->allocated_bytes();
  const bool is_watched = !is_on_the_fast_path();
  c.reset();
  CHECK(b_bytes == 5);
  CHECK(a_bytes == 10);
  CHECK(c_bytes == 12);
  CHECK(is_watched);
  CHECK(is_on_the_fast_path());
}

TEST_CASE("an exemption hides from the regions around it, and not from one inside it") {
  std::uint64_t outer_bytes[6] = {};
  std::uint64_t inner_bytes[3] = {};
  {
    const t::no_allocation_region outer;
    {
      const t::allow_allocations allowed;
      give_back(take(1));
      outer_bytes[0] = outer.allocated_bytes();
      {
        const t::no_allocation_region inner;
        give_back(take(2));
        inner_bytes[0] = inner.allocated_bytes();
        outer_bytes[1] = outer.allocated_bytes();
        {
          const t::allow_allocations allowed_again;
          give_back(take(4));
          inner_bytes[1] = inner.allocated_bytes();
        }
        give_back(take(8));
        inner_bytes[2] = inner.allocated_bytes();
      }
      give_back(take(16));
      outer_bytes[2] = outer.allocated_bytes();
    }
    give_back(take(32));
    outer_bytes[3] = outer.allocated_bytes();
  }
  CHECK(outer_bytes[0] == 0);
  CHECK(inner_bytes[0] == 2);
  CHECK(outer_bytes[1] == 0);
  CHECK(inner_bytes[1] == 2);
  CHECK(inner_bytes[2] == 10);
  CHECK(outer_bytes[2] == 0);
  CHECK(outer_bytes[3] == 32);
}

TEST_CASE(
    "exemptions and regions in every order of closing: only what stands between an allocation and a region hides") {
  // A region is told where no exemption that was opened after it is still open.
  constexpr int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    std::optional<t::no_allocation_region> outer(std::in_place);
    std::optional<t::allow_allocations> allowed(std::in_place);
    std::optional<t::no_allocation_region> inner(std::in_place);
    std::uint64_t outer_told = 0, inner_told = 0, outer_expected = 0, inner_expected = 0;
    for (const int next : order) {
      give_back(take(1));
      if (outer && !allowed) ++outer_expected;
      if (inner) ++inner_expected;
      if (outer) outer_told = outer->allocations();
      if (inner) inner_told = inner->allocations();
      if (next == 0) outer.reset();
      if (next == 1) allowed.reset();
      if (next == 2) inner.reset();
    }
    CHECK(outer_told == outer_expected);
    CHECK(inner_told == inner_expected);
    CHECK(is_on_the_fast_path());
  }
}

TEST_CASE("what another thread allocates is nothing to a region, and its regions see nothing of this thread") {
  helper other;
  std::uint64_t here = 0, there = 0;
  {
    const t::no_allocation_region region;
    other.run_there([&] {
      const t::no_allocation_region region_there;
      give_back(take(100));
      there = region_there.allocations();
    });
    give_back(take(7));
    here = region.allocated_bytes();
  }
  CHECK(here == 7);
  CHECK(there == 1);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a guard that would see nothing, inside quiet, cannot be made") {
  const tidemark::quiet hidden;
  CHECK_THROWS_AS(static_cast<void>(t::no_allocation_region()), std::logic_error);
  CHECK_THROWS_AS(static_cast<void>(t::heap_limit(100)), std::logic_error);
  CHECK_THROWS_AS(static_cast<void>(t::heap_limit(100, t::extent::process)), std::logic_error);
}
#endif

TEST_CASE("quiet hides from a region") {
  std::uint64_t told_of = 1;
  {
    const t::no_allocation_region region;
    const tidemark::quiet hidden_here;
    give_back(take(100));
    told_of = region.allocations();
  }
  CHECK(told_of == 0);
}

TEST_CASE("a region may be the first of a thread, and what follows is watched") {
  std::uint64_t told_of = 0;
  bool is_fast = false;
  std::thread([&] {
    {
      const t::no_allocation_region region;
      give_back(take(100));
      told_of = region.allocations();
    }
    is_fast = is_on_the_fast_path();
  }).join();
  CHECK(told_of == 1);
  CHECK(is_fast);
}

TEST_CASE("an allocation through a tracked allocator is told once") {
  const tidemark::domain d("guards");
  std::uint64_t told_of = 0;
  {
    std::vector<char, tidemark::allocator<char>> v(d);
    const t::no_allocation_region region;
    v.resize(100);
    told_of = region.allocations();
  }
  CHECK(told_of == 1);
}

TEST_CASE("a callback is told of each allocation, by every function, before it is made") {
  for (const form& f : forms) {
    INFO(doctest::String(f.name));
    told last;
    tidemark::usage at_call;
    tidemark::usage before;
    attempt a;
    {
      const t::no_allocation_region region([&](const t::forbidden_attempt& what) {
        last = {last.calls + 1, what.bytes, what.number, what.may_throw};
        at_call = thread_now();
      });
      give_back(take(1));
      before = thread_now();
      a = try_make(f, 1'000);
      give_back(a.p);
    }
    CHECK(a.p != nullptr);
    CHECK(last.calls == 2);
    CHECK(last.number == 2);
    CHECK(last.bytes == f.counted(1'000));
    CHECK(last.may_throw == may_throw(f));
    CHECK(is_same(at_call, before));
  }
}

TEST_CASE("a callback may allocate: it is told of nothing of its own, and nothing of it is counted") {
  int calls = 0;
  const tidemark::usage before = thread_now();
  {
    const std::string large(1'000, 'x');
    const tidemark::usage inside = thread_now();
    void* p = nullptr;
    {
      const t::no_allocation_region region([&calls, large](const t::forbidden_attempt&) {
        ++calls;
        give_back(take(5'000));
        const std::string copy = large;
        tidemark::escape(copy.data());
      });
      p = take(10);
    }
    const tidemark::usage after = thread_now();
    give_back(p);
    // The copy of the string that the callback holds was made by the caller's own lambda.
    CHECK(after.live_bytes - inside.live_bytes == 10);
  }
  const tidemark::usage after = thread_now();
  CHECK(calls == 1);
  CHECK(after.live_bytes == before.live_bytes);
}

TEST_CASE("a callback of a region inside another leaves the other's count as it is without one") {
  std::uint64_t outer_told = 0;
  {
    const t::no_allocation_region outer;
    const t::no_allocation_region inner([](const t::forbidden_attempt&) { give_back(take(50)); });
    give_back(take(10));
    outer_told = outer.allocations();
  }
  CHECK(outer_told == 1);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("what a callback throws comes out of an operator new that throws, and nothing was allocated") {
  for (const form& f : forms) {
    if (!may_throw(f)) continue;
    INFO(doctest::String(f.name));
    std::uint64_t caught = 0;
    std::uint64_t told_of = 0;
    const tidemark::usage before = thread_now();
    {
      const t::no_allocation_region region([](const t::forbidden_attempt& a) { throw refusal_of_ours{a.bytes}; });
      try {
        give_back(f.make(hidden(1'000), guarded::alignment));
      } catch (const refusal_of_ours& r) {
        caught = r.bytes;
      }
      told_of = region.allocations();
    }
    const tidemark::usage after = thread_now();
    CHECK(caught == 1'000);
    CHECK(told_of == 1);
    CHECK(after.live_bytes == before.live_bytes);
    CHECK(after.allocated_bytes == before.allocated_bytes);
    CHECK(is_on_the_fast_path());
  }
}

TEST_CASE("what a callback throws at a function that must not throw is said, and the allocation goes on") {
  for (const form& f : forms) {
    if (may_throw(f)) continue;
    const auto e = in_child([&f] {
      const t::no_allocation_region region(
          [](const t::forbidden_attempt&) { throw std::runtime_error("the callback's own words"); });
      const attempt a = try_make(f, 1'000);
      return a.p != nullptr && a.said_so_rightly && region.allocations() == 1 ? 7 : 1;
    });
    INFO(doctest::String(f.name));
    CHECK(e.status == 7);
    CHECK(e.says("the callback's own words"));
    CHECK(e.says("no_allocation_region"));
  }
}

TEST_CASE("throw_error throws where it may, before anything is allocated, and counts where it may not") {
  for (const form& f : forms) {
    INFO(doctest::String(f.name));
    std::uint64_t bytes = 0;
    std::string what;
    std::uint64_t told_of = 0;
    void* p = nullptr;
    const tidemark::usage before = thread_now();
    {
      const t::no_allocation_region region(t::reaction::throw_error);
      try {
        p = launder(f.make(hidden(1'000), guarded::alignment));
      } catch (const t::forbidden_allocation& e) {
        const tidemark::quiet hidden_here;
        bytes = e.bytes();
        what = e.what();
      }
      told_of = region.allocations();
    }
    give_back(p);
    const tidemark::usage after = thread_now();
    CHECK((p == nullptr) == may_throw(f));
    CHECK(told_of == 1);
    CHECK(after.live_bytes == before.live_bytes);
    CHECK(after.allocated_bytes - before.allocated_bytes == (may_throw(f) ? 0 : f.counted(1'000)));
    if (!may_throw(f)) continue;
    CHECK(bytes == 1'000);
    CHECK(what.find("1000 bytes") != std::string::npos);
    CHECK(what.find("guards.hpp:") != std::string::npos);
  }
}

TEST_CASE("forbidden_allocation is a bad_alloc, so that code that survives one goes on") {
  bool is_caught = false;
  std::uint64_t told_of = 0;
  {
    const t::no_allocation_region region(t::reaction::throw_error);
    try {
      give_back(::operator new(hidden(10)));
    } catch (const std::bad_alloc&) {
      is_caught = true;
    }
    {
      const t::allow_allocations allowed;
      give_back(::operator new(hidden(10)));
    }
    told_of = region.allocations();
  }
  CHECK(is_caught);
  CHECK(told_of == 1);
}

TEST_CASE("an exception object is an allocation of the region where malloc is seen, and none where only new is") {
  std::uint64_t thrown = 9;
  {
    const t::no_allocation_region region(t::reaction::throw_error);
    try {
      throw 1;
    } catch (int) {
    }
    thrown = region.allocations();
  }
  CHECK(thrown == (guarded::sees_malloc() ? 1 : 0));
}

TEST_CASE("an exception through a region closes it") {
  try {
    const t::no_allocation_region outer;
    const t::allow_allocations allowed;
    const t::no_allocation_region inner;
    throw 1;
  } catch (int) {
  }
  CHECK(is_on_the_fast_path());
}
#endif

TEST_CASE("a region that aborts says the size and the place of its opening, for every function") {
  for (const form& f : forms) {
    const auto e = in_child([&f] {
      const t::no_allocation_region region(t::reaction::abort);
      static_cast<void>(try_make(f, 12'345));
      return 0;
    });
    INFO(doctest::String(f.name));
    CHECK(e.signal == SIGABRT);
    CHECK(e.says("tidemark: an allocation of " + std::to_string(f.counted(12'345)) + " bytes where none may be made"));
    CHECK(e.says("guards.hpp:"));
  }
}

TEST_CASE("a region that aborts lets frees and exempt allocations pass") {
  void* p = take(100);
  const auto e = in_child([p] {
    const t::no_allocation_region region(t::reaction::abort);
    give_back(p);
    const t::allow_allocations allowed;
    give_back(take(10));
    return 7;
  });
  give_back(p);
  CHECK(e.signal == 0);
  CHECK(e.status == 7);
  CHECK_FALSE(e.says("tidemark"));
}

TEST_CASE("a region lives on in a fork child") {
  std::uint64_t told_of = 0;
  std::optional<t::no_allocation_region> region(std::in_place);
  const ::pid_t child = ::fork();
  if (child == 0) {
    give_back(take(10));
    ::_exit(static_cast<int>(region->allocations()));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  told_of = region->allocations();
  region.reset();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(told_of == 0);
}

TEST_CASE("a guard that is closed on another thread ends the program, and says so") {
  const auto e = in_child([] {
    std::optional<t::heap_limit> limit(std::in_place, 1'000'000);
    std::thread([&] { limit.reset(); }).join();
    return 0;
  });
  CHECK(e.signal == SIGABRT);
  CHECK(e.says("closed on another thread"));
}

// ---- a limit on this thread ----

TEST_CASE("of every function exactly so many bytes pass, and one more does not") {
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    for (const form& f : forms) {
      for (const std::size_t n : {0UL, 1UL, 24UL, 1'000UL, 4'097UL, 200'000UL, 40'000'000UL}) {
        const std::size_t counted = f.counted(n);
        attempt passes;
        attempt refused;
        std::uint64_t passed_refusals = 9, refusals = 0;
        tidemark::usage before, after;
        {
          const t::heap_limit limit(static_cast<std::int64_t>(counted), over);
          passes = try_make(f, n);
          give_back(passes.p);
          passed_refusals = limit.refusals();
        }
        if (counted > 0 && f.may_fail()) {
          const t::heap_limit limit(static_cast<std::int64_t>(counted) - 1, over);
          before = thread_now();
          refused = try_make(f, n);
          after = thread_now();
          refusals = limit.refusals();
        }
        CAPTURE(n);
        INFO(doctest::String(f.name));
        CHECK(passes.p != nullptr);
        CHECK(passes.said_so_rightly);
        CHECK(passed_refusals == 0);
        CHECK(is_on_the_fast_path());
        if (counted == 0 || !f.may_fail()) continue;
        CHECK(refused.p == nullptr);
        CHECK(refused.said_so_rightly);
        CHECK(refusals >= 1);
        CHECK(refusals <= 1 + exception_objects(f));
        CHECK(after.live_bytes == before.live_bytes);
        if (exception_objects(f) == 0) CHECK(is_same(before, after));
      }
    }
  }
}

TEST_CASE("sizes that no memory has are refused under every limit, the largest included") {
  for (const std::int64_t most : {std::int64_t{0}, std::int64_t{1'000}, (std::numeric_limits<std::int64_t>::max)()}) {
    for (const t::extent& over : {t::extent::thread, t::extent::process}) {
      const t::heap_limit limit(most, over);
      bool is_refused = true;
      for (const form& f : forms) {
        if (!f.may_fail()) continue;
        for (const std::size_t n : {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX / 2 + 1, SIZE_MAX / 2}) {
          const attempt a = try_make(f, n);
          is_refused = is_refused && a.p == nullptr && a.said_so_rightly;
        }
      }
      CHECK(is_refused);
    }
  }
}

TEST_CASE("what is freed makes room, also what was live before") {
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    void* before = take(500);
    bool steps[9] = {};
    void* a = nullptr;
    void* b = nullptr;
    {
      const t::heap_limit limit(1'000, over);
      a = take(400);
      b = take(600);
      steps[0] = a != nullptr && b != nullptr;
      steps[1] = !can_take(1);
      steps[2] = can_take(0);
      give_back(a);
      steps[3] = !can_take(401);
      steps[4] = can_take(400);
      a = nullptr;
      give_back(before);
      steps[5] = !can_take(901);
      steps[6] = can_take(900);
      give_back(b);
      steps[7] = !can_take(1'501);
      steps[8] = can_take(1'500);
    }
    for (const bool holds : steps) CHECK(holds);
  }
}

TEST_CASE("a limit that cannot be reached refuses nothing, whatever was live") {
  const std::int64_t most = (std::numeric_limits<std::int64_t>::max)();
  void* p = take(100);
  helper other;
  bool is_free_here = false, is_free_there = false;
  {
    const t::heap_limit limit(most);
    const t::heap_limit limit_of_all(most, t::extent::process);
    is_free_here = can_take(1'000'000) && limit.refusals() + limit_of_all.refusals() == 0;
    other.run_there([&] {
      const t::heap_limit there(most);
      void* own = take(10);
      give_back(p);  // which this thread did not allocate: what is live here is below zero
      is_free_there = can_take(1'000'000) && there.refusals() == 0;
      give_back(own);
    });
  }
  CHECK(is_free_here);
  CHECK(is_free_there);
}

TEST_CASE("of several limits each holds, whichever is tighter, and closed in whatever order") {
  constexpr std::size_t sizes[3] = {1'000, 300, 600};
  constexpr int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (unsigned of_process = 0; of_process < 8; ++of_process) {
    for (const auto& order : orders) {
      std::optional<t::heap_limit> limits[3];
      bool steps[4] = {};
      for (unsigned i = 0; i < 3; ++i) {
        limits[i].emplace(static_cast<std::int64_t>(sizes[i]),
                          (of_process >> i & 1) != 0 ? t::extent::process : t::extent::thread);
      }
      for (unsigned closed = 0; closed <= 3; ++closed) {
        std::size_t tightest = SIZE_MAX;
        for (unsigned i = 0; i < 3; ++i) {
          if (limits[i] && sizes[i] < tightest) tightest = sizes[i];
        }
        steps[closed] = tightest == SIZE_MAX ? can_take(100'000) : can_take(tightest) && !can_take(tightest + 1);
        if (closed < 3) limits[order[closed]].reset();
      }
      CAPTURE(of_process);
      for (const bool holds : steps) CHECK(holds);
      CHECK(is_on_the_fast_path());
    }
  }
}

TEST_CASE("an inner limit counts from its own opening") {
  bool steps[4] = {};
  {
    const t::heap_limit outer(1'000);
    void* p = take(700);
    {
      const t::heap_limit inner(200);
      steps[0] = can_take(200);
      steps[1] = !can_take(201) && inner.refusals() == 1 && outer.refusals() == 0;
      give_back(p);
      steps[2] = can_take(900);
      steps[3] = !can_take(901);
    }
  }
  for (const bool holds : steps) CHECK(holds);
}

TEST_CASE("a new-handler that makes room lets the second try succeed, and is called once") {
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    for (const form& f : forms) {
      if (!f.is_new() || !f.may_fail()) continue;
      guarded::handler_calls = 0;
      guarded::reserve = take(500);
      attempt a, b;
      std::uint64_t refusals = 0;
      {
        const handler_guard handler(guarded::free_the_reserve);
        const t::heap_limit limit(100, over);
        a = try_make(f, 550);
        refusals = limit.refusals();
        give_back(a.p);
        const int calls = guarded::handler_calls;
        b = try_make(f, 601);  // the reserve is gone: the handler gives up
        guarded::handler_calls = calls;
      }
      INFO(doctest::String(f.name));
      CHECK(a.p != nullptr);
      CHECK(a.said_so_rightly);
      CHECK(refusals == 1);
      CHECK(guarded::handler_calls == 1);
      CHECK(b.p == nullptr);
      CHECK(b.said_so_rightly);
      CHECK(is_on_the_fast_path());
    }
  }
}

TEST_CASE("a region is told once of an allocation that a new-handler had to make room for") {
  guarded::reserve = take(500);
  std::uint64_t told_of = 0;
  void* p = nullptr;
  {
    const handler_guard handler(guarded::free_the_reserve);
    const t::heap_limit limit(100);
    const t::no_allocation_region region;
    p = take(550);
    told_of = region.allocations();
  }
  give_back(p);
  CHECK(p != nullptr);
  CHECK(told_of == 1);
}

TEST_CASE("a thread's limit is nothing to another thread") {
  helper other;
  bool is_free = false, is_held = false;
  {
    const t::heap_limit limit(100);
    other.run_there([&] { is_free = can_take(1'000'000); });
    is_held = can_take(100) && !can_take(101);
  }
  CHECK(is_free);
  CHECK(is_held);
}

TEST_CASE("a limit may be the first of a thread") {
  bool holds = false;
  std::thread([&] {
    const t::heap_limit limit(100);
    holds = can_take(100) && !can_take(101);
  }).join();
  CHECK(holds);
}

TEST_CASE("what quiet hides passes every limit and takes none of its room") {
  bool holds[2] = {};
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    void* p = nullptr;
    const t::heap_limit limit(100, over);
    {
      const tidemark::quiet hidden_here;
      p = take(10'000);
    }
    holds[over.what() == t::extent::kind::process] =
        p != nullptr && limit.refusals() == 0 && can_take(100) && !can_take(101);
    give_back(p);
  }
  CHECK(holds[0]);
  CHECK(holds[1]);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a refusal below a tracked allocator leaves its domain as it was") {
  const tidemark::domain d("refused");
  std::uint64_t refusals = 0;
  bool is_refused = false;
  {
    tidemark::allocator<char> from(d);
    for (const t::extent& over : {t::extent::thread, t::extent::process}) {
      const t::heap_limit limit(100, over);
      char* whole = from.allocate(100);
      from.deallocate(whole, 100);
      try {
        from.deallocate(from.allocate(101), 101);
      } catch (const std::bad_alloc&) {
        is_refused = true;
      }
      refusals += limit.refusals();
    }
  }
  CHECK(is_refused);
  CHECK(refusals >= 2);
  CHECK(refusals <= 2 + 2 * exception_objects(forms[0]));
  CHECK(d.current().live_bytes == 0);
}

TEST_CASE("a limit below zero, and one over a task or a domain, are errors that say what to do") {
  const tidemark::domain d("none");
  const tidemark::task_token no_task{};
  CHECK(throws<std::invalid_argument>([] { const t::heap_limit limit(-1); }, "negative"));
  CHECK(throws<std::invalid_argument>([] { const t::heap_limit limit(-1, t::extent::process); }, "negative"));
  CHECK(throws<std::invalid_argument>([&] { const t::heap_limit limit(1, d); }, "domain::limit()"));
  CHECK(throws<std::invalid_argument>([&] { const t::heap_limit limit(1, no_task); }, "extent::process"));
  CHECK(is_on_the_fast_path());
}

TEST_CASE("a container that meets a limit keeps its strong guarantee, and can grow afterwards") {
  std::vector<int> v(10, 1);
  bool is_refused = false;
  {
    const t::heap_limit limit(100);
    try {
      v.reserve(1'000);
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
  }
  CHECK(is_refused);
  CHECK(v == std::vector<int>(10, 1));
  v.reserve(1'000);
  CHECK(v.capacity() == 1'000);
}
#endif

// ---- brute force ----

TEST_CASE("10,000 random requests under random limits pass and fail as a sum kept by hand says") {
  struct block {
    void* p = nullptr;
    std::int64_t bytes = 0;
  };
  struct open_limit {
    std::optional<t::heap_limit> guard;
    std::int64_t ceiling = 0;
    std::uint64_t refused_alone = 0;  // requests that it, and no other, must refuse
  };
  constexpr std::size_t places = 64;
  constexpr std::size_t most_limits = 5;
  constexpr std::size_t most_bytes = 3'000;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    hooked::dice dice(seed);
    block blocks[places];
    open_limit limits[most_limits];
    std::int64_t live = 0;
    int wrong = 0, refused = 0, passed = 0, miscounted = 0, unlike = 0;
    for (int i = 0; i < 10'000; ++i) {
      block& b = blocks[dice.below(places)];
      const std::size_t n = dice.below(8) == 0 ? dice.below(16) : dice.below(most_bytes);
      const auto must_pass = [&](std::int64_t replaced, std::int64_t bytes) {
        if (bytes <= replaced) return true;
        open_limit* alone = nullptr;
        int against = 0;
        for (open_limit& l : limits) {
          if (!l.guard || live - replaced + bytes <= l.ceiling) continue;
          ++against;
          alone = &l;
        }
        if (against == 1) ++alone->refused_alone;
        return against == 0;
      };
      const std::uint64_t what = dice.below(20);
      if (what == 0) {
        open_limit& l = limits[dice.below(most_limits)];
        if (l.guard) {
          if (l.guard->refusals() < l.refused_alone) ++miscounted;
          l.guard.reset();
        } else {
          const auto growth = static_cast<std::int64_t>(dice.below(12'000));
          l.ceiling = live + growth;
          l.refused_alone = 0;
          l.guard.emplace(growth, dice.below(2) == 0 ? t::extent::thread : t::extent::process);
        }
      } else if (b.p == nullptr) {
        const form& f = forms[dice.below(forms.size())];
        if (!f.may_fail()) continue;
        const auto bytes = static_cast<std::int64_t>(f.counted(n));
        const bool must = must_pass(0, bytes);
        const attempt a = try_make(f, n);
        must ? ++passed : ++refused;
        if ((a.p != nullptr) != must || !a.said_so_rightly) ++wrong;
        if (a.p != nullptr) {
          b = {a.p, bytes};
          live += bytes;
        }
      } else if (guarded::sees_malloc() && what < 8 && n > 0) {
        const bool must = must_pass(b.bytes, static_cast<std::int64_t>(n));
        void* p = resize(b.p, n);
        must ? ++passed : ++refused;
        if ((p != nullptr) != must) ++wrong;
        if (p != nullptr) {
          live += static_cast<std::int64_t>(n) - b.bytes;
          b = {p, static_cast<std::int64_t>(n)};
        }
      } else if (what < 15) {
        give_back(b.p);
        live -= b.bytes;
        b = {};
      }
    }
    for (open_limit& l : limits) l.guard.reset();
    for (block& b : blocks) {
      if (b.p != nullptr) give_back(b.p);
    }
    if (!is_on_the_fast_path()) ++unlike;
    CAPTURE(seed);
    CHECK(wrong == 0);
    CHECK(miscounted == 0);
    CHECK(unlike == 0);
    CHECK(refused > 300);
    CHECK(passed > 300);
  }
}

// ---- a limit on the process ----

TEST_CASE("a limit on the process holds for every thread, wherever it is opened and closed") {
  helper other;
  std::optional<t::heap_limit> limit;
  bool steps[6] = {};
  void* p = nullptr;
  other.run_there([&] { limit.emplace(1'000, t::extent::process); });
  steps[0] = can_take(1'000) && !can_take(1'001);
  p = take(600);
  other.run_there([&] {
    steps[1] = can_take(400) && !can_take(401);
    give_back(p);  // another thread's block makes room as well
    steps[2] = can_take(1'000) && !can_take(1'001);
  });
  steps[3] = limit->refusals() == 3;
  std::thread([&] { steps[4] = !can_take(5'000'000); }).join();
  limit.reset();
  steps[5] = can_take(5'000'000);
  for (const bool holds : steps) CHECK(holds);
  CHECK(is_on_the_fast_path());
}

TEST_CASE("under a limit on the process threads that only allocate get together exactly what fits") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t rounds = 200;
  constexpr std::size_t block = 100;
  constexpr std::size_t fit = 37;
  barrier all(threads + 1);
  std::size_t had[threads] = {};
  std::uint64_t over = 0, short_of = 0;
  std::vector<std::thread> workers;
  std::vector<std::vector<void*>> blocks(threads, std::vector<void*>(fit + 1));
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      static_cast<void>(tidemark::thread_usage());
      all.arrive_and_wait();
      for (std::size_t r = 0; r < rounds; ++r) {
        all.arrive_and_wait();
        had[i] = 0;
        while (had[i] <= fit) {
          void* p = take(block);
          if (p == nullptr) break;
          blocks[i][had[i]++] = p;
        }
        all.arrive_and_wait();
        for (std::size_t k = 0; k < had[i]; ++k) give_back(blocks[i][k]);
        all.arrive_and_wait();
      }
    });
  }
  all.arrive_and_wait();
  std::optional<t::heap_limit> limit;
  limit.emplace(fit * block + block / 2, t::extent::process);
  for (std::size_t r = 0; r < rounds; ++r) {
    all.arrive_and_wait();
    all.arrive_and_wait();
    std::size_t sum = 0;
    for (const std::size_t n : had) sum += n;
    if (sum > fit) ++over;
    if (sum < fit) ++short_of;
    all.arrive_and_wait();
  }
  limit.reset();
  for (std::thread& w : workers) w.join();
  CHECK(over == 0);
  CHECK(short_of == 0);
}

TEST_CASE("threads whose demands together fit a limit on the process are never refused") {
  constexpr std::size_t threads = 4;
  barrier all(threads + 1);
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      static_cast<void>(tidemark::thread_usage());
      all.arrive_and_wait();
      all.arrive_and_wait();
      for (int r = 0; r < 100'000; ++r) {
        void* p = take(250);
        if (p == nullptr) {
          ++refused;
        } else {
          give_back(p);
        }
      }
      all.arrive_and_wait();
      all.arrive_and_wait();
    });
  }
  all.arrive_and_wait();
  std::uint64_t refusals = 0;
  {
    const t::heap_limit limit(1'000, t::extent::process);
    all.arrive_and_wait();
    all.arrive_and_wait();
    refusals = limit.refusals();
  }
  all.arrive_and_wait();
  for (std::thread& w : workers) w.join();
  CHECK(refused == refusals);
  CHECK(refused == 0);
}

TEST_CASE("threads that allocate and free at random never pass a limit on the process, and no refusal lacks a reason") {
  constexpr std::size_t threads = 4;
  constexpr std::int64_t most = 6'000;
  // What is certainly live: added after, subtracted before. What may be: added before, subtracted after; the most of it since a
  // thread began to ask is kept for each.
  std::atomic<std::int64_t> surely{0};
  std::atomic<std::int64_t> maybe{0};
  std::atomic<std::int64_t> most_since[threads] = {};
  std::atomic<std::int64_t> highest{0};
  std::atomic<std::uint64_t> unexplained{0};
  std::atomic<std::uint64_t> refused{0};
  barrier all(threads + 1);
  const auto raise = [](std::atomic<std::int64_t>& to, std::int64_t value) {
    std::int64_t seen = to.load();
    while (seen < value && !to.compare_exchange_weak(seen, value)) {
    }
  };
  const auto demand = [&](std::int64_t bytes) {
    const std::int64_t now = maybe.fetch_add(bytes) + bytes;
    for (auto& h : most_since) raise(h, now);
  };
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      struct block {
        void* p;
        std::int64_t bytes;
      } blocks[16] = {};
      hooked::dice dice(i + 1);
      static_cast<void>(tidemark::thread_usage());
      all.arrive_and_wait();
      all.arrive_and_wait();
      for (int r = 0; r < 100'000; ++r) {
        block& b = blocks[dice.below(16)];
        if (b.p != nullptr) {
          surely -= b.bytes;
          give_back(b.p);
          maybe -= b.bytes;
          b.p = nullptr;
          continue;
        }
        const auto n = static_cast<std::int64_t>(dice.below(1'500) + 1);
        most_since[i] = maybe.load();
        demand(n);
        void* p = take(static_cast<std::size_t>(n));
        if (p != nullptr) {
          raise(highest, surely.fetch_add(n) + n);
          b = {p, n};
          continue;
        }
        ++refused;
        if (most_since[i] <= most) ++unexplained;
        maybe -= n;
      }
      for (block& b : blocks) {
        if (b.p == nullptr) continue;
        surely -= b.bytes;
        give_back(b.p);
      }
      all.arrive_and_wait();
      all.arrive_and_wait();
    });
  }
  all.arrive_and_wait();
  bool is_exact_again = false;
  {
    const t::heap_limit limit(most, t::extent::process);
    all.arrive_and_wait();
    all.arrive_and_wait();
    is_exact_again = can_take(most) && !can_take(most + 1);
  }
  all.arrive_and_wait();
  for (std::thread& w : workers) w.join();
  CHECK(refused > 0);
  CHECK(highest <= most);
  CHECK(highest > most / 2);
  CHECK(unexplained == 0);
  CHECK(is_exact_again);
}

TEST_CASE("a limit on the process may be opened and closed while threads run, and leaves nothing behind") {
  constexpr std::size_t threads = 3;
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> refused{0};
  barrier all(threads + 1);
  std::vector<std::thread> workers;
  const tidemark::usage before = *tidemark::process_usage();
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      all.arrive_and_wait();
      while (!is_over) {
        void* p = take(300);
        if (p == nullptr) {
          ++refused;
        } else {
          give_back(p);
        }
      }
      all.arrive_and_wait();
      all.arrive_and_wait();
      if (!can_take(5'000'000) || !is_on_the_fast_path()) ++refused;
    });
  }
  all.arrive_and_wait();
  // Room for what every thread may hold twice: once as live, once as asked for.
  for (int i = 0; i < 2'000; ++i) {
    const t::heap_limit limit(100'000, t::extent::process);
    const t::heap_limit inner(100'000, t::extent::process);
    if (!can_take(10)) ++refused;
  }
  is_over = true;
  all.arrive_and_wait();
  bool is_exact = false;
  {
    const t::heap_limit limit(1'000, t::extent::process);
    is_exact = can_take(1'000) && !can_take(1'001);
  }
  all.arrive_and_wait();
  for (std::thread& w : workers) w.join();
  CHECK(refused == 0);
  CHECK(is_exact);
  CHECK(is_on_the_fast_path());
  CHECK(tidemark::process_usage()->live_blocks >= before.live_blocks);
}

// ---- fork ----

TEST_CASE("a fork child is not held by a limit that another thread has open, and is by its own thread's") {
  helper other;
  std::optional<t::heap_limit> of_other;
  other.run_there([&] { of_other.emplace(1'000'000, t::extent::process); });
  const auto free_child = in_child([] { return can_take(50'000'000) && is_on_the_fast_path() ? 7 : 1; });
  const auto held_child = in_child([] {
    const t::heap_limit own(100);
    const t::heap_limit own_of_all(50, t::extent::process);
    return can_take(50) && !can_take(51) ? 7 : 1;
  });
  bool is_held_here = !can_take(50'000'000);
  other.run_there([&] { of_other.reset(); });
  std::optional<t::heap_limit> own(std::in_place, 100'000);
  const auto with_own = in_child([] { return can_take(90'000) && !can_take(100'001) ? 7 : 1; });
  own.reset();
  own.emplace(100'000, t::extent::process);
  const auto with_own_of_all = in_child([] { return can_take(90'000) && !can_take(100'001) ? 7 : 1; });
  own.reset();
  CHECK(free_child.status == 7);
  CHECK(held_child.status == 7);
  CHECK(is_held_here);
  CHECK(with_own.status == 7);
  CHECK(with_own_of_all.status == 7);
}

TEST_CASE("a limit of another thread may be closed in the fork child that it does not hold") {
  helper other;
  std::optional<t::heap_limit> of_other;
  other.run_there([&] { of_other.emplace(1'000'000, t::extent::process); });
  const auto child = in_child([&] {
    of_other.reset();
    const t::heap_limit own(100, t::extent::process);
    return can_take(100) && !can_take(101) ? 7 : 1;
  });
  of_other.reset();
  CHECK(child.status == 7);
}

TEST_CASE("a process forks while its threads allocate under a limit, and each child goes on") {
  constexpr std::size_t threads = 2;
  std::atomic<bool> is_over{false};
  barrier all(threads + 1);
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      all.arrive_and_wait();
      while (!is_over) {
        if (void* p = take(300)) give_back(p);
      }
    });
  }
  int lost = 0;
  {
    const t::heap_limit limit(1'000'000, t::extent::process);
    all.arrive_and_wait();
    for (int i = 0; i < 30; ++i) {
      const ::pid_t child = ::fork();
      if (child == 0) {
        ::alarm(30);
        for (int k = 0; k < 100; ++k) {
          if (void* p = take(500)) give_back(p);
        }
        ::_exit(can_take(900'000) && !can_take(1'100'000) ? 7 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) ++lost;
    }
    is_over = true;
  }
  for (std::thread& w : workers) w.join();
  CHECK(lost == 0);
}
