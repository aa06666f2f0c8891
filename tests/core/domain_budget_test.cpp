// SPDX-License-Identifier: MIT
// What a domain's limit allows, what it refuses and how it says so, and who is told that it comes near.
#include <tidemark/core/domain.hpp>
#include <tidemark/hook/global_new.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if TIDEMARK_HAS_POSIX()
  #include <fcntl.h>
  #include <sys/wait.h>
  #include <unistd.h>
#endif

#include "barrier.hpp"
#include "dice.hpp"
#include "files.hpp"
#include "test.hpp"

using tidemark::domain;
using tidemark::domain_options;
using tidemark::near_limit;
using tidemark::over_budget;
using tidemark::usage;

namespace {

constexpr bool is_slow = TIDEMARK_HAS_TSAN();

domain limited(std::string name, std::int64_t limit_bytes, domain* parent = nullptr) {
  domain_options options;
  options.limit_bytes = limit_bytes;
  options.parent = parent;
  return domain(std::move(name), options);
}

bool same(const usage& a, const usage& b) {
  return a.live_bytes == b.live_bytes && a.peak_bytes == b.peak_bytes && a.live_blocks == b.live_blocks &&
         a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes &&
         a.error_bound_bytes == b.error_bound_bytes;
}

template <class F>
void in_threads(std::size_t count, F f) {
  barrier start(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      f(i);
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace

// ---- the limit ----

TEST_CASE("exactly the limit is allowed, and one byte more is not") {
  domain d = limited("exact", 100);
  CHECK(d.limit() == 100);
  CHECK(!d.try_allocated(101));
  CHECK(d.try_allocated(60));
  CHECK(!d.try_allocated(41));
  CHECK(d.try_allocated(40));
  CHECK(d.current().live_bytes == 100);
  const usage full = d.current();
  CHECK(!d.try_allocated(1));
  CHECK(!d.try_allocated(INT64_MAX));
  CHECK(same(d.current(), full));
  CHECK(d.try_allocated(0));
  d.freed(60);
  CHECK(!d.try_allocated(61));
  CHECK(d.try_allocated(60));
  CHECK(d.current().peak_bytes == 100);
}

TEST_CASE("a limit of 0 allows nothing but blocks of 0 bytes") {
  domain d = limited("nothing", 0);
  CHECK(d.limit() == 0);
  CHECK(!d.try_allocated(1));
  CHECK(d.try_allocated(0));
  CHECK(d.current().live_blocks == 1);
}

TEST_CASE("without a limit everything is allowed that a number can hold") {
  domain d("unlimited");
  CHECK(d.try_allocated(INT64_MAX));
  CHECK(!d.try_allocated(1));
  CHECK(d.current().live_bytes == INT64_MAX);
  d.freed(INT64_MAX);
  domain full = limited("the most", INT64_MAX);
  CHECK(full.try_allocated(INT64_MAX - 1));
  CHECK(!full.try_allocated(2));
  CHECK(full.try_allocated(1));
  CHECK(full.current().peak_bytes == INT64_MAX);
}

TEST_CASE("a limit is raised, lowered to what is live, and taken away") {
  domain d = limited("moved", 100);
  CHECK(d.try_allocated(50));
  d.limit(50);
  CHECK(d.limit() == 50);
  CHECK(!d.try_allocated(1));
  d.limit(51);
  CHECK(d.try_allocated(1));
  CHECK(!d.try_allocated(1));
  d.limit(-1);
  CHECK(d.limit() == -1);
  CHECK(d.try_allocated(1'000'000));
  d.freed(1'000'051);
  d.limit(0);
  CHECK(!d.try_allocated(1));
}

TEST_CASE("every limit around a domain holds as well") {
  domain outer = limited("outer", 100);
  domain middle("middle", domain_options{-1, &outer, false});
  domain inner = limited("inner", 80, &middle);
  domain beside("beside", domain_options{-1, &outer, false});
  CHECK(!inner.try_allocated(81));
  CHECK(inner.try_allocated(80));
  CHECK(!inner.try_allocated(1));  // its own limit
  CHECK(!middle.try_allocated(21));
  CHECK(!beside.try_allocated(21));
  CHECK(beside.try_allocated(20));
  CHECK(outer.current().live_bytes == 100);
  CHECK(!beside.try_allocated(1));
  CHECK(!outer.try_allocated(1));
  inner.freed(30);
  CHECK(!beside.try_allocated(31));
  CHECK(beside.try_allocated(30));
  CHECK(!inner.try_allocated(1));  // now it is the outer one's
  CHECK(inner.current().live_bytes == 50);
  CHECK(middle.current().live_bytes == 50);
  CHECK(beside.current().live_bytes == 50);
  CHECK(outer.current().live_bytes == 100);
  CHECK(outer.current().peak_bytes == 100);
}

TEST_CASE("a refusal is counted nowhere, neither inside nor around") {
  domain outer("around");
  domain middle = limited("full", 10, &outer);
  domain inner("within", domain_options{-1, &middle, false});
  CHECK(inner.try_allocated(10));
  const usage before[] = {outer.current(), middle.current(), inner.current()};
  for (int i = 0; i < 1'000; ++i) CHECK(!inner.try_allocated(1 + i));
  CHECK(same(outer.current(), before[0]));
  CHECK(same(middle.current(), before[1]));
  CHECK(same(inner.current(), before[2]));
}

namespace {

/// Where threads race for the last byte: the domains that they feed, and the one whose limit is the tightest around all.
struct contest {
  const char* name;
  std::vector<domain> fed;
  domain bounded;
  std::int64_t limit;
};

std::vector<contest> contests(std::int64_t limit) {
  std::vector<contest> all;
  domain alone = limited("alone", limit);
  all.push_back({"one domain", {alone}, alone, limit});
  domain parent = limited("parent", limit);
  all.push_back({"an unlimited child of a limited parent", {domain("child", {-1, &parent, false})}, parent, limit});
  domain shared = limited("shared", limit);
  domain a("a", {-1, &shared, false});
  domain b("b", {-1, &shared, false});
  all.push_back({"two children of one limited parent", {a, b}, shared, limit});
  domain wide = limited("wide", 2 * limit);
  domain tight = limited("tight", limit, &wide);
  all.push_back({"a child with less than its parent", {domain("inside", {-1, &tight, false})}, tight, limit});
  return all;
}

}  // namespace

TEST_CASE("8 threads that race for a budget never exceed it, and use it up to the last byte") {
  for (const std::uint64_t largest : {1U, 97U}) {
    for (contest& c : contests(10'007)) {
      CAPTURE(largest);
      CAPTURE(c.name);
      std::atomic<std::int64_t> held{0};  // no more than what the domain holds at the same moment
      std::atomic<bool> is_exceeded{false};
      std::vector<std::int64_t> kept(8, 0);
      in_threads(8, [&](std::size_t self) {
        domain& mine = c.fed[self % c.fed.size()];
        dice d(self);
        std::vector<std::int64_t> blocks;
        const auto take = [&](std::int64_t n) {
          if (!mine.try_allocated(n)) return false;
          if (held.fetch_add(n) + n > c.limit) is_exceeded.store(true);
          blocks.push_back(n);
          return true;
        };
        for (int i = 0; i < (is_slow ? 1'000 : 20'000); ++i) {
          const auto n = static_cast<std::int64_t>(1 + d.below(largest));
          if (!take(n) || d.below(4) == 0) {
            // A few back, and on: the budget stays all but full.
            for (std::uint64_t back = d.below(3); back > 0 && !blocks.empty(); --back) {
              held.fetch_sub(blocks.back());
              mine.freed(blocks.back());
              blocks.pop_back();
            }
          }
          if (mine.current().live_bytes > c.limit) is_exceeded.store(true);
        }
        while (!is_exceeded.load() && take(1)) {
        }
        for (const std::int64_t n : blocks) kept[self] += n;
      });
      CHECK(!is_exceeded.load());
      std::int64_t sum = 0;
      for (const std::int64_t n : kept) sum += n;
      CHECK(sum == c.limit);
      CHECK(c.bounded.current().live_bytes == c.limit);
      CHECK(c.bounded.current().peak_bytes == c.limit);
      for (std::size_t i = 0; i < 8; ++i) c.fed[i % c.fed.size()].freed(kept[i]);
      CHECK(c.bounded.current().live_bytes == 0);
    }
  }
}

TEST_CASE("a limit moved while 8 threads race for it is never below what is live") {
  domain d = limited("moving", 1'000);
  std::atomic<bool> is_exceeded{false};
  std::atomic<int> running{7};
  in_threads(8, [&](std::size_t self) {
    dice dice_of(self);
    if (self == 0) {
      std::int64_t most = 1'000;
      while (running.load() > 0) {
        const auto limit = static_cast<std::int64_t>(dice_of.below(1'000));
        if (d.node().try_limit(limit)) {
          most = std::max(most, limit);
          if (d.current().live_bytes > limit) is_exceeded.store(true);
        }
      }
      return;
    }
    for (int i = 0; i < (is_slow ? 500 : 10'000); ++i) {
      const auto n = static_cast<std::int64_t>(dice_of.below(200));
      if (d.try_allocated(n)) d.freed(n);
    }
    running.fetch_sub(1);
  });
  CHECK(!is_exceeded.load());
  CHECK(d.current().live_bytes == 0);
  CHECK(d.current().peak_bytes <= 1'000);
}

TEST_CASE("a million refusals do not eat the budget") {
  domain outer = limited("eaten outer", 1'000);
  domain d("eaten", domain_options{-1, &outer, false});
  CHECK(d.try_allocated(400));
  const usage before = d.current();
  const usage outer_before = outer.current();
  std::atomic<int> admitted{0};
  in_threads(2, [&](std::size_t) {
    for (int i = 0; i < (is_slow ? 20'000 : 500'000); ++i) {
      if (d.try_allocated(601 + i % 1'000)) admitted.fetch_add(1);
    }
  });
  CHECK(admitted.load() == 0);
  CHECK(same(d.current(), before));
  CHECK(same(outer.current(), outer_before));
  CHECK(d.try_allocated(600));
  CHECK(!d.try_allocated(1));
}

TEST_CASE("room that was kept and given back a million times is all there, and was in no number") {
  domain outer = limited("kept outer", 1'000);
  domain d("kept", domain_options{-1, &outer, false});
  CHECK(d.try_allocated(400));
  const usage before = d.current();
  const usage outer_before = outer.current();
  in_threads(2, [&](std::size_t) {
    for (int i = 0; i < (is_slow ? 20'000 : 500'000); ++i) {
      const tidemark::detail::reservation room(d.node(), 300);  // never committed
    }
  });
  CHECK(same(d.current(), before));
  CHECK(same(outer.current(), outer_before));
  CHECK(d.try_allocated(600));
  CHECK(!d.try_allocated(1));
}

TEST_CASE("room that is kept for one is not given to another, nor taken by a lower limit") {
  domain outer = limited("kept for one", 100);
  domain d("keeps", domain_options{-1, &outer, false});
  {
    const tidemark::detail::reservation room(d.node(), 60);
    CHECK(d.current().live_bytes == 0);
    CHECK(outer.current().live_bytes == 0);
    CHECK(!outer.try_allocated(41));
    CHECK(!outer.node().try_limit(59));
    CHECK(outer.limit() == 100);
    CHECK(outer.node().try_limit(60));
    CHECK(!d.try_allocated(1));
    outer.limit(100);
  }
  CHECK(outer.current().peak_bytes == 0);
  {
    tidemark::detail::reservation room(d.node(), 60);
    room.commit();
  }
  CHECK(d.current().live_bytes == 60);
  CHECK(outer.current().peak_bytes == 60);
  CHECK(d.try_allocated(40));
}

TEST_CASE("a block that was asked for while there was no limit counts, and is given back, once there is one") {
  domain d("later limited");
  {
    tidemark::detail::reservation room(d.node(), 60);
    d.limit(100);
    room.commit();
  }
  CHECK(d.current().live_bytes == 60);
  CHECK(!d.try_allocated(41));
  CHECK(d.try_allocated(40));
  {
    const domain before = limited("no longer limited", 100);
    domain unlimited = before;
    tidemark::detail::reservation room(before.node(), 60);
    unlimited.limit(-1);
    room.commit();
    unlimited.limit(60);
    CHECK(!unlimited.try_allocated(1));
    unlimited.freed(60);
    CHECK(unlimited.try_allocated(60));
  }
}

#if TIDEMARK_HAS_POSIX() && !TIDEMARK_HAS_TSAN()

TEST_CASE("a fork child has the room that other threads, which it lacks, had asked for") {
  domain outer = limited("forked outer", 100);
  domain d("forked", domain_options{-1, &outer, false});
  barrier step(2);
  std::thread asking([&] {
    const tidemark::detail::reservation room(d.node(), 60);
    step.arrive_and_wait();
    step.arrive_and_wait();
  });
  step.arrive_and_wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(d.try_allocated(100) ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(!d.try_allocated(41));  // here it is still kept
  step.arrive_and_wait();
  asking.join();
  CHECK(d.try_allocated(100));
}

#endif

// ---- over_budget ----

static_assert(std::is_base_of_v<std::bad_alloc, over_budget>);
static_assert(std::is_nothrow_copy_constructible_v<over_budget>);

namespace {

bool is_one_line(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; });
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

TEST_CASE("over_budget names the domain and its figures") {
  const over_budget error("kv cache", 512 << 10, 63 << 20, 64 << 20);
  CHECK(error.requested_bytes() == 512 << 10);
  CHECK(error.live_bytes() == 63 << 20);
  CHECK(error.limit_bytes() == 64 << 20);
  CHECK(std::string_view(error.what()) ==
        "domain \"kv cache\" is over its limit: 512.0 KiB requested, 63.0 MiB of 64.0 MiB in use");
}

TEST_CASE("over_budget is one short line whatever the name is") {
  std::string controls;
  for (int c = 0; c < 32; ++c) controls += static_cast<char>(c);
  controls += '\x7F';
  for (const std::string& name : {std::string(), std::string(10'000, 'x'), std::string(10'000, '\n'), controls,
                                  std::string("a\r\nb\x1B[2J"), std::string(4'000, '"'), std::string(1, '\0')}) {
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1'047'552}, INT64_MAX, INT64_MIN}) {
      const over_budget error(name, n, n, n);
      const std::string_view what = error.what();
      CHECK(is_one_line(what));
      CHECK(what.size() < 192);
      CHECK(contains(what, "domain \""));
      CHECK(contains(what, "is over its limit"));
      CHECK(what.substr(what.size() - 6) == "in use");
    }
  }
  CHECK(contains(over_budget("", 1, 2, 3).what(), "domain \"\""));
  CHECK(contains(over_budget("a\nb", 1, 2, 3).what(), "domain \"a?b\""));
}

TEST_CASE("over_budget cuts a long name between two characters") {
  std::string name;
  while (name.size() < 200) name += "\xE2\x82\xAC";  // a euro sign of three bytes
  for (int shift = 0; shift < 3; ++shift) {
    CAPTURE(shift);
    const std::string what = over_budget(std::string(static_cast<std::size_t>(shift), 'x') + name, 1, 2, 3).what();
    const std::size_t first = what.find('"') + 1 + static_cast<std::size_t>(shift);
    std::size_t at = first;
    while (what.compare(at, 3, "\xE2\x82\xAC") == 0) at += 3;
    CHECK(at > first);
    CHECK((static_cast<unsigned char>(what[at]) < 0x80 || what.compare(at, 3, "\xE2\x80\xA6") == 0));
  }
}

#if TIDEMARK_HAS_EXCEPTIONS()

namespace {

template <class F>
over_budget refusal(F f) {
  try {
    f();
  } catch (const std::bad_alloc& e) {
    const auto* refused = dynamic_cast<const over_budget*>(&e);
    REQUIRE(refused != nullptr);
    return *refused;
  }
  REQUIRE_MESSAGE(false, "nothing was refused");
  return {"", 0, 0, 0};
}

}  // namespace

TEST_CASE("a refusal is a bad_alloc with the figures of the domain that refused, also where that is a parent") {
  domain outer = limited("the outer", 100);
  domain inner = limited("the inner", 90, &outer);
  outer.allocated(30);
  inner.allocated(20);
  const over_budget by_inner = refusal([&] { inner.allocated(71); });
  CHECK(contains(by_inner.what(), "\"the inner\""));
  CHECK(by_inner.requested_bytes() == 71);
  CHECK(by_inner.live_bytes() == 20);
  CHECK(by_inner.limit_bytes() == 90);
  const over_budget by_outer = refusal([&] { inner.allocated(51); });
  CHECK(std::string_view(by_outer.what()) ==
        "domain \"the outer\" is over its limit: 51 B requested, 50 B of 100 B in use");
  CHECK(by_outer.requested_bytes() == 51);
  CHECK(by_outer.live_bytes() == 50);
  CHECK(by_outer.limit_bytes() == 100);
  const over_budget kept = refusal([&] { const tidemark::detail::reservation room(inner.node(), 51); });
  CHECK(contains(kept.what(), "\"the outer\""));
  CHECK(kept.live_bytes() == 50);
  CHECK(inner.current().live_bytes == 20);
  CHECK(outer.current().peak_bytes == 50);
}

TEST_CASE("where more is asked for than a number can hold, the refusal names no limit that is not there") {
  domain d("boundless");
  d.allocated(INT64_MAX);
  const over_budget error = refusal([&] { d.allocated(1); });
  CHECK(!contains(error.what(), "-1 B"));
  d.freed(INT64_MAX);
}

TEST_CASE("100,000 refusals by exception do not eat the budget") {
  domain d = limited("thrown", 1'000);
  d.allocated(400);
  const usage before = d.current();
  int refused = 0;
  for (int i = 0; i < (is_slow ? 5'000 : 100'000); ++i) {
    try {
      if (i % 2 == 0) {
        d.allocated(601);
      } else {
        const tidemark::detail::reservation room(d.node(), 601);
      }
    } catch (const over_budget&) {
      ++refused;
    }
  }
  CHECK(refused == (is_slow ? 5'000 : 100'000));
  CHECK(same(d.current(), before));
  d.allocated(600);
  CHECK(!d.try_allocated(1));
}

TEST_CASE("a wrong limit is refused, and nothing has changed") {
  domain d = limited("wrong limit", 100);
  d.allocated(50);
  for (const std::int64_t wrong : {std::int64_t{-2}, INT64_MIN, std::int64_t{0}, std::int64_t{49}}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(d.limit(wrong), std::invalid_argument);
    CHECK(d.limit() == 100);
  }
  CHECK(!d.try_allocated(51));
  CHECK(d.try_allocated(50));
  d.limit(-1);
  CHECK_THROWS_AS(d.limit(99), std::invalid_argument);
  CHECK(d.limit() == -1);
  // A parent is not limited below what its children hold.
  domain outer("wrong limit outer");
  domain inner("wrong limit inner", domain_options{-1, &outer, false});
  inner.allocated(10);
  CHECK_THROWS_AS(outer.limit(9), std::invalid_argument);
  outer.limit(10);
  inner.limit(10);
}

TEST_CASE("a wrong fraction is refused, and who listened still listens") {
  domain d = limited("wrong fraction", 100);
  int calls = 0;
  int wrong_calls = 0;
  d.on_near_limit(0.5, [&](const near_limit&) { ++calls; });
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const double wrong : {0.0, -0.0, -0.5, 1.0000001, 2.0, inf, -inf, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(d.on_near_limit(wrong, [&](const near_limit&) { ++wrong_calls; }), std::invalid_argument);
  }
  d.allocated(50);
  CHECK(calls == 1);
  CHECK(wrong_calls == 0);
}

#endif

// ---- near the limit ----

TEST_CASE("a listener is called once each time what is live rises to the fraction, with the figures of that moment") {
  domain d = limited("rises", 100);
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  std::string name;
  d.on_near_limit(0.5, [&](const near_limit& n) {
    calls.emplace_back(n.live_bytes, n.limit_bytes);
    name = n.name;
  });
  using expected = std::vector<std::pair<std::int64_t, std::int64_t>>;
  d.allocated(49);
  CHECK(calls.empty());
  d.allocated(1);
  CHECK(calls == expected{{50, 100}});
  CHECK(name == "rises");
  d.allocated(30);
  CHECK(!d.try_allocated(21));
  d.allocated(20);
  CHECK(calls.size() == 1);
  d.freed(50);  // 50: it has not fallen below
  d.allocated(1);
  CHECK(calls.size() == 1);
  d.freed(2);
  CHECK(calls.size() == 1);
  d.allocated(11);
  CHECK(calls == expected{{50, 100}, {60, 100}});
  d.freed(60);
  CHECK(d.try_allocated(100));
  CHECK(calls == expected{{50, 100}, {60, 100}, {100, 100}});
  d.freed(100);
  {
    tidemark::detail::reservation room(d.node(), 70);
    CHECK(calls.size() == 3);
    room.commit();
  }
  CHECK(calls.size() == 4);
  CHECK(calls.back().first == 70);
}

TEST_CASE("a listener is called at the first whole byte that reaches the fraction, and at none before") {
  struct {
    std::int64_t limit;
    double fraction;
    std::int64_t first;
  } const cases[] = {{10, 0.5, 5},
                     {1'000, 0.9, 900},
                     {100, 1.0, 100},
                     {100, 0.01, 1},
                     {10, 0.25, 3},
                     {1, 0.5, 1},
                     {3, 0.5, 2},
                     {1'000'000, 0.9999, 999'900},
                     {1'000, 0.0004, 1},
                     {100, 0.07, 7},
                     {100, 0.29, 29},
                     {1'000'000, 0.000'25, 250},
                     {100'000, 0.0625, 6'250}};
  for (const auto& c : cases) {
    CAPTURE(c.limit);
    CAPTURE(c.fraction);
    domain d = limited("first byte", c.limit);
    std::int64_t called_at = -1;
    d.on_near_limit(c.fraction, [&](const near_limit& n) { called_at = called_at < 0 ? n.live_bytes : -2; });
    d.allocated(c.first - 1);
    CHECK(called_at == -1);
    if (called_at == -1) d.allocated(1);
    CHECK(called_at == c.first);
  }
}

TEST_CASE("a listener is called for very large limits too") {
  for (const std::int64_t limit : {INT64_MAX, INT64_MAX - 1, std::int64_t{1} << 62}) {
    CAPTURE(limit);
    domain d = limited("large", limit);
    int calls = 0;
    d.on_near_limit(0.5, [&](const near_limit&) { ++calls; });
    d.allocated(limit / 2 - (std::int64_t{1} << 53));
    CHECK(calls == 0);
    d.allocated(std::int64_t{1} << 54);
    CHECK(calls == 1);
    d.freed(limit / 2 + (std::int64_t{1} << 53));
  }
}

TEST_CASE("a listener of a parent is called for what its children allocate") {
  domain outer = limited("near outer", 100);
  domain inner = limited("near inner", 80, &outer);
  domain beside("near beside", domain_options{-1, &outer, false});
  std::vector<std::string> calls;
  const auto note = [&](const near_limit& n) { calls.emplace_back(n.name); };
  outer.on_near_limit(0.5, note);
  inner.on_near_limit(0.5, note);
  inner.allocated(39);
  beside.allocated(10);
  CHECK(calls.empty());
  beside.allocated(1);
  CHECK(calls == std::vector<std::string>{"near outer"});
  inner.allocated(1);
  CHECK(calls == std::vector<std::string>{"near outer", "near inner"});
  inner.freed(40);
  inner.allocated(40);
  CHECK(calls == std::vector<std::string>{"near outer", "near inner", "near inner", "near outer"});
}

TEST_CASE("a listener is called where the limit comes down to what is live, by the thread that lowers it") {
  domain d = limited("lowered", 1'000);
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  std::thread::id on;
  d.on_near_limit(0.9, [&](const near_limit& n) {
    calls.emplace_back(n.live_bytes, n.limit_bytes);
    on = std::this_thread::get_id();
  });
  d.allocated(500);
  d.limit(556);
  CHECK(calls.empty());
  d.limit(550);
  using expected = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(calls == expected{{500, 550}});
  CHECK(on == std::this_thread::get_id());
  d.limit(500);
  CHECK(calls.size() == 1);
  d.limit(1'000);  // far from it again
  CHECK(calls.size() == 1);
  d.allocated(400);
  CHECK(calls.size() == 2);
  d.limit(-1);
  d.allocated(10'000);
  CHECK(calls.size() == 2);
}

TEST_CASE("a rise that is over is not told later") {
  domain d = limited("over", 1'000);
  std::vector<std::int64_t> calls;
  d.allocated(500);
  d.on_near_limit(0.9, [&](const near_limit& n) { calls.push_back(n.live_bytes); });
  d.limit(500);
  d.freed(500);
  d.allocated(1);
  for (const std::int64_t live : calls) CHECK(live >= 450);
  CHECK(calls.size() <= 1);
}

TEST_CASE("a listener that comes late is called at once, and replaces the one before") {
  domain d = limited("late", 100);
  d.allocated(95);
  int first = 0;
  int second = 0;
  const auto owned = std::make_shared<int>(0);
  d.on_near_limit(0.9, [&first, owned](const near_limit&) { ++first; });
  CHECK(first == 1);
  CHECK(owned.use_count() == 2);
  d.on_near_limit(0.9, [&](const near_limit&) { ++second; });
  CHECK(owned.use_count() == 1);
  CHECK(second == 1);
  d.freed(50);
  d.allocated(50);
  CHECK(first == 1);
  CHECK(second == 2);
}

TEST_CASE("a listener of a domain that may hold nothing is not called") {
  domain d = limited("nothing", 0);
  int calls = 0;
  d.on_near_limit(1, [&](const near_limit&) { ++calls; });
  CHECK(!d.try_allocated(1));
  CHECK(d.try_allocated(0));
  CHECK(calls == 0);
}

TEST_CASE("a listener without a limit is not called") {
  domain d("never near");
  int calls = 0;
  d.on_near_limit(0.001, [&](const near_limit&) { ++calls; });
  d.allocated(std::int64_t{1} << 50);
  CHECK(calls == 0);
  d.allocated(INT64_MAX - (std::int64_t{1} << 50));
  CHECK(calls == 0);
  d.freed(INT64_MAX);
}

TEST_CASE("a listener is called outside every lock: it may use its domain, and other threads may meanwhile") {
  domain outer = limited("unlocked outer", 1'000);
  domain inner = limited("unlocked inner", 500, &outer);
  std::vector<std::string> seen;
  const auto use = [&](const near_limit& n) {
    seen.emplace_back(n.name);
    std::thread([&] {
      inner.allocated(1);
      static_cast<void>(outer.current());
      static_cast<void>(tidemark::domains());
      inner.freed(1);
    }).join();
    inner.allocated(10);
    inner.freed(10);
    outer.limit(outer.limit());
    const domain made("made in a listener", domain_options{-1, &inner, false});
  };
  inner.on_near_limit(0.8, use);
  outer.on_near_limit(0.4, use);
  inner.allocated(450);
  CHECK(seen == std::vector<std::string>{"unlocked inner", "unlocked outer"});
  CHECK(inner.current().live_bytes == 450);
  CHECK(outer.current().live_bytes == 450);
}

TEST_CASE("a listener may make room, and come near again by itself") {
  domain d = limited("evicts", 100);
  int calls = 0;
  d.on_near_limit(0.9, [&](const near_limit&) {
    if (++calls == 3) return;
    d.freed(50);
    d.allocated(50);  // a rise of its own
  });
  d.allocated(95);
  CHECK(calls == 3);
  CHECK(d.current().live_bytes == 95);
}

TEST_CASE("a listener may replace itself, and lives until it returns") {
  domain d = limited("replaces", 100);
  int first = 0;
  int second = 0;
  bool is_alive_after = false;
  const auto owned = std::make_shared<int>(42);
  d.on_near_limit(0.9, [&, owned](const near_limit&) {
    ++first;
    d.on_near_limit(0.95, [&](const near_limit&) { ++second; });
    is_alive_after = *owned == 42 && owned.use_count() == 2;
  });
  d.allocated(92);
  CHECK(first == 1);
  CHECK(second == 0);
  CHECK(is_alive_after);
  CHECK(owned.use_count() == 1);
  d.allocated(3);
  CHECK(second == 1);
  d.freed(95);
  d.allocated(95);
  CHECK(first == 1);
  CHECK(second == 2);
}

TEST_CASE("a listener outlives the handle that set it") {
  int calls = 0;
  domain outer("outlived");
  domain_options options;
  options.parent = &outer;
  options.limit_bytes = 10;
  auto inner = std::make_unique<domain>("outlived inner", options);
  inner->on_near_limit(1, [&](const near_limit&) { ++calls; });
  const domain still = domain("still", domain_options{-1, inner.get(), false});
  inner.reset();
  domain feeding = still;
  feeding.allocated(10);
  CHECK(calls == 1);
  feeding.freed(10);
}

TEST_CASE("what a listener allocates is in no number of the heap") {
  if (tidemark::hook_state() == tidemark::hook_kind::none) return;
  domain d = limited("quiet", 100);
  int calls = 0;
  std::unique_ptr<std::string> kept;
  const usage before = *tidemark::thread_usage();
  d.on_near_limit(0.5, [&](const near_limit&) {
    ++calls;
    kept = std::make_unique<std::string>(1'000, 'x');
    tidemark::escape(kept->data());
  });
  CHECK(same(*tidemark::thread_usage(), before));
  d.allocated(50);
  CHECK(calls == 1);
  CHECK(same(*tidemark::thread_usage(), before));
  const auto heard = std::make_unique<std::string>(1'000, 'x');
  CHECK(tidemark::thread_usage()->allocations == before.allocations + 2);
}

#if TIDEMARK_HAS_EXCEPTIONS() && TIDEMARK_HAS_POSIX()

namespace {

/// What the library says on the standard error meanwhile.
template <class F>
std::string said(F f) {
  temporary_directory folder;
  const std::string path = folder.file("stderr");
  const int before = ::dup(STDERR_FILENO);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, STDERR_FILENO);
  ::close(file);
  f();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  return content(path);
}

}  // namespace

TEST_CASE("a listener that throws is said on the standard error, and harms nothing") {
  domain d = limited("throws", 100);
  int calls = 0;
  d.on_near_limit(0.5, [&](const near_limit&) {
    if (++calls == 1) throw std::runtime_error("no room at all");
    throw 42;
  });
  const std::string first = said([&] { d.allocated(50); });
  CHECK(contains(first, "throws"));
  CHECK(contains(first, "no room at all"));
  CHECK(std::count(first.begin(), first.end(), '\n') == 1);
  CHECK(d.current().live_bytes == 50);
  d.freed(1);
  const std::string second = said([&] { CHECK(d.try_allocated(51)); });
  CHECK(contains(second, "throws"));
  CHECK(calls == 2);
  CHECK(d.current().live_bytes == 100);
}

TEST_CASE("a name of several lines is said in one") {
  domain d = limited("first\nsecond\x1B[2J", 10);
  d.on_near_limit(1, [](const near_limit&) { throw std::runtime_error("no room"); });
  const std::string text = said([&] { d.allocated(10); });
  REQUIRE(!text.empty());
  CHECK(is_one_line(std::string_view(text).substr(0, text.size() - 1)));
  CHECK(text.back() == '\n');
}

#endif

TEST_CASE("8 threads in turn: as many calls as there are rises, each on the thread that made it") {
  domain outer = limited("turns", 1'000);
  domain a("turns a", domain_options{-1, &outer, false});
  domain b("turns b", domain_options{-1, &outer, false});
  std::mutex turns;
  int calls = 0;
  std::thread::id on;
  std::int64_t told = 0;
  outer.on_near_limit(0.6, [&](const near_limit& n) {
    ++calls;
    on = std::this_thread::get_id();
    told = n.live_bytes;
  });
  std::int64_t live = 0;
  int rises = 0;
  bool is_right = true;
  in_threads(8, [&](std::size_t self) {
    dice d(self);
    domain& mine = self % 2 == 0 ? a : b;
    std::vector<std::int64_t> blocks;
    for (int i = 0; i < (is_slow ? 500 : 5'000); ++i) {
      const std::lock_guard<std::mutex> turn(turns);
      const auto n = static_cast<std::int64_t>(d.below(60));
      if (d.below(2) == 0 || blocks.empty()) {
        if (!mine.try_allocated(n)) {
          is_right = is_right && live + n > 1'000;
          continue;
        }
        const bool is_rise = live < 600 && live + n >= 600;
        live += n;
        rises += is_rise ? 1 : 0;
        blocks.push_back(n);
        is_right = is_right && calls == rises;
        if (is_rise) is_right = is_right && on == std::this_thread::get_id() && told == live;
      } else {
        live -= blocks.back();
        mine.freed(blocks.back());
        blocks.pop_back();
        is_right = is_right && calls == rises;
      }
    }
    const std::lock_guard<std::mutex> turn(turns);
    for (const std::int64_t n : blocks) {
      mine.freed(n);
      live -= n;
    }
  });
  CHECK(is_right);
  CHECK(rises > 0);
  CHECK(outer.current().live_bytes == 0);
}

TEST_CASE("a listener is called on the thread that came near, whoever else allocates meanwhile") {
  domain d = limited("whose", 100);
  const std::thread::id rising = std::this_thread::get_id();
  std::atomic<int> calls{0};
  std::atomic<int> elsewhere{0};
  d.on_near_limit(1, [&](const near_limit&) {
    calls.fetch_add(1);
    if (std::this_thread::get_id() != rising) elsewhere.fetch_add(1);
  });
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      domain mine = d;
      while (!stop.load()) {
        if (mine.try_allocated(0)) mine.freed(0);  // comes near by itself never
      }
    });
  }
  const int rounds = is_slow ? 2'000 : 50'000;
  for (int i = 0; i < rounds; ++i) {
    d.allocated(100);
    d.freed(100);
  }
  stop.store(true);
  for (std::thread& t : others) t.join();
  CHECK(calls.load() == rounds);
  CHECK(elsewhere.load() == 0);
}

TEST_CASE("listeners are replaced while 8 threads come near") {
  domain d = limited("replaced", 100);
  std::atomic<int> calls{0};
  in_threads(8, [&](std::size_t self) {
    domain mine = d;
    for (int i = 0; i < (is_slow ? 200 : 3'000); ++i) {
      if (self == 0) {
        mine.on_near_limit(0.5,
                           [&calls, kept = std::make_shared<int>(1)](const near_limit&) { calls.fetch_add(*kept); });
      } else if (mine.try_allocated(60)) {
        mine.freed(60);
      }
    }
  });
  CHECK(d.current().live_bytes == 0);
  const int before = calls.load();
  d.allocated(60);
  CHECK(calls.load() == before + 1);
}
