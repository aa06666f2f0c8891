// SPDX-License-Identifier: MIT
// The slope and its interval against scipy and brute force; the verdict against series of which it is known whether
// they leak.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/monitor/growth.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/core/bytes.hpp>

#include "dice.hpp"
#include "test.hpp"

using namespace tidemark;
using namespace tidemark::literals;
using verdict = growth_verdict;

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr double gib = 1024.0 * 1024 * 1024;

/// The verdict on `level(0)`, ..., `level(n - 1)`, a second apart.
template <class F>
growth_reading judged(std::size_t n, F level, const growth_options& options = {}) {
  growth_window w(n);
  for (std::size_t i = 0; i < n; ++i) {
    w.add(static_cast<std::int64_t>(i) * second, static_cast<std::int64_t>(level(i)));
  }
  return w.judge(options);
}

/// Of how many seeds out of `seeds` the series are leaking. `make(dice&)` gives a series of levels.
template <class Make>
int leaking(int seeds, std::size_t n, Make make) {
  int found = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    dice d(static_cast<std::uint64_t>(seed) + 1);
    found += judged(n, make(d)).verdict == verdict::leaking;
  }
  return found;
}

double part(dice& d) { return static_cast<double>(d.below(1U << 30)) / (1U << 30); }  // 0 to 1
double normal(dice& d) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += part(d);
  return sum;
}
std::size_t below(dice& d, std::size_t n) { return static_cast<std::size_t>(d.below(n)); }
double of(std::size_t i, std::size_t n) { return static_cast<double>(i) / static_cast<double>(n); }

double saw(std::size_t i, std::size_t period) { return of(i % period, period); }

bool nearly(const reading<double>& r, double expected) { return std::abs(*r - expected) <= std::abs(expected) * 1e-9; }

}  // namespace

// ---- the slope ----

TEST_CASE("the slope and its interval are scipy's") {
  // scipy.stats.theilslopes 1.10.1 of the same points: samples, seed of the dice, uneven times, slope, low, high.
  struct {
    int samples;
    std::uint64_t seed;
    bool is_uneven;
    double slope, low, high;
  } const golden[] = {
      {30, 1, false, 3043806.3157894737, 331160.0, 5625540.0},
      {100, 2, false, 5844935.214285715, 5336531.250000001, 6330845.0},
      {73, 3, true, 4312243.223756202, 3665516.198921751, 4899411.622321112},
      {199, 4, false, 5943099.545454546, 5776379.999999998, 6123765.0},
      {200, 5, false, 5845571.615403727, 5664460.87912088, 6021614.8623853205},
  };
  for (const auto& g : golden) {
    CAPTURE(g.samples);
    dice d(g.seed);
    growth_window w;
    std::int64_t now = 0;
    for (int i = 0; i < g.samples; ++i) {
      now += g.is_uneven ? 1'000'000 * static_cast<std::int64_t>(1 + d.below(3000)) : second;
      w.add(now, i * 100'000 + static_cast<std::int64_t>(d.below(4'000'000)));
    }
    const growth_reading r = w.judge();
    CHECK(nearly(r.bytes_per_minute, g.slope));
    CHECK(nearly(r.low, g.low));
    CHECK(nearly(r.high, g.high));
  }
}

TEST_CASE("the slope is the median of all slopes that there are, also where times are equal") {
  dice d(11);
  std::vector<double> scratch(detail::pairs_of(60));
  for (int round = 0; round < 200; ++round) {
    std::vector<detail::growth_point> points(2 + below(d, 58));
    double minutes = 0;
    for (auto& p : points) p = {minutes += static_cast<double>(d.below(3)), static_cast<double>(d.below(50))};
    std::vector<double> slopes;
    for (std::size_t j = 0; j < points.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        if (points[i].minutes < points[j].minutes) {
          slopes.push_back((points[j].bytes - points[i].bytes) / (points[j].minutes - points[i].minutes));
        }
      }
    }
    const detail::slope_interval s = detail::theil_sen({points.data(), points.size()}, scratch.data());
    REQUIRE(s.is_known == !slopes.empty());
    if (slopes.empty()) continue;
    std::sort(slopes.begin(), slopes.end());
    const std::size_t count = slopes.size();
    CHECK(s.median == (slopes[(count - 1) / 2] + slopes[count / 2]) / 2);
    // As many slopes are left out below the interval as above it.
    const auto low = std::lower_bound(slopes.begin(), slopes.end(), s.low);
    const auto high = std::lower_bound(slopes.begin(), slopes.end(), s.high);
    REQUIRE(low != slopes.end());
    REQUIRE(high != slopes.end());
    CHECK(*low == s.low);
    CHECK(*high == s.high);
    CHECK(s.low <= s.median);
    CHECK(s.median <= s.high);
  }
}

