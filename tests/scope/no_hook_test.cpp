// SPDX-License-Identifier: MIT
// A program without a hook header.
#include <tidemark/tidemark.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::reading;
using tidemark::window_usage;

namespace {

template <class T>
void check_absent(const reading<T>& r) {
  CHECK(!r.has_value());
  CHECK(r.why().find("no heap hook") != std::string_view::npos);
  CHECK(r.why().find("<tidemark/hook/global_new.hpp>") != std::string_view::npos);
}

std::int64_t steps = 0;

struct step_meter {
  static constexpr const char* name = "steps";
  static constexpr const char* unit = "steps";
  static constexpr bool counts_events = false;
  struct window {
    std::int64_t entry = steps;
    [[nodiscard]] reading<window_usage> usage() const {
      window_usage u;
      u.entry_bytes = entry;
      u.exit_bytes = u.peak_bytes = steps;
      u.counts_events = counts_events;
      return u;
    }
    reading<window_usage> close() noexcept { return usage(); }
  };
};

}  // namespace

TEST_CASE("without a hook every query names the header that is missing") {
  CHECK(tidemark::hook_state() == tidemark::hook_kind::none);
  CHECK(tidemark::hook_reason().find("<tidemark/hook/global_new.hpp>") != std::string_view::npos);
  check_absent(tidemark::thread_usage());
  check_absent(tidemark::process_usage());
  tidemark::reset_process_peak();
  check_absent(tidemark::process_usage());
  CHECK(tidemark::self().events == 0);
}

TEST_CASE("without a hook scopes deliver records with a path and a duration and no heap readings") {
  const auto ring = std::make_shared<tidemark::ring_sink>(8);
  const auto attached = tidemark::attach(ring);
  {
    const tidemark::scope outer("outer");
    tidemark::basic_scope<meter::thread_heap, meter::process_heap, step_meter> inner("inner");
    const heap_block b(100);
    steps += 3;
    check_absent(inner.usage());
    check_absent(inner.usage<meter::process_heap>());
    CHECK(inner.usage<step_meter>().value_or(window_usage{}).net_bytes() == 3);
    const tidemark::scope_record r = inner.close();
    CHECK(r.path == "outer/inner");
    CHECK(r.name == "inner");
    CHECK(r.depth == 1);
    CHECK(r.start_ns > 0);
    CHECK(r.duration_ns >= 0);
    CHECK(r.thread != 0);
    CHECK(r.where.line() > 0);
    check_absent(r.owned_bytes);
    CHECK(r.meters.size() == 3);
    check_absent(r.meters.at(0).usage);
    check_absent(r.meters.at(1).usage);
    CHECK(usage_in(r, "steps").net_bytes() == 3);
  }
  const auto all = ring->scopes();
  CHECK(all.size() == 2);
  CHECK(all.at(1).path == "outer");
  check_absent(all.at(1).owned_bytes);
  CHECK(tidemark::text_sink::line(all.at(1)).find("absent (no heap hook") != std::string::npos);
  CHECK(tidemark::json_sink::line(all.at(1)).find(R"("owned_bytes":{"absent":"no heap hook)") != std::string::npos);
  CHECK(tidemark::json_sink::line(all.at(1)).find(R"("thread_heap":{"absent":"no heap hook)") != std::string::npos);
}

TEST_CASE("without a hook a scope that travels to another thread still has its path") {
  auto s = std::make_unique<tidemark::scope>("travels");
  std::thread([&s] {
    const tidemark::scope_record r = s->close();
    CHECK(r.path == "travels");
    check_absent(r.meters.at(0).usage);
  }).join();
  CHECK(tidemark::scope("next").close().path == "next");
}

TEST_CASE("without a hook measure and monitored still run their callable") {
  const auto m = tidemark::measure([](int n) { return n + 1; }, 1);
  CHECK(m.result == 2);
  CHECK(m.duration_ns >= 0);
  check_absent(m.usage);
  check_absent(tidemark::measure<meter::process_heap>([] {}).usage);
  CHECK(tidemark::monitored("monitored", [](int n) { return n * 2; })(4) == 8);
}
