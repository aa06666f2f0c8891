// SPDX-License-Identifier: MIT
// What grows, and what only fills: the rule against series whose answer is known, and against real rounds.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/testing/expect.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "dice.hpp"
#include "test.hpp"

namespace t = tidemark::testing;
using tidemark::escape;
using tidemark::detail::checks::trend;
using tidemark::detail::checks::trend_of;

namespace {

template <class F>
std::vector<std::int64_t> series(std::size_t n, F level) {
  std::vector<std::int64_t> levels;
  for (std::size_t i = 0; i < n; ++i) levels.push_back(static_cast<std::int64_t>(level(i)));
  return levels;
}

bool says(const t::verdict& v, const std::string& text) { return v.message.find(text) != std::string::npos; }

}  // namespace

// ---- the rule ----

TEST_CASE("a rise that nothing takes back is growth, of whatever size") {
  CHECK(trend_of(series(101, [](std::size_t i) { return 8 * i; }), 0, 0).is_growing);
  CHECK(trend_of(series(101, [](std::size_t i) { return i < 60 ? 0 : 1; }), 0, 0).is_growing);
  CHECK_FALSE(trend_of(series(101, [](std::size_t) { return 5'000; }), 0, 0).is_growing);
  CHECK_FALSE(trend_of(series(101, [](std::size_t i) { return i < 50 ? 100 : 0; }), 0, 0).is_growing);
  CHECK(trend_of(series(101, [](std::size_t i) { return 8 * i; }), 0, 0).slope == doctest::Approx(8));
}

TEST_CASE("the tolerance is for the stretch as a whole") {
  const auto levels = series(101, [](std::size_t i) { return 8 * i; });
  CHECK_FALSE(trend_of(levels, 0, 800).is_growing);
  CHECK(trend_of(levels, 0, 799).is_growing);
}

TEST_CASE("the slope of a level that goes up and down is that of least squares") {
  // Of Python's statistics.linear_regression(range(8), [3, 1, 4, 1, 5, 9, 2, 6]).
  const std::int64_t digits[] = {3, 1, 4, 1, 5, 9, 2, 6};
  const trend of = trend_of({digits, digits + 8}, 0, 0);
  CHECK(of.slope == doctest::Approx(0.5357142857142857).epsilon(1e-12));
  CHECK_FALSE(of.is_growing);
}

TEST_CASE("what fills and empties in turn does not grow, wherever the stretch begins and ends") {
  for (std::size_t period = 2; period <= 100; ++period) {
    for (std::size_t phase = 0; phase < period; phase += 3) {
      const auto levels = series(241, [&](std::size_t i) { return (i + phase) % period * 1'000; });
      CAPTURE(period);
      CAPTURE(phase);
      CHECK_FALSE(trend_of(levels, 0, 0).is_growing);
    }
  }
}

TEST_CASE("noise alone is taken for growth less than once in a hundred stretches, and never in four in a row") {
  int alarms = 0;
  int runs_of_four = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    dice random(seed);
    int in_a_row = 0;
    for (int stretch = 0; stretch < 4; ++stretch) {
      const auto levels = series(std::size_t{101} << stretch, [&](std::size_t) { return random.below(10'000); });
      const bool is_growing = trend_of(levels, 0, 0).is_growing;
      alarms += is_growing ? 1 : 0;
      in_a_row += is_growing ? 1 : 0;
    }
    runs_of_four += in_a_row == 4 ? 1 : 0;
  }
  CHECK(alarms < 20);
  CHECK(runs_of_four == 0);
}

TEST_CASE("a leak of 8 bytes a round is found in noise of a kibibyte") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    dice random(seed);
    const auto levels = series(481, [&](std::size_t i) { return 8 * i + random.below(1'024); });
    found += trend_of(levels, 0, 0).is_growing ? 1 : 0;
  }
  CHECK(found == 200);
}

// ---- rounds ----

TEST_CASE("with the defaults a cache that fills over its first 20 rounds passes, after 120 rounds") {
  std::vector<std::vector<char>> cache;
  cache.reserve(100);
  int rounds = 0;
  const t::verdict v = t::no_growth([&] {
    if (rounds++ < 20) cache.emplace_back(1'000);
  });
  CAPTURE(v.message);
  CHECK(v.ok);
  CHECK(rounds == 120);
}

TEST_CASE("a cache that takes longer passes after more rounds") {
  for (const int size : {21, 64, 119, 120, 200, 400}) {
    std::unordered_map<int, std::string> cache;
    int rounds = 0;
    const t::verdict v = t::no_growth([&] { cache[rounds++ % size].assign(100, 'x'); });
    CAPTURE(size);
    CAPTURE(v.message);
    CHECK(v.ok);
    CHECK(rounds >= size);
    CHECK(rounds <= 960);
  }
}

TEST_CASE("a queue of bounded length passes though its level goes up and down") {
  dice random(7);
  std::deque<std::string> queue;
  CHECK(t::no_growth([&] {
    queue.emplace_back(10 + random.below(500), 'x');
    if (queue.size() > 16) queue.pop_front();
  }));
}

TEST_CASE("a leak of 8 bytes a round fails, and the message has the slope") {
  std::vector<void*> kept;
  kept.reserve(2'000);
  const t::verdict v = t::no_growth([&] { escape(kept.emplace_back(::operator new(8))); });
  CHECK_FALSE(v.ok);
  CAPTURE(v.message);
  CHECK(says(v, "grows round after round"));
  CHECK(says(v, "3.8 KiB (3,840 bytes) more after 480 rounds, 8 bytes a round; 960 rounds in all"));
  CHECK(kept.size() == 960);
  for (void* p : kept) ::operator delete(p);
}

TEST_CASE("one byte every tenth round fails, and so does one that hides in noise") {
  std::vector<void*> kept;
  kept.reserve(2'000);
  int rounds = 0;
  CHECK_FALSE(t::no_growth([&] {
    if (rounds++ % 10 == 0) escape(kept.emplace_back(::operator new(1)));
  }));
  dice random(3);
  void* last = nullptr;
  CHECK_FALSE(t::no_growth([&] {
    ::operator delete(last);
    escape(last = ::operator new(1 + random.below(512)));
    escape(kept.emplace_back(::operator new(8)));
  }));
  ::operator delete(last);
  for (void* p : kept) ::operator delete(p);
}

TEST_CASE("a list that only grows fails, however it doubles its room") {
  for (const std::size_t element : {std::size_t{1}, std::size_t{4}, std::size_t{8}, std::size_t{1'000}}) {
    std::vector<char> losses;
    const t::verdict v = t::no_growth([&] { losses.insert(losses.end(), element, 'x'); });
    CAPTURE(element);
    CAPTURE(v.message);
    CHECK_FALSE(v.ok);
  }
}

TEST_CASE("options count: rounds, warm-up, tolerance") {
  int rounds = 0;
  const auto count = [&] { ++rounds; };
  CHECK(t::no_growth(count, {1, 0, 0}));
  CHECK(rounds == 1);
  rounds = 0;
  CHECK(t::no_growth(count, {30, 7, 0}));
  CHECK(rounds == 37);
  std::vector<void*> kept;
  kept.reserve(5'000);
  const auto leak = [&] { escape(kept.emplace_back(::operator new(8))); };
  CHECK(t::no_growth(leak, {100, 20, 800}));
  CHECK_FALSE(t::no_growth(leak, {100, 20, 799}));
  CHECK_FALSE(t::no_growth(leak, {1, 0, 0}));
  for (void* p : kept) ::operator delete(p);
}

TEST_CASE("what is allocated in a round and freed in it is no growth, whatever its size") {
  CHECK(t::no_growth([] {
    std::vector<char> step(1 << 20);
    escape(step.data());
  }));
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("less than one repetition, and negative or absurd options, are errors") {
  const auto run = [](t::growth_options o) { return t::no_growth([] {}, o).ok; };
  for (const t::growth_options bad : {t::growth_options{0, 20, 0}, t::growth_options{-1, 20, 0},
                                      t::growth_options{100, -1, 0}, t::growth_options{100, 20, -1},
                                      t::growth_options{INT64_MAX, 0, 0}, t::growth_options{1, INT64_MAX, 0}}) {
    CHECK_THROWS_AS(run(bad), std::invalid_argument);
  }
}
#endif
