// SPDX-License-Identifier: MIT
// Whether memory grows without end: a verdict over the last samples of a figure, with the slope and an interval for it.
//
//   tidemark::growth_window window;                    // the last 600 samples
//   window.add(time_ns, bytes);                        // a monitor does this
//   const tidemark::growth_reading g = window.judge(); // g.verdict == tidemark::growth_verdict::leaking
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/order.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/monitor/detail/growth_shape.hpp>
#include <tidemark/monitor/detail/theil_sen.hpp>

namespace tidemark {
inline namespace v0 {

enum class growth_verdict {
  cannot_tell,
  steady,   ///< if it grows at all, then by less than what counts as a leak
  leaking,  ///< it grows by more, in a straight line, and still does at the end
};

/// "cannot tell", "steady", "leaking".
[[nodiscard]] constexpr std::string_view name_of(growth_verdict verdict) noexcept {
  switch (verdict) {
    case growth_verdict::steady:
      return "steady";
    case growth_verdict::leaking:
      return "leaking";
    case growth_verdict::cannot_tell:
      break;
  }
  return "cannot tell";
}

struct growth_options {
  /// What grows by less is no leak; below 0 counts as 0. Units: bytes a minute.
  std::int64_t min_slope = 64 * 1024;
};

/// What a window tells of growth. Units: bytes a minute.
struct growth_reading {
  using slope = reading<double>;

  growth_verdict verdict = growth_verdict::cannot_tell;
  slope bytes_per_minute = slope::absent("not judged");
  slope low = slope::absent("not judged");   ///< the 95 % interval, if the noise of each sample is its own
  slope high = slope::absent("not judged");  ///< the same
  std::size_t samples = 0;                   ///< how many the window holds
  std::string_view source;                   ///< whose figure it is: "heap", "resident"; empty where nobody said
  std::string_view why = "not judged";       ///< the reason for the verdict; kept for ever
};

inline namespace TIDEMARK_ERROR_TAG {

/// The last samples of one figure, neither copied nor moved. A leak is told from what only looks like one: noise, saw
/// teeth, steps, a fill that has reached its end, a random walk. It cannot be told from a tooth or a fill that is a
/// straight line in the whole window: there a longer window helps.
/// Threads: one at a time. Allocates: in the constructor only; the memory is in no number.
class growth_window {
 public:
  static constexpr std::size_t least_samples = 30;  ///< fewer tell nothing

  /// Throws: `std::invalid_argument` for a capacity below `least_samples`, `std::bad_alloc`.
  explicit growth_window(std::size_t capacity = 600) {
    if (capacity < least_samples) {
      detail::raise_invalid_argument("tidemark::growth_window: fewer than 30 samples tell nothing; keep more");
    }
    const quiet hidden;
    kept_.resize(capacity);
    points_.resize(capacity);
    scratch_.resize(
        detail::greater(detail::pairs_of(detail::lesser(capacity, most_points)), capacity / detail::growth_blocks + 1));
  }

  growth_window(const growth_window&) = delete;
  growth_window& operator=(const growth_window&) = delete;

  /// The oldest sample makes way. A time before the one of the last sample counts as that one's.
  void add(std::int64_t time_ns, std::int64_t bytes) noexcept {
    if (count_ > 0) time_ns = detail::greater(time_ns, kept_[index(count_ - 1)].time_ns);
    if (count_ < kept_.size()) {
      ++count_;
    } else {
      first_ = index(1);
    }
    kept_[index(count_ - 1)] = {time_ns, bytes};
  }

  void clear() noexcept { count_ = first_ = 0; }

  /// The samples of another, as many as there is room for, to be judged while that one goes on.
  void copy_samples(const growth_window& other) noexcept {
    clear();
    for (std::size_t i = 0; i < other.count_; ++i) {
      const sample& s = other.kept_[other.index(i)];
      add(s.time_ns, s.bytes);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return kept_.size(); }

  /// *Leaking*: the interval of the slope is above the smallest that counts, in the window and in both of its halves,
  /// the minima of its quarters rise, and nothing speaks against a leak. *Steady*: the interval is below it.
  /// Cost: 0.3 ms of CPU for 600 samples, by quick selection among 19,900 slopes (g++ 12 -O2; 0.7 at -O0).
  /// Source: Theil-Sen and Sen's interval, over at most 200 of the samples.
  [[nodiscard]] growth_reading judge(const growth_options& options = {}) const noexcept {
    growth_reading r;
    r.samples = count_;
    if (count_ < least_samples) return without_slope(r, "fewer than 30 samples");
    const detail::growth_points samples = relative_samples();
    detail::growth_point picked[most_points];
    const detail::growth_points points = thin(samples, picked);
    const detail::slope_interval whole = detail::theil_sen(points, scratch_.data());
    if (!whole.is_known) return without_slope(r, "all samples have the same time");
    r.bytes_per_minute = whole.median;
    r.low = whole.low;
    r.high = whole.high;

    const double least = static_cast<double>(detail::greater(options.min_slope, std::int64_t{0}));
    if (whole.high < least) {
      r.verdict = growth_verdict::steady;
      r.why = "it does not grow, or by less than what counts as a leak";
      return r;
    }
    const auto grows = [&](const detail::slope_interval& s) { return s.is_known && s.low > least; };
    const std::size_t half = points.count / 2;
    if (!grows(whole)) {
      r.why = "the interval of the slope holds the smallest that counts as a leak";
    } else if (!grows(detail::theil_sen(points.part(0, half), scratch_.data())) ||
               !grows(detail::theil_sen(points.part(half, points.count), scratch_.data()))) {
      r.why = "one half of the window may grow by less than what counts as a leak";
    } else if (const char* const why = detail::why_no_leak(samples, scratch_.data())) {
      r.why = why;
    } else {
      r.verdict = growth_verdict::leaking;
      r.why = "it grows along a straight line in every part of the window, and still does at the end";
    }
    return r;
  }

 private:
  static constexpr std::size_t most_points = 200;
  struct sample {
    std::int64_t time_ns;
    std::int64_t bytes;
  };

  [[nodiscard]] static growth_reading& without_slope(growth_reading& r, const char* why) noexcept {
    using slope = growth_reading::slope;
    r.bytes_per_minute = r.low = r.high = slope::absent_because(why);
    r.why = why;
    return r;
  }

  [[nodiscard]] std::size_t index(std::size_t i) const noexcept { return (first_ + i) % kept_.size(); }

  /// Differences from the first sample, of which a double holds the digits that matter.
  [[nodiscard]] detail::growth_points relative_samples() const noexcept {
    const auto difference = [](std::int64_t to, std::int64_t from) {  // unsigned: it may not fit
      const auto distance = [](std::int64_t more, std::int64_t less) {
        return static_cast<double>(static_cast<std::uint64_t>(more) - static_cast<std::uint64_t>(less));
      };
      return to >= from ? distance(to, from) : -distance(from, to);
    };
    const sample& origin = kept_[index(0)];
    for (std::size_t i = 0; i < count_; ++i) {
      const sample& s = kept_[index(i)];
      points_[i] = {difference(s.time_ns, origin.time_ns) / 60e9, difference(s.bytes, origin.bytes)};
    }
    return {points_.data(), count_};
  }

  /// One of each group, as a hash picks it: were all picked alike, a wave about as long as a group would become a slow
  /// one.
  [[nodiscard]] static detail::growth_points thin(detail::growth_points samples,
                                                  detail::growth_point (&picked)[most_points]) noexcept {
    if (samples.count <= most_points) return samples;
    for (std::size_t g = 0; g < most_points; ++g) {
      const std::size_t from = g * samples.count / most_points;
      const std::size_t to = (g + 1) * samples.count / most_points;
      std::uint64_t hash = (g + 1) * 0x9E37'79B9'7F4A'7C15U;  // Source: splitmix64
      hash = (hash ^ hash >> 30) * 0xBF58'476D'1CE4'E5B9U;
      picked[g] = samples[from + static_cast<std::size_t>((hash >> 32) % (to - from))];
    }
    return {picked, most_points};
  }

  std::vector<sample> kept_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  mutable std::vector<detail::growth_point> points_;  // what `judge` works on, made once so that it allocates nothing
  mutable std::vector<double> scratch_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace v0
}  // namespace tidemark
