// SPDX-License-Identifier: MIT
// A slope that outliers do not move: the median of the slopes of all pairs of points, and an interval for it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <tidemark/core/detail/order.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

struct growth_point {
  double minutes = 0;
  double bytes = 0;
};

/// In the order of their times.
struct growth_points {
  const growth_point* first = nullptr;
  std::size_t count = 0;

  [[nodiscard]] const growth_point& operator[](std::size_t i) const noexcept { return first[i]; }
  /// From 0 at the first to 1 at the last. The two differ.
  [[nodiscard]] double time(std::size_t i) const noexcept {
    return (first[i].minutes - first[0].minutes) / (first[count - 1].minutes - first[0].minutes);
  }
  [[nodiscard]] growth_points part(std::size_t from, std::size_t to) const noexcept {
    return {first + from, to - from};
  }
};

/// Units: bytes a minute.
struct slope_interval {
  double median = 0;
  double low = 0;   ///< 95 % of the intervals made in this way hold the slope, if the noise of each point is its own
  double high = 0;  ///< the same
  bool is_known = false;  ///< there are two points of different times
};

[[nodiscard]] constexpr std::size_t pairs_of(std::size_t count) noexcept { return count * (count - 1) / 2; }

/// Pairs of one time have no slope and are left out; unknown where there is no other pair.
/// `slopes` has room for all pairs. Cost: linear in the pairs.
/// Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968), 1379-1389, (2.6)
/// without the terms for ties, which makes the interval wider; the ranks are rounded as scipy.stats.theilslopes does.
[[nodiscard]] inline slope_interval theil_sen(growth_points points, double* slopes) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < points.count; ++i) {
    for (std::size_t j = i + 1; j < points.count; ++j) {
      const double minutes = points[j].minutes - points[i].minutes;
      if (minutes > 0) slopes[count++] = (points[j].bytes - points[i].bytes) / minutes;
    }
  }
  if (count == 0) return {};

  const double n = static_cast<double>(points.count);
  const double spread = 1.959963984540054 * std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
  const double below = std::round((static_cast<double>(count) - spread) / 2);
  const std::size_t low = below > 1 ? static_cast<std::size_t>(below) - 1 : 0;
  const std::size_t high =
      lesser(static_cast<std::size_t>(std::round((static_cast<double>(count) + spread) / 2)), count - 1);
  const std::size_t middle = count / 2;

  // Each selection narrows the next: low <= middle <= high.
  double* const end = slopes + count;
  std::nth_element(slopes, slopes + middle, end);
  slope_interval found;
  found.is_known = true;
  found.median = slopes[middle];
  if (count % 2 == 0) found.median = (*std::max_element(slopes, slopes + middle) + found.median) / 2;
  std::nth_element(slopes + middle, slopes + high, end);
  found.high = slopes[high];
  std::nth_element(slopes, slopes + low, slopes + middle + 1);
  found.low = slopes[low];
  return found;
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
