// SPDX-License-Identifier: MIT
// Allocations that fail on purpose, under whichever hook the program includes.
#pragma once

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>
#include <tidemark/testing/faults.hpp>

#include "test.hpp"

namespace failures {

namespace t = tidemark::testing;
using tidemark::escape;

/// Which of so many allocations fail: '.' and 'x'.
inline std::string pattern(int n) {
  std::string seen;
  {
    const tidemark::quiet hidden;
    seen.reserve(64);
  }
  for (int i = 0; i < n; ++i) {
    void* p = ::operator new(static_cast<std::size_t>(10 + i), std::nothrow);
    escape(p);
    seen += p == nullptr ? 'x' : '.';
    ::operator delete(p);
  }
  return seen;
}

inline bool says(const t::verdict& v, const std::string& text) { return v.message.find(text) != std::string::npos; }

}  // namespace failures

using namespace failures;

TEST_CASE("the chosen allocations fail, and no others") {
  const auto seen = [](std::int64_t nth, std::int64_t count) {
    const t::fail_allocation fault(nth, count);
    std::string p = pattern(6);
    return p + " " + std::to_string(fault.requests()) + " " + std::to_string(fault.failures()) + " " +
           std::to_string(fault.failed_bytes());
  };
  CHECK(seen(1, 1) == "x..... 6 1 10");
  CHECK(seen(3, 1) == "..x... 6 1 12");
  CHECK(seen(3, 2) == "..xx.. 6 2 12");
  CHECK(seen(2, INT64_MAX) == ".xxxxx 6 5 11");
  CHECK(seen(7, 1) == "...... 6 0 0");
  CHECK(pattern(3) == "...");
}

TEST_CASE("what is hidden, and what other threads allocate, is not counted") {
  const t::fail_allocation fault(1);
  std::string there;
  {
    const tidemark::quiet hidden;
    std::thread([&] {
      const tidemark::quiet also;
      there.assign(pattern(3));
    }).join();
    CHECK(pattern(2) == "..");
  }
  CHECK(fault.requests() == 0);
  CHECK(there == "...");
}

