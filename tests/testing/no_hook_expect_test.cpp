// SPDX-License-Identifier: MIT
// A program without a heap hook: nothing that could not be seen passes.
#include <tidemark/testing/expect.hpp>

#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>

#include "test.hpp"

namespace t = tidemark::testing;
using namespace tidemark::literals;

namespace {

bool names_the_header(const t::verdict& v) {
  return !v.ok && v.message.find("hook/global_new.hpp") != std::string::npos &&
         v.message.find("hook/malloc.hpp") != std::string::npos &&
         v.message.find("not checked, and so not passed") != std::string::npos && !v.usage.counts_events;
}

}  // namespace

TEST_CASE("without a hook every check of the heap fails and names the header, though the callable runs") {
  int runs = 0;
  const auto f = [&] { ++runs; };
  for (const t::extent& over : {t::extent::thread, t::extent::process}) {
    CHECK(names_the_header(t::peak_at_most(1_GiB, f, over)));
    CHECK(names_the_header(t::no_allocations(f, over)));
    CHECK(names_the_header(t::allocations_exactly(0, f, over)));
    CHECK(names_the_header(t::allocations_at_most(100, f, over)));
    CHECK(names_the_header(t::allocated_bytes_at_most(1_GiB, f, over)));
    CHECK(names_the_header(t::no_leak(f, over)));
    CHECK(names_the_header(t::no_growth(f, {}, over)));
  }
  CHECK(runs >= 14);
  CHECK(names_the_header(t::for_each_allocation_failure(f)));
}

TEST_CASE("without a hook a domain is checked all the same") {
  const tidemark::domain weights("weights");
  const auto f = [&] {
    std::vector<char, tidemark::allocator<char>> v(100, '\0', weights);
    tidemark::escape(v.data());
    tidemark::resource r(weights);
    std::pmr::vector<char> w(50, '\0', &r);
    tidemark::escape(w.data());
  };
  CHECK(t::peak_at_most(150, f, weights));
  CHECK_FALSE(t::peak_at_most(149, f, weights));
  CHECK(t::allocations_exactly(2, f, weights));
  CHECK(t::no_leak(f, weights));
  CHECK(t::no_growth(f, {}, weights));
}

TEST_CASE("without a hook the resident set is checked all the same") {
  CHECK(t::resident_growth_at_most(1_GiB, [] {}));
  CHECK_FALSE(t::resident_growth_at_most(16_MiB, [] {
    std::vector<char> pages(64 << 20);
    tidemark::escape(pages.data());
  }));
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("without a hook guards that would keep nothing cannot be made") {
  const auto explains = [](auto make) {
    try {
      make();
    } catch (const std::logic_error& e) {
      return std::string(e.what()).find("hook/global_new.hpp") != std::string::npos;
    }
    return false;
  };
  CHECK(explains([] { const t::heap_limit limit(100); }));
  CHECK(explains([] { const t::heap_limit limit(100, t::extent::process); }));
  CHECK(explains([] { const t::no_allocation_region region; }));
  CHECK(explains([] { const t::fail_allocation fault(1); }));
}
#endif
