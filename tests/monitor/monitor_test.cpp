// SPDX-License-Identifier: MIT
// Samples are compared with the queries they are made of and with the kernel; the thread, forks and clocks with what is said
// of them.
#include <tidemark/monitor/monitor.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/domain.hpp>
#include <tidemark/hook/global_new.hpp>

#include "monitor_support.hpp"
#include "resident_support.hpp"
#include "standard_error.hpp"
#include "test.hpp"

using namespace tidemark;

TEST_CASE("a sample is what the queries say") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  domain weights("weights", {1'000});
  domain device_memory("pool", {-1, nullptr, true});
  weights.allocated(700);
  device_memory.allocated(5'000);
  monitor_options o = by_hand();
  o.now_ns = [] { return std::int64_t{42}; };
  monitor m(o);
  const pages p(64 * MiB);
  p.touch();
  auto block = std::make_unique<char[]>(3 * MiB);
  escape(block.get());
  const reading<usage> heap = process_usage();
  m.check();
  const auto samples = sink->samples();
  REQUIRE(samples.size() == 1);
  const sample_record& s = samples[0];
  CHECK(s.time_ns == 42);
  CHECK(s.heap.has_value() == heap.has_value());
  if (s.heap.has_value()) {
    CHECK(s.heap->live_bytes == heap->live_bytes);
    CHECK(s.heap->live_bytes >= 3 * MiB);
  }
  CHECK(is_near(s.resident_bytes.value(), kernel_resident(), counters_error() + 4 * MiB));
  CHECK(s.resident_bytes.value() >= 64 * MiB - counters_error());
  const memory_limit_reading limit = memory_limit();
  CHECK(s.limit_source == name_of(limit.source));
  CHECK(s.limit_bytes.value() == limit.limit_bytes.value());
  CHECK(s.limit_used_bytes.value() <= s.limit_bytes.value());
  REQUIRE(s.domains.size() == 2);
  CHECK(s.domains[0].name == "weights");
  CHECK(s.domains[0].current.live_bytes == 700);
  CHECK(s.domains[0].limit_bytes == 1'000);
  CHECK(!s.domains[0].is_external);
  CHECK(s.domains[1].name == "pool");
  CHECK(s.domains[1].limit_bytes == -1);
  CHECK(s.domains[1].is_external);
  CHECK(s.devices.empty());
  CHECK(s.why_no_devices == "the monitor asks no devices: its device_interval is below 0");
  weights.freed(700);
  device_memory.freed(5'000);
}

TEST_CASE("devices are asked at their own interval") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  std::int64_t now = 0;
  monitor_options o = by_hand();
  o.device_interval = std::chrono::seconds{10};
  o.now_ns = [&] { return now; };
  monitor m(o);
  m.check();
  const std::string first(sink->samples()[0].why_no_devices);
  if (!sink->samples()[0].devices.empty()) return;  // this machine has some: drivers_check.py covers them
  CHECK(!first.empty());
  now = 9 * second;
  m.check();
  CHECK(sink->samples()[1].why_no_devices == first);
}

TEST_CASE("a thread takes samples until the monitor ends") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  {
    monitor_options o = by_hand();
    o.interval = std::chrono::microseconds(200);
    monitor m(o);
    sink->wait_for_samples(20);
  }
  const std::vector<sample_record> all = sink->samples();
  CHECK(std::is_sorted(all.begin(), all.end(),
                       [](const sample_record& a, const sample_record& b) { return a.time_ns < b.time_ns; }));
  {
    monitor_options o = by_hand();
    o.interval = std::chrono::hours(24 * 365 * 200);
    monitor m(o);
    sink->wait_for_samples(all.size() + 1);  // the first comes at once
  }
  CHECK(sink->samples().size() == all.size() + 1);
}

TEST_CASE("a monitor without an interval has no thread") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  const auto threads = [] { return kernel_line("/proc/self/status", "Threads:"); };
  const std::int64_t before = threads();
  monitor m(by_hand());
  CHECK(threads() == before);
  CHECK(sink->samples().empty());
}

TEST_CASE("the next sample is in step, and none is made up for") {
  CHECK(detail::next_turn(100, 101, 10) == 110);
  CHECK(detail::next_turn(100, 109, 10) == 110);
  CHECK(detail::next_turn(100, 110, 10) == 120);              // just missed
  CHECK(detail::next_turn(100, 1'000'000, 10) == 1'000'010);  // after a suspend: one, and not a hundred thousand
}

TEST_CASE("what is wrong with options is said, and nothing begins") {
#if TIDEMARK_HAS_EXCEPTIONS()
  const auto made = [](auto change) {
    monitor_options o = by_hand();
    change(o);
    monitor m(o);
  };
  CHECK_THROWS_AS(made([](monitor_options& o) { o.interval = std::chrono::seconds(-1); }), std::invalid_argument);
  CHECK_THROWS_AS(made([](monitor_options& o) { o.growth_samples = 29; }), std::invalid_argument);
  CHECK_THROWS_AS(made([](monitor_options& o) { o.clear_fraction = 1.01; }), std::invalid_argument);
  CHECK_THROWS_AS(made([](monitor_options& o) { o.clear_fraction = -0.01; }), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(resident_above(-1)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(above_fraction_of_limit(0)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(above_fraction_of_limit(1.1)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(growth_above(1, std::chrono::seconds(0))), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(device_above(gpu::device{}, 1)), std::invalid_argument);
#endif
}

TEST_CASE("a fork child has no thread until it restarts, and need not wait for one") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  monitor_options o = by_hand();
  o.interval = std::chrono::microseconds(500);
  auto m = std::make_unique<monitor>(o);
  sink->wait_for_samples(3);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    int failed = kernel_line("/proc/self/status", "Threads:") == 1'024 ? 0 : 1;  // one, read as KiB
    failed += m->growth().samples == 0 ? 0 : 32;                                 // the parent's are not its own
    const std::size_t before = sink->samples().size();
    m->check();
    failed += sink->samples().size() == before + 1 ? 0 : 2;
    m->restart();
    sink->wait_for_samples(before + 4);
    m->restart();  // it runs: nothing happens
    failed += kernel_line("/proc/self/status", "Threads:") == 2 * 1'024 ? 0 : 4;
    m.reset();
    failed += kernel_line("/proc/self/status", "Threads:") == 1'024 ? 0 : 8;
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      monitor other(o);  // of its own
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(grandchild, &status, 0);
    ::_exit(failed + (status == 0 ? 0 : 16));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (!has_noise) CHECK(status == 0);  // TSan has threads of its own
  const std::size_t before = sink->samples().size();
  sink->wait_for_samples(before + 2);  // the parent's goes on
  // A child that only drops it.
  const pid_t other = ::fork();
  if (other == 0) {
    ::alarm(60);
    m.reset();
    ::_exit(0);
  }
  ::waitpid(other, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("checks of several threads at once are each whole") {
  const auto sink = std::make_shared<keeping_sink>();
  const attachment attached = attach(sink);
  domain counted("counted");
  monitor_options o = by_hand();
  o.interval = std::chrono::microseconds(100);
  monitor m(o);
  std::atomic<int> raised{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        m.check();
        if (i % 20 == 0) m.alert_when(resident_above(1), [&](const alert_record&) { ++raised; });
        static_cast<void>(m.growth());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  m.check();
  CHECK(raised == 20);  // each once
  CHECK(sink->samples().size() >= 401);
  for (const sample_record& s : sink->samples()) CHECK(s.resident_bytes.has_value());
}

TEST_CASE("a check from inside of an alert or a sink is a check") {
  monitor m(by_hand());
  int calls = 0;
  m.alert_when(resident_above(1), [&](const alert_record&) {
    ++calls;
    m.check();
    m.alert_when(heap_above(1'000'000'000'000));
    static_cast<void>(m.growth());
  });
  m.check();
  CHECK(calls == 1);
}

TEST_CASE("an alert that a callback adds waits for the next sample, and two alerts of one name are told apart") {
  monitor m(by_hand());
  std::vector<std::string> told;
  std::function<void(const alert_record&)> again = [&](const alert_record& a) {
    told.push_back(a.name);
    m.alert_when(resident_above(1), again);
  };
  m.alert_when(resident_above(1), again);
  m.alert_when(resident_above(1), again);
  m.check();
  CHECK(told == std::vector<std::string>{"resident_above(1 B)", "resident_above(1 B) #2"});
  m.check();
  CHECK(told.size() == 4);
  CHECK(told.back() == "resident_above(1 B) #4");
}

TEST_CASE("a clock may say anything") {
  std::int64_t now = INT64_MIN;
  monitor_options o = by_hand();
  o.now_ns = [&] { return now; };
  o.device_interval = std::chrono::seconds(1);
  monitor m(o);
  m.alert_when(growth_above(1, std::chrono::seconds(1)));
  for (const std::int64_t t : {INT64_MIN, INT64_MAX, std::int64_t{0}, INT64_MIN, INT64_MAX}) {
    now = t;
    m.check();
  }
  CHECK(m.growth().verdict == growth_verdict::cannot_tell);
}

TEST_CASE("a fault of a callback goes to the program's own handler, and other signals to its own threads") {
  sigset_t blocked;
  sigemptyset(&blocked);
  {
    const auto sink = std::make_shared<keeping_sink>();
    const attachment attached = attach(sink);
    monitor_options o = by_hand();
    o.interval = std::chrono::hours(1);
    std::atomic<bool> is_read{false};
    o.now_ns = [&] {
      if (!is_read.exchange(true)) ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      return std::int64_t{0};
    };
    monitor m(o);
    sink->wait_for_samples(1);
  }
  CHECK(sigismember(&blocked, SIGTERM) == 1);
  CHECK(sigismember(&blocked, SIGUSR1) == 1);
  CHECK(sigismember(&blocked, SIGSEGV) == 0);
  CHECK(sigismember(&blocked, SIGABRT) == 0);
}

TEST_CASE("growth is judged on what the monitor sampled") {
  std::int64_t now = 0;
  monitor_options o = by_hand();
  o.now_ns = [&] { return now; };
  monitor m(o);
  domain grown("grown");
  CHECK(m.growth().verdict == growth_verdict::cannot_tell);
  std::vector<std::unique_ptr<char[]>> kept;
  const int samples = 200;
  for (int i = 0; i < samples; ++i) {
    kept.push_back(std::make_unique<char[]>(64 * 1'024));
    escape(kept.back().get());
    now += second;
    m.check();
  }
  const growth_reading g = m.growth();
  if (process_usage().has_value()) {
    CHECK(g.source == "heap");
    CHECK(g.samples == samples);
    CHECK(g.verdict == growth_verdict::leaking);
    CHECK(is_near(static_cast<std::int64_t>(g.bytes_per_minute.value()), 60 * 64 * 1'024, 64 * 1'024));
  }
  kept.clear();
}
