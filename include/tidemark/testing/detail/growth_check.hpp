// SPDX-License-Identifier: MIT
// Whether what a body leaves behind goes on growing, round after round.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/extent_window.hpp>
#include <tidemark/testing/detail/sight.hpp>
#include <tidemark/testing/detail/words.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {

/// How `no_growth` tells growth from a beginning.
struct growth_options {
  std::int64_t repetitions = 100;    ///< rounds of the first stretch that is judged; at least 1
  std::int64_t warm_up = 20;         ///< rounds before it, for caches that fill once
  std::int64_t tolerance_bytes = 0;  ///< by how much a stretch may grow in all
};

}  // namespace testing

namespace detail {
namespace checks {

/// What a stretch of rounds looks like: live bytes after each, the level before the first in front.
struct trend {
  bool is_growing = false;
  double slope = 0;  // bytes a round
};

/// Growth is a rise from the first to the last round where nothing ever falls. Where it goes up and down, it is a slope
/// of least squares that stands out of the scatter by four standard errors, and a bottom that rises from one half to
/// the next: noise has the first now and then, and what fills and empties in turn has no second.
[[nodiscard]] inline trend trend_of(const std::vector<std::int64_t>& levels, std::size_t first,
                                    std::int64_t tolerance) noexcept {
  trend t;
  const std::size_t n = levels.size() - first;
  if (n < 2) return t;
  bool falls = false;
  for (std::size_t i = first + 1; i < levels.size(); ++i) falls = falls || levels[i] < levels[i - 1];
  const std::int64_t rise = levels.back() - levels[first];
  if (!falls) {
    t.slope = static_cast<double>(rise) / static_cast<double>(n - 1);
    t.is_growing = rise > tolerance;
    return t;
  }
  const double mid = static_cast<double>(n - 1) / 2;
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += static_cast<double>(levels[first + i] - levels[first]);
  mean /= static_cast<double>(n);
  double sxx = 0;
  double sxy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(i) - mid;
    sxx += x * x;
    sxy += x * (static_cast<double>(levels[first + i] - levels[first]) - mean);
  }
  t.slope = sxy / sxx;
  double scatter = 0;
  std::int64_t bottom[2] = {INT64_MAX, INT64_MAX};
  for (std::size_t i = 0; i < n; ++i) {
    const double expected = mean + t.slope * (static_cast<double>(i) - mid);
    const double off = static_cast<double>(levels[first + i] - levels[first]) - expected;
    scatter += off * off;
    std::int64_t& lowest = bottom[i < n / 2 ? 0 : 1];
    if (levels[first + i] < lowest) lowest = levels[first + i];
  }
  const double error = n > 2 ? std::sqrt(scatter / static_cast<double>(n - 2) / sxx) : 0;
  t.is_growing = t.slope > 4 * error && t.slope * static_cast<double>(n - 1) > static_cast<double>(tolerance) &&
                 bottom[1] - bottom[0] > tolerance / 2;
  return t;
}

inline namespace TIDEMARK_TAG {

/// Stretches of rounds, each as long as all before it together, until one does not grow: what a cache has to fill is
/// full by then, and what doubles its room at ever larger distances, as a vector does, has a step in each.
class growth_check {
 public:
  static constexpr int most_stretches = 4;

  growth_check(const testing::growth_options& options, const testing::extent& over, const location& where)
      : options_(options), over_(over), where_(where), stretch_(options.repetitions) {
    if (options.repetitions < 1) {
      raise_invalid_argument("tidemark::testing::no_growth: at least one repetition is needed");
    }
    if (options.warm_up < 0 || options.tolerance_bytes < 0) {
      raise_invalid_argument("tidemark::testing::no_growth: neither the warm-up nor the tolerance can be negative");
    }
    if (options.repetitions > most_rounds || options.warm_up > most_rounds) {
      raise_invalid_argument("tidemark::testing::no_growth: more than 10,000,000 rounds");
    }
  }
  growth_check(const growth_check&) = delete;
  growth_check& operator=(const growth_check&) = delete;

  [[nodiscard]] bool next() {
    if (is_over_) return false;
    if (round_ == 0) begin();
    if (is_over_) return round_++ == 0;
    if (round_ > 0) note_level();
    if (is_over_) return false;
    ++round_;
    return true;
  }

  /// On purpose or not: rounds are missing.
  void is_left(const char* how, bool) {
    if (is_over_) return;
    if (window_) note_level();
    left_ = how;
    is_over_ = true;
  }

  [[nodiscard]] testing::verdict verdict() const {
    const quiet hidden;
    if (!why_absent_.empty()) return unchecked(where_, why_absent_);
    testing::verdict v;
    v.usage = usage_;
    v.ok = left_ == nullptr && !trend_.is_growing;
    message_lines lines(where_, v.ok               ? "holds"
                                : left_ != nullptr ? "left before its rounds were over"
                                                   : "grows round after round");
    lines.add("expected",
              "after " + counted(static_cast<std::uint64_t>(options_.warm_up), "round") +
                  " to warm up, a stretch of at least " +
                  counted(static_cast<std::uint64_t>(options_.repetitions), "round") + " that does not grow" +
                  (options_.tolerance_bytes > 0 ? " by more than " + exact_bytes(options_.tolerance_bytes) : ""));
    lines.add("measured", measured_text());
    if (left_ != nullptr) lines.add("but", left_);
    v.message = lines.add_figures(usage_, owner_of(over_)).text();
    return v;
  }

 private:
  static constexpr std::int64_t most_rounds = 10'000'000;

  void begin() {
    why_absent_ = why_unseen(over_);
    is_over_ = !why_absent_.empty();
    if (is_over_) return;
    {
      const quiet hidden;
      levels_.reserve(static_cast<std::size_t>(options_.repetitions) + 1);
      if (options_.warm_up == 0) levels_.push_back(0);
    }
    window_.emplace(over_);
  }

  // After a round. Bytes come from the sums, which are exact at the edges for several threads too.
  void note_level() {
    const reading<window_usage> read = window_->usage();
    if (!read) {
      why_absent_ = read.why();
      is_over_ = true;
      return;
    }
    usage_ = *read;
    why_absent_ = why_unseen(over_);  // a round may have left a quiet open
    is_over_ = !why_absent_.empty();
    if (is_over_ || round_ < options_.warm_up) return;
    const quiet hidden;
    levels_.push_back(static_cast<std::int64_t>(usage_.allocated_bytes - usage_.freed_bytes));
    if (static_cast<std::int64_t>(levels_.size() - first_) <= stretch_) return;
    trend_ = trend_of(levels_, first_, options_.tolerance_bytes);
    ++stretches_;
    is_over_ = !trend_.is_growing || stretches_ == most_stretches;
    if (is_over_) return;
    first_ = levels_.size() - 1;
    stretch_ = round_;
  }

  [[nodiscard]] std::string measured_text() const {
    if (levels_.size() < 2) return "no round was judged";
    const std::int64_t rise = levels_.back() - levels_[first_];
    char slope[64];
    std::snprintf(slope, sizeof slope, "%.6g", trend_.slope);
    return joined(trend_.is_growing ? "" : "no growth: ", exact_bytes(rise), " more after ",
                  counted(levels_.size() - 1 - first_, "round"), ", ", slope, " bytes a round; ",
                  counted(static_cast<std::uint64_t>(round_), "round"), " in all",
                  trend_.is_growing && stretches_ > 1 ? ", and no stretch without growth" : "");
  }

  testing::growth_options options_;
  testing::extent over_;
  location where_;
  std::int64_t round_ = 0;  // those that have begun
  std::int64_t stretch_;    // rounds of the one that runs
  std::size_t first_ = 0;   // its first level
  int stretches_ = 0;       // judged
  bool is_over_ = false;
  const char* left_ = nullptr;
  std::string_view why_absent_;
  trend trend_;
  std::vector<std::int64_t> levels_;  // after each round from the last of the warm-up on
  window_usage usage_;
  std::optional<extent_window> window_;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
