// SPDX-License-Identifier: MIT
// What tells growth that goes on from what only looks like it for a while. An interval for a slope takes the noise of
// each point as its own; memory remembers: a random walk, whose every step stays, mostly has a slope that is
// "significant".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <tidemark/core/detail/order.hpp>
#include <tidemark/monitor/detail/theil_sen.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

inline constexpr std::size_t growth_blocks = 20;

/// The mean of the middle half: a peak that a sample happens to meet moves it no more than it moves a median.
/// Reorders the values.
[[nodiscard]] inline double midmean(double* values, std::size_t count) noexcept {
  std::sort(values, values + count);
  const std::size_t cut = count / 4;
  double sum = 0;
  for (std::size_t i = cut; i < count - cut; ++i) sum += values[i];
  return sum / static_cast<double>(count - 2 * cut);
}

/// The samples in `growth_blocks` blocks, each of them one point. `scratch` has room for a block.
inline void block_means(growth_points samples, growth_point (&blocks)[growth_blocks], double* scratch) noexcept {
  for (std::size_t b = 0; b < growth_blocks; ++b) {
    const growth_points block =
        samples.part(b * samples.count / growth_blocks, (b + 1) * samples.count / growth_blocks);
    double minutes = 0;
    for (std::size_t i = 0; i < block.count; ++i) {
      minutes += block[i].minutes;
      scratch[i] = block[i].bytes;
    }
    blocks[b] = {minutes / static_cast<double>(block.count), midmean(scratch, block.count)};
  }
}

/// Whether a quarter of the time or more lies between two neighbours: two clusters of points are always on a straight
/// line.
[[nodiscard]] inline bool has_gap(growth_points points) noexcept {
  for (std::size_t i = 1; i < points.count; ++i) {
    if (points.time(i) - points.time(i - 1) >= 0.25) return true;
  }
  return false;
}

/// How often two neighbours differ.
[[nodiscard]] inline std::size_t changes_in(growth_points points) noexcept {
  std::size_t changes = 0;
  for (std::size_t i = 1; i < points.count; ++i) changes += points[i].bytes != points[i - 1].bytes;
  return changes;
}

/// Whether the lowest value of each quarter is above that of the quarter before.
[[nodiscard]] inline bool minima_rise(growth_points points) noexcept {
  double before = 0;
  for (std::size_t q = 0; q < 4; ++q) {
    const growth_points quarter = points.part(q * points.count / 4, (q + 1) * points.count / 4);
    double lowest = quarter[0].bytes;
    for (std::size_t i = 1; i < quarter.count; ++i) lowest = lesser(lowest, quarter[i].bytes);
    if (q > 0 && lowest <= before) return false;
    before = lowest;
  }
  return true;
}

/// A line that is level after its bend; with the bend at the last point, a straight one. Times run from 0 to 1.
struct bent_line {
  double bend = 1;
  double slope = 0;
  double start = 0;    ///< its value at time 0
  double squares = 0;  ///< of the distances from the points, summed up
};

/// What fits the points best: a straight line, and one with a bend.
struct growth_lines {
  bent_line straight;
  bent_line bent;  ///< the bend is one of the points of the second half, but the last
};

/// Source: ordinary least squares of the bytes on the lesser of time and bend. Cost: linear, by running sums.
[[nodiscard]] inline growth_lines fit_lines(growth_points points) noexcept {
  const std::size_t last = points.count - 1;
  const double n = static_cast<double>(points.count);
  double mean = 0;
  for (std::size_t i = 0; i <= last; ++i) mean += points[i].bytes / n;
  double yy = 0;
  for (std::size_t i = 0; i <= last; ++i) yy += (points[i].bytes - mean) * (points[i].bytes - mean);

  growth_lines found;
  found.straight = found.bent = {1, 0, mean, yy};
  double x = 0, xx = 0, xy = 0, y = 0;  // sums of the points up to the bend
  for (std::size_t i = 0; i <= last; ++i) {
    const double bend = points.time(i);
    const double value = points[i].bytes - mean;
    x += bend;
    xx += bend * bend;
    xy += bend * value;
    y += value;
    if (i < points.count / 2) continue;
    const double after = static_cast<double>(last - i);  // these points are at the bend, and their values sum up to -y
    const double x_mean = (x + after * bend) / n;
    const double spread = xx + after * bend * bend - n * x_mean * x_mean;
    if (!(spread > 0)) continue;
    const double slope = (xy - bend * y) / spread;
    const double squares = greater(yy - slope * slope * spread, yy * 1e-9);  // nearer than this is rounding
    if (i < last && squares >= found.bent.squares) continue;
    (i < last ? found.bent : found.straight) = {bend, slope, mean - slope * x_mean, squares};
  }
  return found;
}

/// How the distance of a point from the line goes with that of the point before: 0 for noise, near 1 for what is
/// smooth.
[[nodiscard]] inline double correlation_of_neighbours(growth_points points, const bent_line& line) noexcept {
  double before = 0, products = 0, squares = 0;
  for (std::size_t i = 0; i < points.count; ++i) {
    const double distance = points[i].bytes - (line.start + line.slope * lesser(points.time(i), line.bend));
    products += distance * before;
    squares += distance * distance;
    before = distance;
  }
  return squares > 0 ? greater(products / squares, 0.0) : 0;
}

/// How many times the blocks' mean distance from a straight line goes into its rise. A random walk of 30 to 600 steps
/// gets above 40 about once in a million windows (simulated).
[[nodiscard]] inline double straightness(growth_points blocks) noexcept {
  const bent_line line = fit_lines(blocks).straight;
  const double distance = std::sqrt(line.squares / static_cast<double>(blocks.count - 2));
  return distance > 0 ? line.slope / distance : 0;
}

/// How much better a line fits that has become level, as an F ratio; neighbours that resemble each other count less. A
/// line without a bend, with noise on it, gets above 10 in about 1 of 1,000 windows (simulated).
[[nodiscard]] inline double evidence_of_end(growth_points samples) noexcept {
  const growth_lines lines = fit_lines(samples);
  if (!(lines.bent.squares > 0)) return 0;
  const double correlation = correlation_of_neighbours(samples, lines.bent);
  const double independent = static_cast<double>(samples.count) * (1 - correlation) / (1 + correlation);
  return independent * (lines.straight.squares - lines.bent.squares) / lines.bent.squares;
}

/// Why growth that is significant may still not be a leak; null where nothing speaks for that. `scratch` has room for a
/// block. The samples are not all of one time.
[[nodiscard]] inline const char* why_no_leak(growth_points samples, double* scratch) noexcept {
  if (!minima_rise(samples)) return "the lowest values of the four quarters do not rise";
  if (changes_in(samples) < 20) return "it changed fewer than 20 times, which chance can make rises only";
  growth_point means[growth_blocks];
  block_means(samples, means, scratch);
  const growth_points blocks{means, growth_blocks};
  if (has_gap(blocks)) return "a quarter of the time has no samples";
  if (!(straightness(blocks) > 40)) return "it strays from a straight line as a random walk or a saw tooth does";
  if (evidence_of_end(samples) > 10) return "it seems to have reached its end: the last samples are level";
  return nullptr;
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
