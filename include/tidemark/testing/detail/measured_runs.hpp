// SPDX-License-Identifier: MIT
// One or two runs of a body, the last of which is measured.
#pragma once

#include <optional>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/meter/resident.hpp>
#include <tidemark/testing/detail/extent_window.hpp>
#include <tidemark/testing/detail/sight.hpp>
#include <tidemark/testing/extent.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

/// What is measured.
enum class measured { heap, resident_set };

inline namespace TIDEMARK_TAG {

class measured_runs {
 public:
  measured_runs(const testing::extent& over, int wanted, measured what = measured::heap)
      : over_(over), wanted_(wanted), what_(what) {}
  measured_runs(const measured_runs&) = delete;
  measured_runs& operator=(const measured_runs&) = delete;

  /// Whether the body runs (again).
  [[nodiscard]] bool next() {
    if (is_over_) return false;
    if (runs_ == wanted_) {
      finish();
      return false;
    }
    ++runs_;
    look();
    what_ == measured::heap ? void(window_.emplace(over_)) : void(resident_.emplace());
    return true;
  }

  /// The body was left before its end: `how` says by what. One that was left on purpose counts where it was the last
  /// run.
  void is_left(const char* how, bool on_purpose) {
    if (is_over_) return;
    if (!on_purpose || runs_ != wanted_) left_ = how;
    finish();
  }

  [[nodiscard]] const testing::extent& over() const noexcept { return over_; }
  /// Of the last run.
  [[nodiscard]] const window_usage& usage() const noexcept { return usage_; }
  /// Why there is none; empty where there is. Texts of the library are kept for ever.
  [[nodiscard]] std::string_view why_absent() const noexcept { return why_absent_; }
  /// How it was left too early; null where it was not.
  [[nodiscard]] const char* left() const noexcept { return left_; }
  [[nodiscard]] bool is_last() const noexcept { return runs_ == wanted_; }

 private:
  // Before each run and after the last: a body may leave a quiet open.
  void look() {
    if (what_ == measured::heap && why_absent_.empty()) why_absent_ = why_unseen(over_);
  }

  void finish() {
    const reading<window_usage> read = resident_ ? resident_->usage() : window_->usage();
    resident_.reset();
    window_.reset();
    is_over_ = true;
    look();
    if (read) {
      usage_ = *read;
    } else if (why_absent_.empty()) {
      why_absent_ = read.why();
    }
  }

  testing::extent over_;
  int wanted_;
  measured what_;
  int runs_ = 0;
  bool is_over_ = false;
  const char* left_ = nullptr;
  std::string_view why_absent_;
  window_usage usage_;
  std::optional<extent_window> window_;
  std::optional<meter::resident::window> resident_;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