TEST_CASE("one allocation through several layers is one") {
  const tidemark::domain outer("outer");
  tidemark::resource below(outer, std::pmr::new_delete_resource());
  tidemark::resource above(outer, &below);
  const t::fail_allocation fault(1'000);
  {
    std::vector<int, tidemark::allocator<int>> v(10, 0, outer);
    escape(v.data());
  }
  CHECK(fault.requests() == 1);
  {
    std::pmr::vector<int> v(10, 0, &above);
    escape(v.data());
  }
  CHECK(fault.requests() == 2);
}

TEST_CASE("over a domain only what is fed to it, or to a domain inside it, is counted and fails") {
  const tidemark::domain parent("parent");
  const tidemark::domain child("child", {-1, const_cast<tidemark::domain*>(&parent)});
  const tidemark::domain other("other");
  const auto fails = [](const tidemark::domain& d) {
    tidemark::resource r(d);
#if TIDEMARK_HAS_EXCEPTIONS()
    try {
      r.deallocate(r.allocate(8), 8);
    } catch (const std::bad_alloc&) {
      return true;
    }
#endif
    return false;
  };
  const t::fail_allocation fault(1, INT64_MAX, parent);
  CHECK(pattern(2) == "..");
  CHECK_FALSE(fails(other));
#if TIDEMARK_HAS_EXCEPTIONS()
  CHECK(fails(parent));
  CHECK(fails(child));
  CHECK(fault.requests() == 2);
  CHECK(child.current().live_bytes == 0);
#endif
}

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE("bad numbers, other extents and a second fault are errors, and change nothing") {
  CHECK_THROWS_AS(static_cast<void>(t::fail_allocation(0)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t::fail_allocation(-1)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t::fail_allocation(1, 0)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t::fail_allocation(1, 1, t::extent::process)), std::invalid_argument);
  std::string what;
  std::string seen;
  {
    const t::fail_allocation fault(2);
    try {
      const t::fail_allocation nested(1);
    } catch (const std::logic_error& e) {
      const tidemark::quiet hidden;
      what = e.what();
    }
    seen = pattern(3);
  }
  CHECK(what.find("another one is open on this thread") != std::string::npos);
  CHECK(seen == ".x.");
}

TEST_CASE("exception objects never count, and never fail") {
  std::uint64_t requests = 0;
  bool is_whole = true;
  {
    const t::fail_allocation fault(1, INT64_MAX);
    for (int i = 0; i < 3; ++i) {
      try {
        throw i;
      } catch (int caught) {
        is_whole = is_whole && caught == i;
      }
      try {
        std::rethrow_exception(std::make_exception_ptr(i));
      } catch (int caught) {
        is_whole = is_whole && caught == i;
      }
    }
    requests = fault.requests();
  }
  CHECK(requests == 0);
  CHECK(is_whole);
}

TEST_CASE("a new-handler's second try is the same allocation, and succeeds") {
  static int calls;
  calls = 0;
  std::set_new_handler([] { ++calls; });
  std::uint64_t requests = 0;
  {
    const t::fail_allocation fault(1);
    ::operator delete(::operator new(10));
    requests = fault.requests();
  }
  std::set_new_handler(nullptr);
  CHECK(calls == 1);
  CHECK(requests == 1);
}

// ---- each in turn ----

TEST_CASE("f runs once undisturbed, then with each allocation failing in turn, and once more") {
  int runs = 0;
  int failed[8] = {};
  const t::failure_report report = t::for_each_allocation_failure([&] {
    ++runs;
    for (int i = 0; i < 3; ++i) {
      void* p = ::operator new(100, std::nothrow);
      escape(p);
      if (p == nullptr) failed[runs] = i + 1;
      ::operator delete(p);
    }
  });
  CHECK(report.ok);
  CHECK(report.points == 3);
  CHECK(runs == 5);
  CHECK(failed[1] == 0);
  CHECK(failed[2] == 1);
  CHECK(failed[3] == 2);
  CHECK(failed[4] == 3);
  CHECK(failed[5] == 0);
  CHECK(says(report, "survived each of 3 failing allocations"));
}

TEST_CASE("correct code over the standard library survives") {
  const auto survives = [](auto f) {
    const t::failure_report report = t::for_each_allocation_failure(f);
    CAPTURE(report.message);
    CHECK(report.ok);
    CHECK(report.points > 0);
  };
  survives([] {
    std::map<int, std::string> m;
    for (int i = 0; i < 5; ++i) m[i] = std::string(40, 'x');
    m.erase(3);
  });
  survives([] {
    std::unordered_map<std::string, std::vector<int>> m;
    for (int i = 0; i < 20; ++i) m[std::string(30, static_cast<char>('a' + i))].resize(10);
  });
  survives([] {
    std::vector<std::shared_ptr<std::string>> v;
    for (int i = 0; i < 5; ++i) v.push_back(std::make_shared<std::string>(50, 'x'));
    v.insert(v.begin(), std::shared_ptr<std::string>(new std::string(60, 'y')));
  });
  survives([] {
    int held[20] = {};
    std::function<int()> f = [held] { return held[0]; };
    std::function<int()> g = f;
    escape(&g);
  });
}

TEST_CASE("what the library swallows is no fault") {
  const t::failure_report report = t::for_each_allocation_failure([] {
    std::ostringstream out;
    out << std::string(500, 'x') << 7 << std::string(5'000, 'y');
    std::vector<int> v(2'000);
    std::iota(v.rbegin(), v.rend(), 0);
    std::stable_sort(v.begin(), v.end());
    if (!std::is_sorted(v.begin(), v.end())) std::abort();
  });
  CAPTURE(report.message);
  CHECK(report.ok);
  CHECK(report.points > 3);
}

namespace {
struct leaks_when_it_throws {
  leaks_when_it_throws() : first(made(new int[3])), second(new int[5]) {}
  ~leaks_when_it_throws() {
    delete[] first;
    delete[] second;
  }
  leaks_when_it_throws(const leaks_when_it_throws&) = delete;
  leaks_when_it_throws& operator=(const leaks_when_it_throws&) = delete;
  // What it leaks is given back at the end of the test, for the sanitizers' sake.
  static int* made(int* p) {
    last[count++ % 4] = p;
    return p;
  }
  static inline int* last[4];
  static inline int count = 0;
  int* first;
  int* second;
};
}  // namespace

TEST_CASE("a constructor that leaks when it throws is found, with the number and the size") {
  const t::failure_report report = t::for_each_allocation_failure([] {
    std::vector<int> before(7);
    escape(before.data());
    const leaks_when_it_throws object;
    escape(&object);
  });
  // The last run was undisturbed; the two before it leaked theirs.
  for (int i = 1; i <= 2; ++i) delete[] leaks_when_it_throws::last[(leaks_when_it_throws::count - 1 - i) % 4];
  CHECK_FALSE(report.ok);
  CHECK(report.number == 3);
  CHECK(report.bytes == 20);
  CHECK(says(report, "memory is left behind: 1 block, 12 bytes"));
  CHECK(says(report, "allocation 3 of the run, 20 bytes"));
}

TEST_CASE("what leaks even where nothing fails is told as that") {
  std::vector<void*> kept;
  kept.reserve(100);
  const t::failure_report report = t::for_each_allocation_failure([&] {
    kept.push_back(::operator new(64));
    if (void* p = ::operator new(32, std::nothrow)) kept.push_back(p);
  });
  for (void* p : kept) ::operator delete(p);
  CHECK_FALSE(report.ok);
  CHECK(report.number == 0);
  CHECK(says(report, "even where nothing fails"));
}

TEST_CASE("what is made once, at the first failure, is no leak") {
  static void* made_once = nullptr;
  const t::failure_report report = t::for_each_allocation_failure([] {
    void* p = ::operator new(10, std::nothrow);
    escape(p);
    if (p == nullptr && made_once == nullptr) escape(made_once = ::operator new(500));
    ::operator delete(p);
  });
  CAPTURE(report.message);
  CHECK(report.ok);
  CHECK(made_once != nullptr);
  ::operator delete(made_once);
}

TEST_CASE("anything but bad_alloc that comes out is named") {
  const t::failure_report text = t::for_each_allocation_failure([] {
    try {
      escape(std::make_unique<int>(1).get());
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("cannot read the model");
    }
  });
  CHECK_FALSE(text.ok);
  CHECK(says(text, "cannot read the model"));
  CHECK(text.number == 1);
  CHECK(text.bytes == 4);
  const t::failure_report number = t::for_each_allocation_failure([] {
    try {
      escape(std::make_unique<int>(1).get());
    } catch (const std::bad_alloc&) {
      throw 7;
    }
  });
  CHECK_FALSE(number.ok);
  CHECK(says(number, "no std::exception"));
}

TEST_CASE("what the caller checks is asked after each run, and named where it breaks") {
  int balance = 0;
  const t::failure_report report = t::for_each_allocation_failure(
      [&] {
        ++balance;
        escape(std::make_unique<int>(1).get());
        escape(std::make_unique<double>(1).get());
        --balance;
      },
      [&] { return balance == 0; });
  CHECK_FALSE(report.ok);
  CHECK(report.number == 1);
  CHECK(report.bytes == 4);
  CHECK(says(report, "what the caller checks does not hold afterwards"));
  CHECK(says(t::for_each_allocation_failure([] {}, [] { return false; }), "even where nothing fails"));
}

TEST_CASE("what f throws undisturbed passes through, and no fault stays open") {
  CHECK_THROWS_AS(static_cast<void>(t::for_each_allocation_failure([] { throw std::runtime_error("x"); }).ok),
                  std::runtime_error);
  CHECK(t::for_each_allocation_failure([] { escape(std::make_unique<int>(1).get()); }).points == 1);
}

TEST_CASE("inside quiet nothing could be made to fail, and so nothing is survived") {
  const tidemark::quiet hidden;
  const t::failure_report report = t::for_each_allocation_failure([] { escape(std::make_unique<int>(1).get()); });
  CHECK_FALSE(report.ok);
  CHECK(says(report, "tidemark::quiet is open on this thread"));
}

TEST_CASE("f without allocations survives, and says that there was none") {
  const t::failure_report report = t::for_each_allocation_failure([] {});
  CHECK(report.ok);
  CHECK(report.points == 0);
  CHECK(says(report, "there is no allocation to fail"));
}

TEST_CASE("a domain that nothing was allocated in is not survived") {
  const tidemark::domain empty("empty");
  CHECK_FALSE(t::for_each_allocation_failure([] { escape(std::make_unique<int>(1).get()); }, empty));
  const tidemark::domain weights("weights");
  const auto fill = [&] {
    std::vector<int, tidemark::allocator<int>> v(10, 0, weights);
    escape(v.data());
    v.resize(100);
  };
  const t::failure_report report = t::for_each_allocation_failure(fill, weights);
  CHECK(report.ok);
  CHECK(report.points == 2);
}

TEST_CASE("std::terminate says which allocation had failed, and goes on to the handler before") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    std::set_terminate([] { ::_exit(43); });
    const auto must_not_throw = []() noexcept { escape(std::make_unique<double>(1).get()); };
    static_cast<void>(t::for_each_allocation_failure([&] {
                        escape(std::make_unique<int>(1).get());
                        must_not_throw();
                      }).ok);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char text[512];
  for (ssize_t n = 0; (n = ::read(ends[0], text, sizeof text)) > 0;) said.append(text, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 43);
  CHECK(said.find("allocation 2 (8 bytes)") != std::string::npos);
}

#endif
