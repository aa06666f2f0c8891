// SPDX-License-Identifier: MIT
// The translation unit that has the library on, linked with disable_other.cpp, which has it off.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "disable_other.hpp"
#include "disable_sizes.hpp"
#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::scope;
using tidemark::scope_record;

TEST_CASE("the option changes no layout") { CHECK(disabled_side::sizes() == sizes_here()); }

TEST_CASE("scopes of a disabled translation unit deliver no record and open no window") {
  const auto ring = std::make_shared<tidemark::ring_sink>(64);
  const auto attached = tidemark::attach(ring);
  counted_steps::window::opened = 0;
  disabled_side::run_scopes(100);
  static_cast<void>(disabled_side::close_scope(100));
  CHECK(ring->scopes().empty());
  CHECK(counted_steps::window::opened == 0);
  { const scope s("enabled"); }
  CHECK(ring->scopes().size() == 1);
}

TEST_CASE("a scope closed in a disabled translation unit gives a record that says disabled and holds nothing else") {
  const scope_record r = disabled_side::close_scope(100);
  CHECK(r.path.empty());
  CHECK(r.duration_ns == 0);
  CHECK(r.depth == 0);
  CHECK(!r.left_by_exception);
  CHECK(r.owned_bytes.why() == "disabled");
  CHECK(r.meters.size() == 3);
  for (const tidemark::meter_reading& m : r.meters) CHECK(m.usage.why() == "disabled");
  CHECK(r.find("thread_heap") != nullptr);
  CHECK(r.find("process_heap") != nullptr);
  CHECK(r.find("steps") != nullptr);
  CHECK(disabled_side::refuses_second_close());
}

TEST_CASE("queries of a disabled translation unit say disabled, those of the enabled one work") {
  for (const std::string& why : disabled_side::reasons()) CHECK(why == "disabled");
  CHECK(tidemark::hook_state() == tidemark::hook_kind::global_new);
  CHECK(tidemark::thread_usage().has_value());
  CHECK(tidemark::process_usage().has_value());
}

TEST_CASE("resetting the peak in a disabled translation unit does nothing") {
  { const heap_block b(3'000'000); }
  const std::int64_t peak = tidemark::process_usage().value_or(tidemark::usage{}).peak_bytes;
  static_cast<void>(disabled_side::reasons());
  CHECK(tidemark::process_usage().value_or(tidemark::usage{}).peak_bytes == peak);
}

TEST_CASE("measure and monitored run their callable in a disabled translation unit too") {
  std::int64_t duration_ns = -1;
  std::string why;
  CHECK(disabled_side::results(duration_ns, why) == std::vector<int>{1, 2, 3, 4});
  CHECK(duration_ns >= 0);
  CHECK(why == "disabled");
}

TEST_CASE("a sink attached in a disabled translation unit gets nothing, from either side") {
  const auto ring = std::make_shared<tidemark::ring_sink>(8);
  disabled_side::attach_there(ring, [] { const scope s("enabled"); });
  { const scope s("enabled"); }
  CHECK(ring->scopes().empty());
  CHECK(ring.use_count() == 1);
}

TEST_CASE("what a disabled translation unit allocates is counted, but nothing for its scopes") {
  const tidemark::usage alone = tidemark::thread_usage().value_or(tidemark::usage{});
  disabled_side::run_scopes(100);
  const tidemark::usage without_sink = tidemark::thread_usage().value_or(tidemark::usage{});
  CHECK(without_sink.allocations - alone.allocations == 1);
  CHECK(without_sink.allocated_bytes - alone.allocated_bytes == 100);

  const auto attached = tidemark::attach(std::make_shared<tidemark::ring_sink>(8));
  const tidemark::usage before = tidemark::thread_usage().value_or(tidemark::usage{});
  disabled_side::run_scopes(100);
  const tidemark::usage with_sink = tidemark::thread_usage().value_or(tidemark::usage{});
  CHECK(with_sink.allocations - before.allocations == 1);

  const tidemark::usage open = tidemark::thread_usage().value_or(tidemark::usage{});
  const scope_record r = disabled_side::close_scope(100);
  const tidemark::usage closed = tidemark::thread_usage().value_or(tidemark::usage{});
  CHECK(closed.allocations - open.allocations == 1);
  CHECK(closed.live_bytes == open.live_bytes);
}

namespace {

scope_record seen_inside;
void look() { seen_inside = scope("inside").close(); }

}  // namespace

TEST_CASE("a disabled scope is in no path and owns nothing") {
  scope outer("outside");
  disabled_side::inside_scope(look);
  CHECK(seen_inside.path == "outside/inside");
  CHECK(seen_inside.depth == 1);
  CHECK(scope("disabled around").close().owned_bytes.value_or(-1) == 0);
}
