// SPDX-License-Identifier: MIT
// The translation unit that has the library on, linked with disabled_part.cpp, which has it off: domains and what feeds them
// are the same on both sides.
#include "disabled_part.hpp"

#include <cstdint>
#include <utility>

#include "test.hpp"

using tidemark::domain;

TEST_CASE("the two sides differ in the option") {
  CHECK(disabled_part::is_switched_off());
  CHECK(tidemark::hook_reason() != "disabled");
}

TEST_CASE("both sides feed one account") {
  domain d("shared");
  d.allocated(100);
  disabled_part::feed(d, 50);
  CHECK(d.current().live_bytes == 150);
  CHECK(disabled_part::live(d) == 150);
  d.freed(150);
  CHECK(disabled_part::live(d) == 0);
  CHECK(disabled_part::default_domain() == tidemark::default_domain());
}

TEST_CASE("a container made on one side grows and dies on the other") {
  const domain d("container");
  {
    disabled_part::vector v = disabled_part::make(d, 100);
    CHECK(d.current().live_bytes == 800);
    v.reserve(200);
    CHECK(disabled_part::live(d) == 1'600);
    disabled_part::vector mine(10, 0, d);
    disabled_part::grow(mine, 1'000);
    CHECK(d.current().live_bytes == 9'600);
    CHECK(mine.get_allocator() == v.get_allocator());
    v = std::move(mine);
    CHECK(d.current().live_bytes == 8'000);
  }
  CHECK(d.current().live_bytes == 0);
}

TEST_CASE("a limit holds on both sides, and so does that of a parent") {
  domain d("limited", {1'000, nullptr, false});
  disabled_part::feed(d, 900);
  CHECK(disabled_part::is_refused(d, 101));
  CHECK(!d.try_allocated(101));
  CHECK(d.current().live_bytes == 900);
  domain inner = disabled_part::make_inside(d, 50);
  CHECK(inner.limit() == 50);
  CHECK(!inner.try_allocated(51));
  CHECK(inner.try_allocated(50));
  CHECK(d.current().live_bytes == 950);
  CHECK(disabled_part::lists(inner));
  CHECK(disabled_part::is_refused(d, 51));
}

TEST_CASE("who listens on one side hears of the other") {
  domain d("heard", {100, nullptr, false});
  int there = 0;
  disabled_part::listen(d, 0.5, there);
  d.allocated(60);
  CHECK(there == 1);
  int here = 0;
  d.freed(60);
  d.on_near_limit(0.5, [&](const tidemark::near_limit&) { ++here; });
  disabled_part::feed(d, 60);
  CHECK(here == 1);
  CHECK(there == 1);
}

TEST_CASE("a resource serves both sides") {
  const domain d("resource");
  tidemark::resource r(d);
  void* p = disabled_part::allocate(r, 100);
  CHECK(d.current().live_bytes == 100);
  CHECK(disabled_part::live_through_own_resource(d, 50) == 150);
  r.deallocate(p, 100, 8);
  CHECK(d.current().live_bytes == 0);
}
