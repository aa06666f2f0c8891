// SPDX-License-Identifier: MIT
// Allocations fail on purpose; what is said of each is read back. Each case runs in a child: the report stays switched on.
#include <tidemark/monitor/out_of_memory.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/testing/faults.hpp>

#include "standard_error.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

constexpr std::size_t too_much = std::size_t{1} << 46;

/// What a child said that did `f`.
template <class F>
std::string said_by_child(F f) {
  standard_error said;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    report_on_out_of_memory();
    f();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return said.text();
}

std::size_t times(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

void fail_once() { escape(::operator new(too_much, std::nothrow)); }

}  // namespace

#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR() || !TIDEMARK_OPT_SANITIZER_HOOKS

TEST_CASE("a failed allocation is reported once, with who holds what") {
  const std::string text = said_by_child([] {
    domain weights("weights", {5'000});
    weights.allocated(3'000);
    std::unique_ptr<char[]> kept;
    {
      const scope outer("load");
      const scope inner("tokens");
      kept.reset(new char[3 << 20]);
      escape(kept.get());
    }
    fail_once();
  });
  CHECK(times(text, "out of memory: 64.0 TiB requested, and the allocator has none") == 1);
  CHECK(times(text, "  heap: ") == 1);
  CHECK(times(text, "  resident: ") == 1);
  CHECK(text.find("unknown") == std::string::npos);
  CHECK(times(text, "  domain \"weights\": 2.9 KiB live of 4.9 KiB") == 1);
  CHECK(times(text, "  scope load/tokens: 3.0 MiB live") == 1);
}

TEST_CASE("a new-handler that makes room is no failure, one that gives up is one") {
  const std::string quiet_end = said_by_child([] {
    static int calls = 0;
    std::set_new_handler([] {
      if (++calls == 3) std::set_new_handler(nullptr);
    });
    fail_once();
    CHECK(calls == 3);
  });
  CHECK(times(quiet_end, "out of memory: ") == 1);
  #if TIDEMARK_HAS_EXCEPTIONS()
  const std::string thrown = said_by_child([] {
    std::set_new_handler([] { throw std::bad_alloc(); });
    try {
      escape(::operator new(too_much));
    } catch (const std::bad_alloc&) {
    }
    fail_once();  // which swallows what the handler throws
  });
  CHECK(times(thrown, "out of memory: ") == 2);
  #endif
}

TEST_CASE("what a test's faults refuse is not reported") {
  const std::string text = said_by_child([] {
    testing::fail_allocation injected(1);
    escape(::operator new(10, std::nothrow));
  });
  CHECK(text.empty());
}

TEST_CASE("after as many reports as were asked for it is silent") {
  const std::string text = said_by_child([] {
    report_on_out_of_memory({2});
    for (int i = 0; i < 5; ++i) fail_once();
  });
  CHECK(times(text, "out of memory: ") == 2);
  CHECK(times(text, "further failures are not reported") == 1);
}

TEST_CASE("failures of several threads are each told, one after the other") {
  const std::string text = said_by_child([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([] { fail_once(); });
    for (std::thread& t : threads) t.join();
  });
  CHECK(times(text, "out of memory: ") == 4);
  std::string_view rest = text;
  int at = 0;  // of the lines of one report
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    const bool is_first = line.find("out of memory") != std::string_view::npos;
    at = is_first ? 0 : at + 1;
    if (is_first) continue;
    if (at == 1) CHECK(line.find("  heap: ") != std::string_view::npos);
    if (at == 2) CHECK(line.find("  resident: ") != std::string_view::npos);
  }
}

TEST_CASE("a fork does not wait for a report, nor a report for a fork") {
  const std::string text = said_by_child([] {
    report_on_out_of_memory({1'000'000});
    std::vector<domain> domains;  // made after it: a fork locks them first
    for (int i = 0; i < 50; ++i) domains.emplace_back("domain " + std::to_string(i));
    std::atomic<bool> is_over{false};
    std::thread failing([&] {
      while (!is_over) fail_once();
    });
    for (int i = 0; i < 50; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        fail_once();
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
    }
    is_over = true;
    failing.join();
  });
  CHECK(times(text, "out of memory: ") >= 50);
}

#endif

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE("a domain over its limit is reported once, whoever allocates") {
  const std::string text = said_by_child([] {
    domain small_domain("activations", {1'000});
    try {
      small_domain.allocated(1'001);
    } catch (const over_budget&) {
    }
    if (small_domain.try_allocated(2'000)) std::abort();  // is no error
    try {
      std::vector<char, allocator<char>> v(5'000, 'x', allocator<char>(small_domain));
    } catch (const over_budget&) {
    }
  });
  CHECK(times(text, "over a limit: ") == 2);
  CHECK(times(text, "over a limit: 1001 B requested from domain \"activations\", 0 B in use of 1000 B") == 1);
  CHECK(times(text, "over a limit: 4.9 KiB requested") == 1);
}

#endif

TEST_CASE("what fails while a report is made is no report of its own") {
  detail::failure_reports reports;
  bool is_inner_made = false;
  int made = 0;
  for (int i = 0; i < 2; ++i) {
    reports.with_turn([&] {
      ++made;
      reports.with_turn([&] { is_inner_made = true; });
    });
  }
  CHECK(made == 2);
  CHECK(!is_inner_made);
}

TEST_CASE("without report_on_out_of_memory nothing is said") {
  standard_error said;
  fail_once();
  CHECK(said.text().empty());
}
