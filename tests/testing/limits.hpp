// SPDX-License-Identifier: MIT
// Limits on the heap and regions without allocations, under whichever hook the program includes.
#pragma once

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/testing/guards.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

namespace limits {

namespace t = tidemark::testing;
using tidemark::escape;

/// Whether a block of n bytes can be had; it is kept in `p`.
inline bool has(void*& p, std::size_t n) {
  p = ::operator new(n, std::nothrow);
  escape(p);
  return p != nullptr;
}
inline bool has(std::size_t n) {
  void* p = nullptr;
  const bool is_there = has(p, n);
  ::operator delete(p);
  return is_there;
}

/// The exit status of `f` in a child, or 1,000 and the signal; `said` is its standard error.
template <class F>
int status_of(F f, std::string* said = nullptr) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);  // not the test framework's
    ::_exit(f());
  }
  ::close(ends[1]);
  char text[512];
  for (ssize_t n = 0; (n = ::read(ends[0], text, sizeof text)) > 0;) {
    if (said != nullptr) said->append(text, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1'000 + WTERMSIG(status);
}

}  // namespace limits

using namespace limits;

TEST_CASE("a limit lets exactly so many bytes through, and not one more") {
  for (const std::size_t n : {std::size_t{1}, std::size_t{100}, std::size_t{70'000}, std::size_t{40} << 20}) {
    const t::heap_limit limit(static_cast<std::int64_t>(n));
    CHECK(has(n));
    CHECK_FALSE(has(n + 1));
    void* most = nullptr;
    CHECK(has(most, n));
    CHECK_FALSE(has(1));
    ::operator delete(most);
    CHECK(has(n));
    CHECK(limit.refusals() == 2);
  }
  CHECK(has(std::size_t{40} << 20));
}

TEST_CASE("what was live before does not count, and what of it is freed makes room") {
  void* before = nullptr;
  REQUIRE(has(before, 1'000));
  const t::heap_limit limit(10);
  CHECK_FALSE(has(11));
  ::operator delete(before);
  CHECK(has(1'010));
  CHECK_FALSE(has(1'011));
}

TEST_CASE("of nested limits the tightest holds, in whatever order they end") {
  std::optional<t::heap_limit> outer(std::in_place, 100);
  std::optional<t::heap_limit> inner(std::in_place, 1'000);
  CHECK(has(100));
  CHECK_FALSE(has(101));
  outer.reset();
  CHECK(has(1'000));
  CHECK_FALSE(has(1'001));
  outer.emplace(10);
  CHECK_FALSE(has(11));
  inner.reset();
  CHECK(has(10));
  CHECK_FALSE(has(11));
  outer.reset();
  CHECK(has(5'000));
}

TEST_CASE("a random trace under random limits is let through and refused as sums say") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    dice random(seed);
    constexpr std::size_t places = 24;
    struct truth {
      std::int64_t ceiling = 0;
      std::uint64_t refusals = 0;
    };
    std::optional<t::heap_limit> limits[4];
    truth truths[4];
    void* blocks[places] = {};
    std::int64_t sizes[places] = {};
    std::int64_t live = 0;
    int wrong = 0;
    for (int step = 0; step < 400; ++step) {
      const std::size_t i = random.below(places);
      const std::size_t l = random.below(4);
      if (random.below(12) == 0) {
        if (limits[l].has_value()) {
          wrong += limits[l]->refusals() == truths[l].refusals ? 0 : 1;
          limits[l].reset();
        } else {
          const auto room = static_cast<std::int64_t>(random.below(60'000));
          limits[l].emplace(room);
          truths[l] = {live + room, 0};
        }
      } else if (blocks[i] != nullptr) {
        ::operator delete(blocks[i]);
        blocks[i] = nullptr;
        live -= sizes[i];
      } else {
        const auto n = static_cast<std::int64_t>(random.below(random.below(8) == 0 ? 100'000 : 6'000));
        bool must_pass = true;
        // The newest is asked first, and one that refuses ends the asking: only who refuses is told apart below.
        for (std::size_t k = 0; k < 4; ++k) must_pass = must_pass && (!limits[k] || live + n <= truths[k].ceiling);
        std::uint64_t before[4] = {};
        for (std::size_t k = 0; k < 4; ++k) before[k] = limits[k] ? limits[k]->refusals() : 0;
        const bool has_passed = has(blocks[i], static_cast<std::size_t>(n));
        wrong += has_passed == must_pass ? 0 : 1;
        for (std::size_t k = 0; k < 4; ++k) {
          if (!limits[k] || limits[k]->refusals() == before[k]) continue;
          wrong += live + n > truths[k].ceiling ? 0 : 1;
          ++truths[k].refusals;
        }
        if (has_passed) {
          sizes[i] = n;
          live += n;
        }
      }
    }
    for (void* p : blocks) ::operator delete(p);
    CAPTURE(seed);
    CHECK(wrong == 0);
  }
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a limit makes every form of new fail as it fails") {
  const t::heap_limit limit(100);
  CHECK_THROWS_AS(escape(::operator new(101)), std::bad_alloc);
  CHECK_THROWS_AS(escape(::operator new[](101)), std::bad_alloc);
  CHECK_THROWS_AS(escape(::operator new (101, std::align_val_t{64})), std::bad_alloc);
  CHECK(::operator new[](101, std::nothrow) == nullptr);
  CHECK(::operator new (101, std::align_val_t{64}, std::nothrow) == nullptr);
  CHECK(limit.refusals() >=
        5);  // where malloc is seen, the memory of the exceptions is refused too: the runtime has a reserve
}

TEST_CASE("bad limits are errors") {
  CHECK_THROWS_AS(static_cast<void>(t::heap_limit(-1)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t::heap_limit(1, tidemark::domain("d"))), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(t::heap_limit(1, tidemark::task_token{})), std::invalid_argument);
}

TEST_CASE("a new-handler that makes room lets the second try through") {
  static void* spare;
  spare = ::operator new(1'000);
  const t::heap_limit limit(100);
  std::set_new_handler([] {
    ::operator delete(spare);
    spare = nullptr;
    std::set_new_handler(nullptr);
  });
  void* p = nullptr;
  CHECK_NOTHROW(p = ::operator new(1'050));
  escape(p);
  ::operator delete(p);
  CHECK(limit.refusals() == 1);
}
#endif

TEST_CASE("other threads are not under a thread's limit, and what is hidden is not") {
  const t::heap_limit limit(100);
  bool has_passed = false;
  {
    const tidemark::quiet hidden;
    std::thread([&] { has_passed = has(100'000); }).join();
    CHECK(has(5'000));
  }
  CHECK(has_passed);
}

TEST_CASE("a limit on the process holds for every thread, and for one alone to the byte") {
  barrier together(2);
  bool is_refused = false;
  bool is_free_again = false;
  std::thread other([&] {
    has(1);
    together.arrive_and_wait();
    together.arrive_and_wait();
    is_refused = !has(1'000'001);
    together.arrive_and_wait();
    together.arrive_and_wait();
    is_free_again = has(std::size_t{4} << 20);
  });
  together.arrive_and_wait();
  {
    const t::heap_limit limit(1'000'000, t::extent::process);
    CHECK(has(1'000'000));
    CHECK_FALSE(has(1'000'001));
    together.arrive_and_wait();
    together.arrive_and_wait();
    CHECK(limit.refusals() == 2);
  }
  together.arrive_and_wait();
  other.join();
  CHECK(is_refused);
  CHECK(is_free_again);
  CHECK(has(std::size_t{4} << 20));
}

TEST_CASE("threads together never pass a limit on the process") {
  constexpr int threads = 4;
  constexpr std::int64_t most = 60'000;  // less than one thread alone would take
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> highest{0};
  std::atomic<int> refused{0};
  std::atomic<int> passed{0};
  barrier together(threads);
  const auto work = [&](std::uint64_t seed) {
    dice random(seed);
    void* blocks[16] = {};
    std::int64_t sizes[16] = {};
    together.arrive_and_wait();
    for (int step = 0; step < 4'000; ++step) {
      const std::size_t i = random.below(16);
      if (blocks[i] != nullptr) {
        live -= sizes[i];  // before the free: never more is counted here than is there
        ::operator delete(blocks[i]);
        blocks[i] = nullptr;
        continue;
      }
      sizes[i] = static_cast<std::int64_t>(1 + random.below(30'000));
      if (!has(blocks[i], static_cast<std::size_t>(sizes[i]))) {
        ++refused;
        continue;
      }
      ++passed;
      const std::int64_t now = live += sizes[i];
      for (std::int64_t seen = highest; now > seen && !highest.compare_exchange_weak(seen, now);) {
      }
    }
    for (std::size_t i = 0; i < 16; ++i) {
      live -= blocks[i] != nullptr ? sizes[i] : 0;
      ::operator delete(blocks[i]);
    }
    together.arrive_and_wait();
  };
  std::vector<std::thread> all;
  all.reserve(threads);
  {
    // The threads are there before the limit is.
    barrier ready(threads + 1);
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&, i] {
        ready.arrive_and_wait();
        ready.arrive_and_wait();
        work(static_cast<std::uint64_t>(i));
        ready.arrive_and_wait();
      });
    }
    ready.arrive_and_wait();
    const t::heap_limit limit(most, t::extent::process);
    ready.arrive_and_wait();
    ready.arrive_and_wait();
    CHECK(limit.refusals() == static_cast<std::uint64_t>(refused.load()));
  }
  for (std::thread& one : all) one.join();
  CHECK(highest <= most);
  CHECK(refused > 100);
  CHECK(passed > 100);
}

TEST_CASE("a fork child is not under a limit that another thread opened, and is under its own") {
  barrier together(2);
  std::thread other([&] {
    const t::heap_limit limit(1'000, t::extent::process);
    together.arrive_and_wait();
    together.arrive_and_wait();
  });
  together.arrive_and_wait();
  CHECK(status_of([] { return has(100'000) ? 0 : 1; }) == 0);
  together.arrive_and_wait();
  other.join();
  const t::heap_limit limit(1'000, t::extent::process);
  CHECK(status_of([] { return !has(100'000) && has(1'000) ? 0 : 1; }) == 0);
}

// ---- regions ----

TEST_CASE("a region counts what is allocated in it, and nothing else") {
  void* before = nullptr;
  REQUIRE(has(before, 50));
  std::uint64_t seen[4] = {};
  {
    const t::no_allocation_region region;
    ::operator delete(before);
    has(100);
    has(300);
    has(200);
    seen[0] = region.allocations();
    seen[1] = region.allocated_bytes();
    seen[2] = region.largest_bytes();
    seen[3] = region.first_bytes();
  }
  has(1'000);
  CHECK(seen[0] == 3);
  CHECK(seen[1] == 600);
  CHECK(seen[2] == 300);
  CHECK(seen[3] == 100);
}

TEST_CASE("exemptions and regions nest, and each region is told of what is within it") {
  std::uint64_t outer_count = 0;
  std::uint64_t inner_count = 0;
  {
    const t::no_allocation_region outer;
    has(1);
    {
      const t::allow_allocations exempt;
      has(2);
      const t::no_allocation_region inner;
      has(3);
      inner_count = inner.allocations();
    }
    {
      const t::no_allocation_region both;
      has(4);
    }
    const tidemark::quiet hidden;
    has(5);
    outer_count = outer.allocations();
  }
  CHECK(inner_count == 1);
  CHECK(outer_count == 2);
}

TEST_CASE("a callback is told before the allocation, and may allocate") {
  std::vector<t::forbidden_attempt> told;
  {
    const t::no_allocation_region region([&](const t::forbidden_attempt& a) { told.push_back(a); });
    has(10);
    has(20);
  }
  REQUIRE(told.size() == 2);
  CHECK(told[0].bytes == 10);
  CHECK(told[1].bytes == 20);
  CHECK(told[1].number == 2);
  CHECK_FALSE(told[0].may_throw);  // nothrow new
}

TEST_CASE("abort says what was allocated, and where the region was opened") {
  std::string said;
  const int status = status_of(
      [] {
        const t::no_allocation_region region(t::reaction::abort);
        has(123);
        return 0;
      },
      &said);
  CHECK(status == 1'000 + SIGABRT);
  CHECK(said.find("123 bytes") != std::string::npos);
  CHECK(said.find("limits.hpp:") != std::string::npos);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("throw_error throws from new, and counts where nothing may throw") {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool is_thrown = false;
  {
    const t::no_allocation_region region(t::reaction::throw_error);
    has(10);
    try {
      escape(::operator new(77));
    } catch (const t::forbidden_allocation& e) {
      is_thrown = true;
      bytes = e.bytes();
    }
    count = region.allocations();
  }
  CHECK(is_thrown);
  CHECK(bytes == 77);
  CHECK(count == 2);
}

TEST_CASE("what a callback throws passes through new, and is said where nothing may throw") {
  bool is_thrown = false;
  {
    const t::no_allocation_region region([](const t::forbidden_attempt&) { throw std::bad_alloc(); });
    try {
      escape(::operator new(7));
    } catch (const std::bad_alloc&) {
      is_thrown = true;
    }
  }
  CHECK(is_thrown);
  std::string said;
  CHECK(status_of(
            [] {
              const t::no_allocation_region region([](const t::forbidden_attempt&) { throw std::runtime_error("no"); });
              return has(7) ? 0 : 1;
            },
            &said) == 0);
  CHECK(said.find("threw: no") != std::string::npos);
}
#endif

TEST_CASE("another thread's allocations are none of a region's") {
  std::uint64_t count = 0;
  barrier together(2);
  std::thread other([&] {
    together.arrive_and_wait();
    has(100);
    together.arrive_and_wait();
  });
  {
    const t::no_allocation_region region;
    together.arrive_and_wait();
    together.arrive_and_wait();
    count = region.allocations();
  }
  other.join();
  CHECK(count == 0);
}