TEST_CASE("the slope of a line is that line's, whatever its size and wherever it begins") {
  for (const std::int64_t start : {std::int64_t{0}, std::int64_t{-5'000'000'000'000}, INT64_MAX - 60'000'000}) {
    growth_window w;
    for (std::int64_t i = 0; i < 600; ++i) w.add(INT64_MAX - 600 * second + i * second, start + i * 100'000);
    const growth_reading r = w.judge();
    CHECK(nearly(r.bytes_per_minute, 6'000'000));
    CHECK(nearly(r.low, 6'000'000));
    CHECK(nearly(r.high, 6'000'000));
    CHECK(r.verdict == verdict::leaking);
  }
}

TEST_CASE("nothing overflows at the ends of the numbers") {
  dice d(5);
  growth_window w(100);
  for (int i = 0; i < 100; ++i) {
    w.add(i < 50 ? INT64_MIN : INT64_MAX, d.below(2) == 0 ? INT64_MIN : INT64_MAX);
    const growth_reading r = w.judge();
    if (r.bytes_per_minute) {
      CHECK(std::isfinite(*r.bytes_per_minute));
      CHECK(std::isfinite(*r.low));
      CHECK(std::isfinite(*r.high));
    }
    CHECK(r.verdict != verdict::leaking);
  }
  w.clear();
  for (int i = 0; i < 100; ++i) w.add(i, INT64_MAX / 50 * (i - 50));
  CHECK(std::isfinite(*w.judge().high));
  CHECK(w.judge().verdict == verdict::leaking);
}

TEST_CASE("the lines with and without a bend are those of least squares") {
  dice d(21);
  for (int round = 0; round < 50; ++round) {
    std::vector<detail::growth_point> points(20 + below(d, 100));
    const double end = 0.4 + 0.6 * part(d);  // where most of them become level
    double minutes = 5;
    for (std::size_t i = 0; i < points.size(); ++i) {
      points[i] = {minutes += 0.1 + part(d), (std::min)(of(i, points.size()), end) * 100 + part(d)};
    }
    const detail::growth_points all{points.data(), points.size()};
    const auto squares_with = [&](double bend, double* slope) {  // in two passes
      double x = 0, y = 0, xx = 0, xy = 0, squares = 0;
      const auto at = [&](std::size_t i) { return (std::min)(all.time(i), bend); };
      for (std::size_t i = 0; i < all.count; ++i) {
        x += at(i) / static_cast<double>(all.count);
        y += all[i].bytes / static_cast<double>(all.count);
      }
      for (std::size_t i = 0; i < all.count; ++i) {
        xx += (at(i) - x) * (at(i) - x);
        xy += (at(i) - x) * (all[i].bytes - y);
      }
      *slope = xy / xx;
      for (std::size_t i = 0; i < all.count; ++i) squares += std::pow(all[i].bytes - y - *slope * (at(i) - x), 2);
      return squares;
    };
    const auto near_to = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); };
    const detail::growth_lines lines = detail::fit_lines(all);
    double slope = 0;
    CHECK(lines.straight.bend == 1);
    CHECK(near_to(lines.straight.squares, squares_with(1, &slope)));
    CHECK(near_to(lines.straight.slope, slope));
    double best = lines.straight.squares * 2;
    double best_bend = 0;
    for (std::size_t i = all.count / 2; i + 1 < all.count; ++i) {
      const double squares = squares_with(all.time(i), &slope);
      if (squares < best) best_bend = all.time(i);
      best = (std::min)(best, squares);
    }
    CHECK(lines.bent.bend == best_bend);
    CHECK(near_to(lines.bent.squares, squares_with(best_bend, &slope)));
    CHECK(near_to(lines.bent.slope, slope));
  }
}

