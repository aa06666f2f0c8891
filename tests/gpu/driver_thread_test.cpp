// SPDX-License-Identifier: MIT
// The one thread that calls drivers, given questions that answer, wait, hang and throw.
#include <tidemark/gpu/detail/ask.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/ledger.hpp>
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/meter.hpp>
#include <tidemark/gpu/pool.hpp>
#include <tidemark/gpu/process.hpp>
#include <tidemark/hook/global_new.hpp>

#include "fake_drivers.hpp"
#include "test.hpp"

using namespace tidemark;
using namespace tidemark::detail::driver;

namespace {

std::string_view code(const char* why) {
  const std::string_view text = why == nullptr ? "answered" : why;
  return text.substr(0, text.find(':'));
}

constexpr std::int64_t a_minute_ns = 60'000'000'000;

/// While it stands, queries wait that long for the driver.
struct deadline {
  explicit deadline(std::int64_t ns) { gpu::set_driver_deadline_ns(ns); }
  ~deadline() { gpu::set_driver_deadline_ns(a_minute_ns); }
  deadline(const deadline&) = delete;
  deadline& operator=(const deadline&) = delete;
};

/// Null, or why there is no answer to the simplest question.
const char* ask_for(int value) {
  int answer = 0;
  const char* const why =
      ask_driver(answer, [value](driver_state&, int& a) -> const char* { return a = value, nullptr; });
  if (why == nullptr) CHECK(answer == value);
  return why;
}

/// Until a call that was given up has returned.
void wait_for_answers() {
  while (ask_for(1) != nullptr) std::this_thread::yield();
}

/// The exit status of a child that runs `f`.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(f());
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

const struct long_deadline {
  long_deadline() { gpu::set_driver_deadline_ns(a_minute_ns); }
} by_default;

}  // namespace

TEST_CASE("every question is asked on one thread that is not the asker's and gets no signal") {
  struct seen {
    pthread_t thread{};
    bool lets_signals_in = true;
  };
  const auto look = [](driver_state&, seen& s) -> const char* {
    s.thread = pthread_self();
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    s.lets_signals_in = sigismember(&blocked, SIGTERM) == 0 || sigismember(&blocked, SIGUSR1) == 0 ||
                        sigismember(&blocked, SIGPROF) == 0;
    return nullptr;
  };
  seen first;
  REQUIRE(ask_driver(first, look) == nullptr);
  CHECK(pthread_equal(first.thread, pthread_self()) == 0);
  CHECK_FALSE(first.lets_signals_in);
  std::vector<std::thread> askers;
  std::atomic<int> same{0};
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        seen s;
        if (ask_driver(s, look) == nullptr && pthread_equal(s.thread, first.thread) != 0) ++same;
      }
    });
  }
  for (std::thread& t : askers) t.join();
  CHECK(same.load() == 400);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  CHECK(sigismember(&mine, SIGTERM) == 0);
}

TEST_CASE("each asker gets the answer to its own question") {
  std::vector<std::thread> askers;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&right, i] {
      for (int j = 0; j < 100; ++j) {
        std::string answer;
        const std::string expected = std::to_string(i) + " " + std::to_string(j) + " and a text of some length";
        const char* const why = ask_driver(answer, [expected](driver_state&, std::string& a) -> const char* {
          a = expected;
          return nullptr;
        });
        if (why == nullptr && answer == expected) ++right;
      }
    });
  }
  for (std::thread& t : askers) t.join();
  CHECK(right.load() == 400);
}

TEST_CASE("a call that does not return is a timeout, at once for those who ask later, until it returns") {
  gate_of_calls gate;
  gate.shut();
  const auto held = std::make_shared<int>(1);
  int answer = 5;
  {
    const deadline soon(1'000'000);
    CHECK(code(ask_driver(answer, [&gate, held](driver_state&, int& a) -> const char* {
            gate.pass();
            return a = 7, nullptr;
          })) == "timeout");
  }
  CHECK(answer == 5);
  CHECK(held.use_count() == 2);          // the call goes on by itself
  CHECK(code(ask_for(1)) == "timeout");  // with a minute to wait: nobody waits
  CHECK(code(ask_for(2)) == "timeout");
  gate.open();
  wait_for_answers();
  CHECK(held.use_count() == 1);
  CHECK(answer == 5);
  CHECK(ask_for(3) == nullptr);
}

TEST_CASE("who waits for another's call that is given up is told so too") {
  gate_of_calls gate;
  gate.shut();
  std::atomic<bool> is_first_told{false};
  std::thread first([&] {
    gpu::set_driver_deadline_ns(50'000'000);
    int answer = 0;
    CHECK(code(ask_driver(answer, [&gate](driver_state&, int&) -> const char* {
            gate.pass();
            return nullptr;
          })) == "timeout");
    is_first_told.store(true);
  });
  while (gate.waiting.load() == 0) std::this_thread::yield();
  gpu::set_driver_deadline_ns(a_minute_ns);
  CHECK(code(ask_for(1)) == "timeout");  // long before its own minute
  first.join();
  CHECK(is_first_told.load());
  gate.open();
  wait_for_answers();
}

TEST_CASE("a call that throws has no answer, and the next one is asked") {
#if TIDEMARK_HAS_EXCEPTIONS()
  int answer = 5;
  CHECK(code(ask_driver(answer, [](driver_state&, int&) -> const char* { throw std::bad_alloc(); })) == "no_memory");
  CHECK(answer == 5);
#endif
  CHECK(ask_for(1) == nullptr);
}

