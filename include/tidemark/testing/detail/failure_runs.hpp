// SPDX-License-Identifier: MIT
// The runs of a function, each with another of its allocations failing, and the judgement after each.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/extent_window.hpp>
#include <tidemark/testing/detail/fault.hpp>
#include <tidemark/testing/detail/sight.hpp>
#include <tidemark/testing/detail/words.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {
inline namespace TIDEMARK_TAG {

class failure_runs {
 public:
  /// More runs than that are taken for a function that never ends.
  static constexpr std::uint64_t most_points = 1'000'000;

  failure_runs(const testing::extent& over, const location& where) : over_(over), where_(where) {
    const quiet hidden;
    if (over.what() != testing::extent::kind::thread && over.what() != testing::extent::kind::domain) {
      raise_invalid_argument(
          "tidemark::testing::for_each_allocation_failure: takes extent::thread or a domain: several threads have no "
          "order to count in");
    }
  }
  failure_runs(const failure_runs&) = delete;
  failure_runs& operator=(const failure_runs&) = delete;

  /// Whether there is another run, which begins now.
  [[nodiscard]] bool next() {
    finish_run();
    if (is_over_) return false;
    if (step_ == step::first) unseen_ = why_unjudged();
    fault_.reset();
    window_.emplace(over_);
    if (step_ == step::failing) {
      fault_.emplace();
      fault_->open(number_, 1, over_);
    }
    is_running_ = true;
    return true;
  }

  /// In the handler of what f threw. False: it is not for this check to keep.
  [[nodiscard]] bool has_caught() {
    if (fault_) fault_->close();
    const quiet hidden;
    if (!has_failed()) {
      if (step_ == step::failing && !is_over_) break_off("an exception, and nothing had failed in this run");
      return false;
    }
#if TIDEMARK_HAS_EXCEPTIONS()
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return true;
    } catch (const std::exception& e) {
      const char* what = e.what();
      blame("something else than std::bad_alloc came out",
            joined("an exception that says: ", what != nullptr ? what : ""));
    } catch (...) {
      blame("something else than std::bad_alloc came out", "an exception that is no std::exception");
    }
#endif
    return true;
  }
  /// What came out was kept, and should go on.
  [[nodiscard]] bool lets_out() const noexcept { return is_over_; }

  /// After the handler: an exception object is gone by now.
  void finish_run() {
    if (!is_running_) return;
    is_running_ = false;
    if (fault_) fault_->close();
    const reading<window_usage> read = window_->usage();
    window_.reset();
    const std::string_view why_not = why_unjudged();  // f may have left a quiet open
    const quiet hidden;
    last_number_ = step_ == step::failing ? number_ : 0;
    last_bytes_ = fault_ ? fault_->failed_bytes() : 0;
    if (read && step_ != step::undisturbed) usage_ = *read;
    if (is_over_) return;
    if (!read) return break_off(std::string(read.why()));
    if (unseen_.empty()) unseen_ = why_not;
    is_over_ = !unseen_.empty();
    if (is_over_) return;
    if (step_ == step::first) {
      first_allocations_ = read->allocations;
      step_ = step::failing;
    } else if (step_ == step::undisturbed) {
      is_over_ = true;
      if (!leaves_something(*read)) return;
      usage_ = *read;
      problem_ = "memory is left behind even where nothing fails";
      measured_ = left_behind();
      failed_number_ = failed_bytes_ = 0;
    } else if (!has_failed()) {
      is_over_ = true;
      --number_;
    } else if (leaves_something(usage_)) {
      if (is_second_try_) {
        blame("memory is left behind", left_behind());
        step_ = step::undisturbed;  // is it the failure's?
        is_over_ = false;
      }
      is_second_try_ = true;
    } else {
      is_second_try_ = false;
      if (number_++ == most_points)
        break_off("more than " + grouped(most_points) + " allocations: each run has more of them");
    }
  }

  /// What the caller checks does not hold after the run that has just finished.
  void has_broken() {
    const quiet hidden;
    if (is_over_ && !problem_.empty()) return;
    is_over_ = true;
    failed_number_ = last_number_;
    failed_bytes_ = last_bytes_;
    problem_ = last_number_ == 0 ? "what the caller checks does not hold even where nothing fails"
                                 : "what the caller checks does not hold afterwards";
    measured_ = "the caller's check returned false";
  }

  /// The body was left before its end, and there are no more runs.
  void is_left(const char* how, bool) {
    if (fault_) fault_->close();
    if (window_) {
      const reading<window_usage> read = window_->usage();
      if (read) usage_ = *read;
      window_.reset();
    }
    const quiet hidden;
    if (!is_over_) break_off(how);
  }

  [[nodiscard]] testing::verdict verdict() const {
    testing::verdict v;
    std::uint64_t unasked[3];
    report(v, unasked[0], unasked[1], unasked[2]);
    return v;
  }
  void report(testing::verdict& v, std::uint64_t& points, std::uint64_t& number, std::uint64_t& bytes) const {
    const quiet hidden;
    points = number_;
    number = failed_number_;
    bytes = failed_bytes_;
    v.usage = usage_;
    v.ok = false;
    if (!unseen_.empty()) {
      v = unchecked(where_, unseen_);
      return;
    }
    if (problem_.empty() && number_ == 0 && first_allocations_ > 0) {
      v = unchecked(where_, "the first run made " + counted(first_allocations_, "allocation") +
                                ", and the next made none that could fail: f must start from the same state each time");
      return;
    }
    if (problem_.empty() && number_ == 0 && over_.what() == testing::extent::kind::domain) {
      v = unchecked(where_, "nothing was allocated in " + owner_of(over_) + ": there was nothing to fail");
      return;
    }
    if (problem_.empty()) {
      v.ok = true;
      v.message = message_lines(where_, number_ == 0 ? "there is no allocation to fail"
                                                     : "survived each of " + counted(number_, "failing allocation"))
                      .text();
      return;
    }
    message_lines lines(where_, "does not survive an allocation that fails");
    lines.add("expected", "std::bad_alloc or a result, nothing left behind, and everything as it should be");
    lines.add("measured", problem_ + ": " + measured_);
    if (failed_number_ > 0) {
      lines.add("failing", "allocation " + grouped(failed_number_) + " of the run, " + exact_bytes(failed_bytes_));
      lines.add("to see it",
                "tidemark::testing::fail_allocation fault(" + std::to_string(failed_number_) + "); before the call");
    }
    v.message = lines.add_figures(usage_, owner_of(over_)).text();
  }

 private:
  enum class step { first, failing, undisturbed };

  [[nodiscard]] std::string_view why_unjudged() const {
    if (over_.what() == testing::extent::kind::thread) return why_no_refusal();
    return is_hidden() ? why_hidden : std::string_view();  // of a domain
  }

  [[nodiscard]] bool has_failed() const noexcept { return fault_ && fault_->failures() > 0; }
  [[nodiscard]] static bool leaves_something(const window_usage& u) noexcept {
    return u.allocations > u.deallocations || u.allocated_bytes > u.freed_bytes;
  }
  [[nodiscard]] std::string left_behind() const {
    const auto blocks = static_cast<std::int64_t>(usage_.allocations - usage_.deallocations);
    const auto bytes = static_cast<std::int64_t>(usage_.allocated_bytes - usage_.freed_bytes);
    return counted(magnitude(blocks), "block") + (blocks < 0 ? " fewer, " : ", ") + exact_bytes(bytes);
  }

  void blame(std::string problem, std::string measured) {
    is_over_ = true;
    failed_number_ = number_;
    failed_bytes_ = fault_->failed_bytes();
    problem_ = std::move(problem);
    measured_ = std::move(measured);
  }
  void break_off(std::string why) {
    is_over_ = true;
    problem_ = "the runs could not be ended";
    measured_ = std::move(why);
    if (has_failed()) {
      failed_number_ = number_;
      failed_bytes_ = fault_->failed_bytes();
    }
  }

  testing::extent over_;
  location where_;
  std::string_view unseen_;  // texts of the library are kept for ever
  step step_ = step::first;
  bool is_running_ = false;
  bool is_over_ = false;
  bool is_second_try_ = false;
  std::uint64_t first_allocations_ = 0;
  std::uint64_t number_ = 1;
  std::uint64_t last_number_ = 0;
  std::uint64_t last_bytes_ = 0;
  std::uint64_t failed_number_ = 0;
  std::uint64_t failed_bytes_ = 0;
  std::string problem_;
  std::string measured_;
  window_usage usage_;
  std::optional<fault> fault_;
  std::optional<extent_window> window_;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
