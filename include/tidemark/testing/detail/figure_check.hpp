// SPDX-License-Identifier: MIT
// A check of one figure: how often the body runs, and the judgement at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/measured_runs.hpp>
#include <tidemark/testing/detail/words.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

enum class figure {
  peak_growth,
  allocations_exactly,
  allocations_at_most,
  allocated_bytes,
  left_behind,
  resident_growth
};

/// What a check expects, and the name that errors call it.
struct expectation {
  figure what;
  std::int64_t limit;
  const char* name;
};

inline namespace TIDEMARK_TAG {

class figure_check {
 public:
  /// Raises std::invalid_argument for a negative limit.
  figure_check(const expectation& expected, const testing::extent& over, const location& where)
      : expected_(expected),
        where_(where),
        runs_(over, expected.what == figure::left_behind ? 2 : 1,
              expected.what == figure::resident_growth ? measured::resident_set : measured::heap) {
    if (expected.limit >= 0) return;
    const quiet hidden;
    raise_invalid_argument(
        joined("tidemark::testing::", expected.name, ": the limit is negative: ", std::to_string(expected.limit))
            .c_str());
  }
  figure_check(const figure_check&) = delete;
  figure_check& operator=(const figure_check&) = delete;

  [[nodiscard]] bool next() { return runs_.next(); }
  void is_left(const char* how, bool on_purpose) { runs_.is_left(how, on_purpose); }

  [[nodiscard]] testing::verdict verdict() const {
    const quiet hidden;
    if (!runs_.why_absent().empty()) return unchecked(where_, runs_.why_absent());
    const char* const left = runs_.left();
    testing::verdict v;
    v.usage = runs_.usage();
    v.ok = holds() && left == nullptr;
    message_lines lines(where_, v.ok ? "holds" : headline());
    lines.add("expected", expected_text());
    lines.add("measured", measured_text());
    if (left != nullptr) lines.add("but", runs_.is_last() ? left : joined(left, " in the first of two runs"));
    v.message = lines.add_figures(v.usage, whose()).text();
    return v;
  }

 private:
  [[nodiscard]] const window_usage& usage() const noexcept { return runs_.usage(); }
  [[nodiscard]] std::uint64_t limit() const noexcept { return static_cast<std::uint64_t>(expected_.limit); }
  // The entry and the peak are each off by that much, and a check must not hold by it.
  [[nodiscard]] std::int64_t doubt() const noexcept {
    return expected_.what == figure::peak_growth ? 2 * usage().error_bound_bytes : 0;
  }
  [[nodiscard]] std::int64_t blocks_left() const noexcept {
    return static_cast<std::int64_t>(usage().allocations - usage().deallocations);
  }
  [[nodiscard]] std::int64_t bytes_left() const noexcept {
    return static_cast<std::int64_t>(usage().allocated_bytes - usage().freed_bytes);
  }

  [[nodiscard]] bool holds() const noexcept {
    switch (expected_.what) {
      case figure::peak_growth:
      case figure::resident_growth:
        return usage().peak_growth() <= expected_.limit - doubt();
      case figure::allocations_exactly:
        return usage().allocations == limit();
      case figure::allocations_at_most:
        return usage().allocations <= limit();
      case figure::allocated_bytes:
        return usage().allocated_bytes <= limit();
      case figure::left_behind:
        break;
    }
    return blocks_left() == 0 && bytes_left() == 0;
  }

  [[nodiscard]] std::string headline() const {
    if (holds()) return "left before its end";
    switch (expected_.what) {
      case figure::peak_growth:
        return usage().peak_growth() <= expected_.limit ? "the peak may be too high" : "the peak is too high";
      case figure::resident_growth:
        return "the resident set grows too much";
      case figure::allocations_exactly:
        return usage().allocations > limit() ? "too many allocations" : "too few allocations";
      case figure::allocations_at_most:
        return expected_.limit == 0 ? "allocates, and must not" : "too many allocations";
      case figure::allocated_bytes:
        return "too many bytes are allocated";
      case figure::left_behind:
        break;
    }
    return blocks_left() > 0 || bytes_left() > 0 ? "leaves memory behind" : "frees more than it allocates";
  }

  [[nodiscard]] std::string expected_text() const {
    switch (expected_.what) {
      case figure::peak_growth:
        return "a peak of at most " + exact_bytes(expected_.limit) + " above the entry";
      case figure::resident_growth:
        return "a resident set of at most " + exact_bytes(expected_.limit) + " above the entry";
      case figure::allocations_exactly:
        return "exactly " + counted(limit(), "allocation");
      case figure::allocations_at_most:
        return expected_.limit == 0 ? std::string("no allocation") : "at most " + counted(limit(), "allocation");
      case figure::allocated_bytes:
        return "at most " + exact_bytes(expected_.limit) + " allocated, freed or not";
      case figure::left_behind:
        break;
    }
    return "after a first run to warm up, a second one leaves as many blocks and bytes as it found";
  }

  [[nodiscard]] std::string measured_text() const {
    switch (expected_.what) {
      case figure::peak_growth:
      case figure::resident_growth:
        return growth_text();
      case figure::allocations_exactly:
      case figure::allocations_at_most:
        return counted(usage().allocations, "allocation") + ", " + exact_bytes(usage().allocated_bytes) + " together";
      case figure::allocated_bytes:
        return exact_bytes(usage().allocated_bytes) + " in " + counted(usage().allocations, "allocation");
      case figure::left_behind:
        break;
    }
    if (blocks_left() == 0 && bytes_left() == 0) return "nothing is left behind";
    if (blocks_left() >= 0 && bytes_left() >= 0) {
      return counted(magnitude(blocks_left()), "block") + " and " + exact_bytes(bytes_left()) + " more than before";
    }
    return joined(blocks_left() < 0 ? "-" : "", counted(magnitude(blocks_left()), "block"), " and ",
                  exact_bytes(bytes_left()), " against before: it frees what was there, or another thread's");
  }

  [[nodiscard]] std::string growth_text() const {
    const std::int64_t growth = usage().peak_growth();
    std::string text = exact_bytes(growth) + " above the entry";
    if (growth > expected_.limit) return text + ", " + exact_bytes(growth - expected_.limit) + " too much";
    if (holds()) return text;
    return text + ", but several threads ran, and it is known within " + exact_bytes(doubt()) +
           " only: raise the limit by that much, or build the hook's file with -DTIDEMARK_OPT_SETTLE_BYTES=0, which "
           "makes it exact";
  }

  [[nodiscard]] std::string whose() const {
    return expected_.what == figure::resident_growth ? "the resident set of the whole process" : owner_of(runs_.over());
  }

  expectation expected_;
  location where_;
  measured_runs runs_;
};

/// Any check around a callable.
template <class Check, class F>
[[nodiscard]] testing::verdict verdict_of(Check& run, F& f) {
  while (run.next()) static_cast<void>(f());
  return run.verdict();
}

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