#if !TIDEMARK_HAS_TSAN()  // its runtime allows no new thread in a child of fork()
TEST_CASE("a child of fork() asks on a thread of its own, also while a call of the parent's hangs") {
  CHECK(in_child([] { return ask_for(1) == nullptr ? 0 : 1; }) == 0);
  gate_of_calls gate;
  gate.shut();
  int answer = 0;
  {
    const deadline soon(1'000'000);
    REQUIRE(code(ask_driver(answer, [&gate](driver_state&, int&) -> const char* {
              gate.pass();
              return nullptr;
            })) == "timeout");
  }
  CHECK(in_child([] { return ask_for(1) == nullptr ? 0 : 1; }) == 0);
  CHECK(in_child([] { return in_child([] { return ask_for(1) == nullptr ? 0 : 1; }); }) == 0);
  CHECK(code(ask_for(1)) == "timeout");
  gate.open();
  wait_for_answers();
}

TEST_CASE("forks while threads ask leave parent and child with answers") {
  std::atomic<bool> is_over{false};
  std::atomic<int> unanswered{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 3; ++i) {
    askers.emplace_back([&] {
      while (!is_over.load()) unanswered += ask_for(1) == nullptr ? 0 : 1;
    });
  }
  int failed = 0;
  for (int i = 0; i < 40; ++i) failed += in_child([] { return ask_for(2) == nullptr ? 0 : 1; });
  is_over.store(true);
  for (std::thread& t : askers) t.join();
  CHECK(failed == 0);
  CHECK(unanswered.load() == 0);
}
#endif

TEST_CASE("what is allocated for a question, and by what it calls, is in no number of the user's") {
  REQUIRE(hook_state() != hook_kind::none);
  CHECK(ask_for(1) == nullptr);
  const reading<usage> before = process_usage();
  std::string answer;
  REQUIRE(ask_driver(answer, [](driver_state&, std::string& a) -> const char* {
            a = "a text that is longer than a string holds in itself";
            delete[] new char[100'000];
            return nullptr;
          }) == nullptr);
  const reading<usage> after = process_usage();
  REQUIRE(before);
  REQUIRE(after);
  CHECK(after->allocations == before->allocations);
  CHECK(after->live_bytes == before->live_bytes);
}

TEST_CASE("where queries are switched off nothing is asked, and every query says so") {
  const auto every_query_is = [](std::string_view expected) {
    const gpu::device d{"GPU-some", "", ""};
    const auto is = [&](std::string_view why) { CHECK(why.substr(0, why.find(':')) == expected); };
    is(gpu::devices().why());
    is(gpu::memory(d).used_bytes.why());
    is(gpu::memory(d).total_bytes.why());
    is(gpu::process_memory(d).why());
    is(gpu::memory_pool(d).used_bytes.why());
    is(gpu::graph_pool(d).reserved_peak_bytes.why());
    is(gpu::reset_pool_peak(d).used_bytes.why());
    is(meter::device<>::window().usage().why());
    is(meter::device_pool<>::window().close().why());
    CHECK(gpu::memory(d).source.empty());
  };
  static std::atomic<int> opened{0};
  static const char* said = nullptr;
  static constexpr resolver counting{
      [](const char*, bool) -> void* {
        ++opened;
        return nullptr;
      },
      [](void*, const char*) -> void* { return nullptr; },
      [](const char* name) -> const char* { return std::string_view(name) == "TIDEMARK_GPU" ? said : nullptr; }};
  use_resolver(&counting);
  gpu::allow_queries(false);
  every_query_is("disabled");
  gpu::allow_queries(true);
  said = "off";
  every_query_is("disabled");
  CHECK(opened.load() == 0);
  said = "on";
  CHECK(code(std::string(gpu::memory({"GPU-some", "", ""}).used_bytes.why()).c_str()) == "no_library");
  CHECK(opened.load() > 0);
  use_resolver(nullptr);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a deadline is at least a nanosecond, and a device to feed has a name") {
  CHECK_THROWS_AS(gpu::set_driver_deadline_ns(0), std::invalid_argument);
  CHECK_THROWS_AS(gpu::set_driver_deadline_ns(-1), std::invalid_argument);
  CHECK_NOTHROW(gpu::set_driver_deadline_ns((std::numeric_limits<std::int64_t>::max)()));
  CHECK(ask_for(1) == nullptr);
  gpu::set_driver_deadline_ns(a_minute_ns);
  CHECK_THROWS_AS(static_cast<void>(gpu::domain_of(gpu::device())), std::invalid_argument);
}
#endif

TEST_CASE("a device has one domain for ever, outside the heap, which any description of it leads to") {
  domain& d = gpu::domain_of({"GPU-11112222", "Some name", ""});
  d.allocated(4'096);
  CHECK(&gpu::domain_of({"GPU-11112222", "", "0000:01:00.0"}) == &d);
  CHECK(&gpu::domain_of({"MIG-11112222", "", ""}) == &d);  // as CUDA and NVML write one instance
  CHECK(d.is_external());
  CHECK(d.name() == "device GPU-11112222");
  CHECK(gpu::domain_of({"GPU-11112222", "", ""}).current().live_bytes == 4'096);
  CHECK(&gpu::domain_of({"", "", "0000:01:00.0"}) != &d);
  CHECK(gpu::domain_of({"", "", "0000:01:00.0"}).name() == "device 0000:01:00.0");
  std::vector<std::thread> threads;
  std::atomic<domain*> seen[8] = {};
  for (auto& s : seen) threads.emplace_back([&s] { s.store(&gpu::domain_of({"NPU-7", "", ""})); });
  for (std::thread& t : threads) t.join();
  for (const auto& s : seen) CHECK(s.load() == seen[0].load());
  int named = 0;
  for (const domain& known : domains()) named += known.name() == "device NPU-7" ? 1 : 0;
  CHECK(named == 1);
  d.freed(4'096);
}