TEST_CASE("a wave a little longer than a group of samples does not turn into a slope") {
  // Of every three samples one is taken; were it always the first, it would walk down the wave in the course of the
  // window.
  const double turn = 2 * std::acos(-1.0);
  const growth_reading r =
      judged(600, [&](std::size_t i) { return gib * std::sin(turn * (of(i, 1) / 3.005 + 1.0 / 6)); });
  CHECK(*r.low < 0);
  CHECK(*r.high > 0);
}

// ---- what cannot be told ----

TEST_CASE("fewer than 30 samples tell nothing, and have no slope") {
  growth_window w;
  for (std::int64_t i = 0; i < 29; ++i) w.add(i * second, i * 1'000'000);
  growth_reading r = w.judge();
  CHECK(r.verdict == verdict::cannot_tell);
  CHECK(r.samples == 29);
  CHECK(r.why == "fewer than 30 samples");
  CHECK(r.bytes_per_minute.why() == r.why);
  CHECK(r.low.why() == r.why);
  CHECK(r.high.why() == r.why);
  w.add(29 * second, 29'000'000);
  r = w.judge();
  CHECK(r.verdict == verdict::leaking);
  CHECK(r.samples == 30);
  CHECK(r.source.empty());
}

TEST_CASE("a clock that stands still tells nothing") {
  growth_window w;
  for (std::int64_t i = 0; i < 600; ++i) w.add(7, i * 1'000'000);
  const growth_reading r = w.judge();
  CHECK(r.verdict == verdict::cannot_tell);
  CHECK(r.why == "all samples have the same time");
  CHECK_FALSE(r.bytes_per_minute);
}

TEST_CASE("a clock that steps back stands still for as long") {
  growth_window w, same;
  dice d(9);
  for (std::int64_t i = 0; i < 100; ++i) {
    const auto bytes = static_cast<std::int64_t>(d.below(1'000'000));
    w.add((i >= 50 && i < 60 ? i - 40 : i) * second, bytes);
    same.add((i >= 50 && i < 60 ? 49 : i) * second, bytes);
  }
  CHECK(*w.judge().bytes_per_minute == *same.judge().bytes_per_minute);
  CHECK(*w.judge().low == *same.judge().low);
  CHECK(*w.judge().high == *same.judge().high);
}

