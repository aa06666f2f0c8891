// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/ring.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>

#include "test.hpp"

using tidemark::ring_sink;
using tidemark::scope;
using tidemark::scope_record;

namespace {

std::vector<std::string> names_in(const ring_sink& ring) {
  std::vector<std::string> names;
  for (const scope_record& r : ring.scopes()) names.push_back(r.name);
  return names;
}

}  // namespace

TEST_CASE("a ring keeps the last records in the order of their arrival") {
  for (const std::size_t capacity : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
    CAPTURE(capacity);
    const auto ring = std::make_shared<ring_sink>(capacity);
    const auto attached = tidemark::attach(ring);
    std::vector<std::string> all;
    CHECK(ring->scopes().empty());
    for (int i = 0; i < 20; ++i) {
      all.push_back("scope " + std::to_string(i));
      { const scope s(all.back()); }
      const std::size_t kept = all.size() < capacity ? all.size() : capacity;
      CHECK(names_in(*ring) == std::vector<std::string>(all.end() - static_cast<std::ptrdiff_t>(kept), all.end()));
    }
  }
}

TEST_CASE("a ring keeps as many samples and alerts, each kind beside the others") {
  const auto ring = std::make_shared<ring_sink>(3);
  const auto attached = tidemark::attach(ring);
  for (int i = 0; i < 5; ++i) {
    tidemark::sample_record sample;
    sample.time_ns = i;
    sample.domains.push_back({"weights", tidemark::usage{}, i, false});
    tidemark::detail::deliver(&tidemark::sink::on_sample, sample);
    { const scope s("scope"); }
  }
  tidemark::alert_record alert;
  alert.name = "resident";
  tidemark::detail::deliver(&tidemark::sink::on_alert, alert);
  std::vector<std::int64_t> times;
  for (const tidemark::sample_record& r : ring->samples()) {
    times.push_back(r.time_ns);
    CHECK(r.domains.at(0).limit_bytes == r.time_ns);
  }
  CHECK(times == std::vector<std::int64_t>{2, 3, 4});
  CHECK(ring->scopes().size() == 3);
  CHECK(ring->alerts().size() == 1);
  CHECK(ring->alerts().at(0).name == "resident");
}

TEST_CASE("a ring without room keeps nothing") {
  const auto ring = std::make_shared<ring_sink>(0);
  const auto attached = tidemark::attach(ring);
  { const scope s("gone"); }
  CHECK(ring->scopes().empty());
  CHECK(tidemark::self().dropped_records == 0);
}

TEST_CASE("kept records are complete and outlive the ring") {
  std::vector<scope_record> kept;
  {
    const auto ring = std::make_shared<ring_sink>(2);
    const auto attached = tidemark::attach(ring);
    const scope outer("outer");
    { const scope inner("inner"); }
    kept = ring->scopes();
  }
  CHECK(kept.size() == 1);
  CHECK(kept.at(0).path == "outer/inner");
  CHECK(kept.at(0).depth == 1);
  CHECK(kept.at(0).meters.size() == 1);
  CHECK(kept.at(0).meters.at(0).meter == "thread_heap");
}

TEST_CASE("a ring's memory is not in the user's numbers") {
  const std::string name(100, 'n');
  alignas(ring_sink) unsigned char place[sizeof(ring_sink)];
  { const scope warm(name); }
  const auto usage = [] { return tidemark::thread_usage().value_or(tidemark::usage{}); };
  const tidemark::usage before = usage();
  auto* made = new (place) ring_sink(1'000);
  {
    const std::shared_ptr<ring_sink> ring(std::shared_ptr<ring_sink>(), made);  // owns nothing: no block of its own
    const auto attached = tidemark::attach(ring);
    for (int i = 0; i < 1'500; ++i) const scope s(name);
    const std::vector<scope_record> records = ring->scopes();
    tidemark::escape(records.data());
  }
  const tidemark::usage held = usage();
  made->~ring_sink();
  const tidemark::usage after = usage();
  CHECK(held.allocations == before.allocations);
  CHECK(held.live_bytes == before.live_bytes);
  CHECK(after.deallocations == before.deallocations);
  CHECK(after.live_bytes == before.live_bytes);
}

TEST_CASE("8 threads write and one reads at the same time, and each thread's records stay in order") {
  constexpr int threads = 8;
  constexpr int scopes = 300;
  const auto ring = std::make_shared<ring_sink>(threads * scopes);
  const auto small = std::make_shared<ring_sink>(5);
  const auto attached = tidemark::attach(ring);
  const auto attached_too = tidemark::attach(small);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([t] {
      for (int i = 0; i < scopes; ++i) {
        const scope outer("thread " + std::to_string(t));
        const scope s(std::to_string(i));
      }
    });
  }
  std::size_t most = 0;
  while (ring->scopes().size() < threads * scopes) {
    const std::size_t kept = small->scopes().size();
    if (kept > most) most = kept;
  }
  for (std::thread& w : workers) w.join();
  CHECK(most <= 5);
  CHECK(small->scopes().size() == 5);
  // 2 records for each turn of a thread: the ring keeps the last half.
  std::map<std::uint64_t, std::int64_t> last_start;
  int wrong = 0;
  const std::vector<scope_record> records = ring->scopes();
  for (const scope_record& r : records) {
    if (r.depth != 1) continue;
    std::int64_t& last = last_start[r.thread];
    wrong += r.start_ns >= last && r.path.compare(0, 7, "thread ") == 0 ? 0 : 1;
    last = r.start_ns;
  }
  CHECK(records.size() == threads * scopes);
  CHECK(wrong == 0);
}
