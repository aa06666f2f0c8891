// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sink/callback.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <tidemark/core/sink.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/ring.hpp>

#include "records.hpp"
#include "test.hpp"

using tidemark::callback_sink;
using tidemark::scope;
using tidemark::scope_record;

TEST_CASE("a callback gets each record while it is attached, on the thread that closed the scope") {
  std::vector<std::string> paths;
  std::uint64_t thread = 0;
  {
    const auto attached = tidemark::attach(std::make_shared<callback_sink>([&](const scope_record& r) {
      paths.push_back(r.path);
      thread = static_cast<std::uint64_t>(syscall(SYS_gettid));
    }));
    {
      const scope outer("outer");
      const scope inner("inner");
    }
    CHECK(thread == static_cast<std::uint64_t>(::getpid()));
    std::uint64_t other = 0;
    std::thread([&other] {
      other = static_cast<std::uint64_t>(syscall(SYS_gettid));
      const scope s("elsewhere");
    }).join();
    CHECK(thread == other);
  }
  { const scope s("after"); }
  CHECK(paths == std::vector<std::string>{"outer/inner", "outer", "elsewhere"});
}

TEST_CASE("the record of a callback is the one that close returns") {
  scope_record seen;
  const auto attached = tidemark::attach(std::make_shared<callback_sink>([&seen](const scope_record& r) { seen = r; }));
  const scope_record r = scope("closed").close();
  CHECK(seen.path == r.path);
  CHECK(seen.start_ns == r.start_ns);
  CHECK(seen.duration_ns == r.duration_ns);
  CHECK(seen.thread == r.thread);
  CHECK(seen.meters.size() == r.meters.size());
}

TEST_CASE("what a callback allocates is never counted, also when it is freed later") {
  std::vector<std::string> kept;
  {
    const auto attached = tidemark::attach(std::make_shared<callback_sink>(
        [&kept](const scope_record& r) { kept.push_back(r.path + std::string(1'000, 'x')); }));
    const scope outer("outer");
    const tidemark::usage before = tidemark::thread_usage().value_or(tidemark::usage{});
    for (int i = 0; i < 10; ++i) const scope s("inner");
    const tidemark::usage after = tidemark::thread_usage().value_or(tidemark::usage{});
    kept.clear();
    kept.shrink_to_fit();
    const tidemark::usage freed = tidemark::thread_usage().value_or(tidemark::usage{});
    CHECK(after.allocations == before.allocations);
    CHECK(after.live_bytes == before.live_bytes);
    CHECK(freed.live_bytes == before.live_bytes);
    CHECK(freed.deallocations == before.deallocations);
  }
}

TEST_CASE("a scope inside a callback is measured and delivered to no sink") {
  std::vector<std::string> inside;
  const auto ring = std::make_shared<tidemark::ring_sink>(8);
  const auto attached = tidemark::attach(std::make_shared<callback_sink>([&inside](const scope_record& r) {
    scope s("in the callback of " + r.name);
    inside.push_back(s.close().name);
  }));
  const auto too = tidemark::attach(ring);
  { const scope s("outer"); }
  CHECK(inside == std::vector<std::string>{"in the callback of outer"});
  CHECK(ring->scopes().size() == 1);
}

TEST_CASE("threads call it at the same time and no record is lost") {
  std::atomic<int> calls{0};
  {
    const auto attached = tidemark::attach(std::make_shared<callback_sink>([&calls](const scope_record&) { ++calls; }));
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 500; ++i) const scope s("counted");
      });
    }
    for (std::thread& t : threads) t.join();
  }
  CHECK(calls == 4'000);
}

TEST_CASE("when the attachment is gone no call runs or starts") {
  std::atomic<bool> stop{false};
  std::thread worker([&stop] {
    while (!stop) const scope s("busy");
  });
  std::atomic<int> calls{0};
  std::atomic<int> late{0};
  for (int i = 0; i < 100; ++i) {
    const auto is_attached = std::make_shared<std::atomic<bool>>(true);
    const int before = calls;
    {
      const auto attached =
          tidemark::attach(std::make_shared<callback_sink>([&calls, &late, is_attached](const scope_record&) {
            ++calls;
            for (int turn = 0; turn < 20; ++turn) {
              std::this_thread::yield();
              if (!*is_attached) ++late;
            }
          }));
      while (calls == before) std::this_thread::yield();  // one is running, or has just ended
    }
    *is_attached = false;
  }
  stop = true;
  worker.join();
  CHECK(calls >= 100);
  CHECK(late == 0);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("what a callback throws is said once and counted, and reaches neither the scope nor other sinks") {
  const std::uint64_t before = tidemark::self().dropped_records;
  const auto ring = std::make_shared<tidemark::ring_sink>(8);
  standard_error captured;
  {
    const auto throwing = tidemark::attach(
        std::make_shared<callback_sink>([](const scope_record&) { throw std::runtime_error("not today"); }));
    const auto working = tidemark::attach(ring);
    { const scope s("first"); }
    const scope_record r = scope("second").close();
    CHECK(!r.left_by_exception);
  }
  const std::string said = captured.text();
  CHECK(lines_of(said).size() == 1);
  CHECK(said.find("tidemark: a sink threw: not today") == 0);
  CHECK(tidemark::self().dropped_records - before == 2);
  CHECK(ring->scopes().size() == 2);
}

TEST_CASE("a callback that is empty drops its records") {
  const std::uint64_t before = tidemark::self().dropped_records;
  const standard_error silenced;
  {
    const auto empty = tidemark::attach(std::make_shared<callback_sink>(std::function<void(const scope_record&)>()));
    const scope s("dropped");
  }
  CHECK(tidemark::self().dropped_records - before == 1);
}
#endif