TEST_CASE("the oldest samples make way") {
  growth_window w(600);
  for (std::int64_t i = 0; i < 1'000; ++i) w.add(i * second, (i * 37) % 1'000 * 1'000'000);
  CHECK(w.size() == 600);
  CHECK(w.judge().verdict != verdict::leaking);
  for (std::int64_t i = 1'000; i < 1'600; ++i) w.add(i * second, i * 100'000);
  CHECK(w.judge().verdict == verdict::leaking);
  CHECK(nearly(w.judge().bytes_per_minute, 6'000'000));
  CHECK(w.judge().samples == 600);
  w.clear();
  CHECK(w.size() == 0);
  CHECK(w.capacity() == 600);
  CHECK(w.judge().verdict == verdict::cannot_tell);
}

TEST_CASE("what is not above the smallest slope that counts is no leak") {
  const auto grows = [](std::size_t i) { return i * 1'000; };  // 60,000 bytes a minute
  CHECK(judged(600, grows).verdict == verdict::steady);
  CHECK(judged(600, grows, {59'999}).verdict == verdict::leaking);
  CHECK(judged(600, grows, {60'001}).verdict == verdict::steady);
  CHECK(judged(600, grows, {0}).verdict == verdict::leaking);
  CHECK(growth_options{}.min_slope == 64_KiB);

  growth_window exact;
  for (std::int64_t i = 0; i < 600; ++i) exact.add(i * 60 * second, i * 70'000);
  CHECK(*exact.judge().bytes_per_minute == 70'000);
  CHECK(exact.judge({70'000}).verdict == verdict::cannot_tell);
  CHECK(exact.judge({69'999}).verdict == verdict::leaking);
  CHECK(exact.judge({70'001}).verdict == verdict::steady);

  const growth_reading shrinks = judged(600, [](std::size_t i) { return 1e9 - 1e5 * of(i, 1); });
  CHECK(shrinks.verdict == verdict::steady);
  CHECK(judged(600, [](std::size_t i) { return 1e9 - 1e5 * of(i, 1); }, {-1'000'000'000}).verdict == verdict::steady);
  CHECK(*shrinks.high < 0);
  const auto level = [](std::size_t) { return 1'000'000; };
  CHECK(judged(600, level).verdict == verdict::steady);
  CHECK(judged(600, level, {-1}).verdict == verdict::cannot_tell);
}

TEST_CASE("the reason says what speaks against a leak") {
  const auto line = [](std::size_t i) { return 1e6 * of(i, 1); };
  REQUIRE(judged(600, line).verdict == verdict::leaking);
  const auto why = [](const growth_reading& r) {
    CHECK(r.verdict == verdict::cannot_tell);
    return std::string(r.why);
  };

  dice d(3);
  CHECK(why(judged(600, [&](std::size_t) { return 1e9 * part(d); })) ==
        "the interval of the slope holds the smallest that counts as a leak");
  CHECK(why(judged(600, [&](std::size_t i) { return line(i < 300 ? 0 : i); })) ==
        "one half of the window may grow by less than what counts as a leak");
  CHECK(why(judged(600, [&](std::size_t i) { return line(i > 300 ? 300 : i); })) ==
        "one half of the window may grow by less than what counts as a leak");
  // Memory was given back for a moment in the third quarter.
  CHECK(why(judged(600, [&](std::size_t i) { return line(i == 400 ? 100 : i); })) ==
        "the lowest values of the four quarters do not rise");
  CHECK(why(judged(600, [&](std::size_t i) { return line(i == 400 ? 150 : i); })) ==
        "the lowest values of the four quarters do not rise");
  // A coin falls ten times alike once in 1,024 times.
  CHECK(why(judged(600, [](std::size_t i) { return 1e6 * std::floor((of(i, 1) + 15) / 60); })) ==
        "it changed fewer than 20 times, which chance can make rises only");
  growth_window gap(600);
  for (std::int64_t i = 0; i < 600; ++i) gap.add((i < 200 ? i : i + 400) * second, (i < 200 ? i : i + 400) * 100'000);
  CHECK(why(gap.judge()) == "a quarter of the time has no samples");
  CHECK(why(judged(600, [](std::size_t i) { return 1e7 * std::sqrt(of(i, 1)); })) ==
        "it strays from a straight line as a random walk or a saw tooth does");
  CHECK(why(judged(600, [&](std::size_t i) { return line(i > 580 ? 580 : i); })) ==
        "it seems to have reached its end: the last samples are level");
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("a window too small to tell anything is refused") {
  CHECK_THROWS_AS(growth_window(29), std::invalid_argument);
  CHECK_THROWS_AS(growth_window(0), std::invalid_argument);
  CHECK_NOTHROW(growth_window(30));
}
#endif

// ---- what is no leak ----

TEST_CASE("flat, noise and steps are never leaking") {
  for (const std::size_t n : {std::size_t{30}, std::size_t{77}, std::size_t{600}}) {
    CAPTURE(n);
    CHECK(leaking(10, n, [](dice& d) { return [b = gib * part(d)](std::size_t) { return b; }; }) == 0);
    CHECK(leaking(200, n, [](dice& d) { return [&d](std::size_t) { return gib * part(d); }; }) == 0);
    CHECK(leaking(200, n, [](dice& d) { return [&d](std::size_t) { return gib * (8 + normal(d)); }; }) == 0);
    for (std::size_t at = 0; at <= n; at += n / 30) {
      CAPTURE(at);
      CHECK(judged(n, [&](std::size_t i) { return i < at ? 0 : gib; }).verdict != verdict::leaking);
      CHECK(leaking(10, n, [&](dice& d) {
              return [&d, at](std::size_t i) { return (i < at ? 0 : gib) + gib * 0.1 * normal(d); };
            }) == 0);
    }
  }
}

TEST_CASE("random walks are never leaking") {
  for (const std::size_t n : {std::size_t{30}, std::size_t{77}, std::size_t{600}}) {
    CAPTURE(n);
    const int seeds = n == 600 ? 300 : 1'000;
    CHECK(leaking(seeds, n,
                  [](dice& d) { return [&d, x = 0.0](std::size_t) mutable { return x += gib * normal(d); }; }) == 0);
    CHECK(leaking(seeds, n, [](dice& d) {
            return [&d, x = 0.0](std::size_t) mutable { return x += d.below(2) == 0 ? gib : -gib; };
          }) == 0);
    CHECK(leaking(seeds, n, [](dice& d) {  // never below what the program began with
            return [&d, x = 0.0](std::size_t) mutable { return x = std::abs(x + gib * normal(d)); };
          }) == 0);
    CHECK(leaking(seeds, n, [n](dice& d) {  // one step in a while
            const std::size_t every = 1 + below(d, n / 15);
            return [&d, every, x = 0.0](std::size_t i) mutable {
              if (i % every == 0) x += d.below(2) == 0 ? gib : -gib;
              return x;
            };
          }) == 0);
    CHECK(leaking(seeds, n, [](dice& d) {
            const double noise = std::pow(10, 3 * part(d) - 1);
            return [&d, noise, x = 0.0](std::size_t) mutable {
              x += gib * normal(d);
              return x + gib * noise * normal(d);
            };
          }) == 0);
  }
}

TEST_CASE("saw teeth of which the window holds the fall are never leaking") {
  for (const std::size_t n : {std::size_t{30}, std::size_t{100}, std::size_t{600}}) {
    CAPTURE(n);
    for (std::size_t period = 2; period <= n * 9 / 10; period += 1 + period / 8) {
      CAPTURE(period);
      for (std::size_t phase = 0; phase < period; phase += 1 + period / 40) {
        CAPTURE(phase);
        CHECK(judged(n, [&](std::size_t i) { return gib * saw(i + phase, period); }).verdict != verdict::leaking);
      }
      CHECK(leaking(5, n, [&](dice& d) {
              return [&d, period, phase = below(d, period)](std::size_t i) {
                return gib * (saw(i + phase, period) + 0.05 * normal(d));
              };
            }) == 0);
    }
  }
}

TEST_CASE("a fill that has reached its end is not leaking") {
  for (int percent = 1; percent <= 99; ++percent) {
    CAPTURE(percent);
    const double end = percent / 100.0;
    const auto linear = [end](std::size_t i) { return gib * (std::min)(1.0, of(i, 600) / end); };
    CHECK(judged(600, linear).verdict != verdict::leaking);
    if (percent > 95) continue;
    CHECK(leaking(5, 600, [&](dice& d) { return [&](std::size_t i) { return linear(i) + 0.01 * gib * normal(d); }; }) ==
          0);
    CHECK(leaking(5, 600, [&](dice& d) {
            return [&](std::size_t i) { return gib * (1 - std::exp(-of(i, 600) / end) + 0.02 * normal(d)); };
          }) == 0);
    if (percent > 90) continue;
    CHECK(leaking(5, 600, [&](dice& d) { return [&](std::size_t i) { return linear(i) + 0.05 * gib * normal(d); }; }) ==
          0);
  }
}

TEST_CASE("the end of a fill shows through noise of a twentieth when a tenth of the window is level") {
  CHECK(leaking(100, 600, [](dice& d) {
          return [&d](std::size_t i) { return gib * ((std::min)(1.0, of(i, 540)) + 0.05 * normal(d)); };
        }) == 0);
}

TEST_CASE("a sum of all that is no leak is none") {
  CHECK(leaking(300, 600, [](dice& d) {
          const double end = 0.05 + 0.7 * part(d), walk = 0.04 * part(d), tooth = part(d), fill = part(d),
                       step = part(d);
          const std::size_t period = 2 + below(d, 300), at = below(d, 600);
          return [=, &d, x = 0.0](std::size_t i) mutable {
            x += walk * normal(d);
            return gib * (x + tooth * saw(i, period) + fill * (std::min)(1.0, of(i, 600) / end) + (i < at ? 0 : step));
          };
        }) == 0);
}

// ---- what is a leak ----

TEST_CASE("a leak is told from the noise on it") {
  // The rise over the window, in standard deviations of the noise, from which on it is told nearly always.
  struct {
    std::size_t samples;
    double rise;
  } const cases[] = {{30, 70}, {60, 40}, {120, 30}, {300, 18}, {600, 13}};
  for (const auto& c : cases) {
    CAPTURE(c.samples);
    for (const double slope : {2e3, 1e5, 1e9}) {  // bytes a sample
      CAPTURE(slope);
      const double noise = slope * of(c.samples, 1) / c.rise;
      CHECK(leaking(100, c.samples, [&](dice& d) {
              return [&d, slope, noise](std::size_t i) { return 1e9 + slope * of(i, 1) + noise * normal(d); };
            }) >= 95);
    }
  }
}

TEST_CASE("what goes on is hardly ever taken for what has reached its end") {
  CHECK(leaking(300, 120,
                [](dice& d) { return [&d](std::size_t i) { return gib * (of(i, 120) + normal(d) / 50); }; }) >= 298);
}

TEST_CASE("a leak is told from the saw teeth on it") {
  for (const std::size_t period : {std::size_t{5}, std::size_t{10}, std::size_t{30}}) {
    CAPTURE(period);
    CHECK(leaking(50, 600, [&](dice& d) {
            return [period, phase = below(d, period)](std::size_t i) {
              return gib * (of(i, 600) + 0.5 * saw(i + phase, period));
            };
          }) == 50);
  }
  for (const std::size_t period : {std::size_t{20}, std::size_t{45}, std::size_t{100}, std::size_t{150}}) {
    CAPTURE(period);
    CHECK(leaking(50, 600, [&](dice& d) {
            return [period, phase = below(d, period)](std::size_t i) {
              return gib * (of(i, 600) + 0.05 * saw(i + phase, period));
            };
          }) == 50);
  }
}

TEST_CASE("a leak is told under peaks that samples meet by chance") {
  CHECK(leaking(100, 600, [](dice& d) {
          return [&d](std::size_t i) {
            const double peak = d.below(10) == 0 ? 10 * part(d) : 0;
            return gib * (of(i, 600) + 0.01 * normal(d) + peak);
          };
        }) >= 90);
}

TEST_CASE("a tooth or a fill longer than the window is a straight line in it") {
  CHECK(judged(600, [](std::size_t i) { return gib * saw(i, 1'200); }).verdict == verdict::leaking);
  CHECK(judged(60, [](std::size_t i) { return gib * (std::min)(1.0, of(i, 100)); }).verdict == verdict::leaking);
}

// ---- what it costs ----

TEST_CASE("adding and judging allocate nothing, and the window's memory is in no number") {
  const usage before = *thread_usage();
  growth_window w(600);
  escape(&w);
  for (std::int64_t i = 0; i < 700; ++i) w.add(i * second, i * 100'000);
  CHECK(w.judge().verdict == verdict::leaking);
  CHECK(w.judge({1'000'000'000'000}).verdict == verdict::steady);
  CHECK(thread_usage()->allocations == before.allocations);
  CHECK(thread_usage()->live_bytes == before.live_bytes);
}
