// SPDX-License-Identifier: MIT
// Baselines: what a check measured last time, in a file under version control, compared with what it measures now.
// TIDEMARK_UPDATE_BASELINES=1 in the environment rewrites the file instead of comparing.
#pragma once

#include <cerrno>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/sys/detail/rewrite.hpp>
#include <tidemark/sys/file.hpp>
#include <tidemark/testing/detail/baseline_file.hpp>
#include <tidemark/testing/detail/figure_check.hpp>
#include <tidemark/testing/detail/measured_runs.hpp>
#include <tidemark/testing/detail/words.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {

/// Where the baselines are, and how close a figure must come to its own.
struct baseline_options {
  /// Empty: what TIDEMARK_BASELINES in the environment says, or else memory_baselines.json beside the source file.
  std::string file;
  /// A fraction of each figure, both ways: 0.05 allows 95 to 105 of 100, 0 nothing else. An entry's own tolerance wins.
  double tolerance = 0.0;
};

}  // namespace testing

namespace detail {
namespace checks {

/// What a comparison found, in the parts of a message.
struct baseline_judgement {
  bool ok = false;
  std::string expected;  ///< a phrase
  std::string measured;  ///< a phrase
  std::string advice;    ///< lines, without a newline at the end: what is wrong, and what to do
};

inline constexpr std::size_t most_baseline_bytes = std::size_t{64} << 20;  // more is some other file

/// "2.5 %", exactly what the decimal says.
[[nodiscard]] inline std::string percent(const decimal& fraction) {
  const int point = fraction.point + 2;
  std::string text = fraction.digits.empty() ? "0" : fraction.digits;
  if (fraction.digits.empty() || point > 20 || point < -20) {
    if (!fraction.digits.empty()) text = "0." + text + "e" + std::to_string(point);
  } else if (point <= 0) {
    text.insert(0, "0." + std::string(static_cast<std::size_t>(-point), '0'));
  } else if (static_cast<std::size_t>(point) < text.size()) {
    text.insert(static_cast<std::size_t>(point), 1, '.');
  } else {
    text.append(static_cast<std::size_t>(point) - text.size(), '0');
  }
  return text + " %";
}

/// "12.5 %" for people: rounded. Empty where there is no sensible number.
[[nodiscard]] inline std::string rough_percent(std::uint64_t part, std::uint64_t whole) {
  const double tenths = static_cast<double>(part) / static_cast<double>(whole) * 1'000 + 0.5;
  if (whole == 0 || tenths > 1e15) return {};
  if (tenths < 1) return "less than 0.1 %";
  const auto n = static_cast<std::uint64_t>(tenths);
  return grouped(n / 10) + '.' + std::to_string(n % 10) + " %";
}

/// A file or a name in a message: one line, quoted, whatever it holds; a long one without its middle.
[[nodiscard]] inline std::string shown(std::string_view text) {
  std::string out = "'";
  if (text.size() <= 4'096) {
    append_printable(out, text);
  } else {
    append_printable(out, text.substr(0, 200));
    out += "...";
    append_printable(out, text.substr(text.size() - 100));
  }
  out += '\'';
  return out;
}

[[nodiscard]] inline std::string phrase_of(const baseline_figures& f) {
  return "peak +" + exact_bytes(f.peak_growth_bytes) + ", " + counted(f.allocations, "allocation") + ", " +
         exact_bytes(f.allocated_bytes) + " allocated";
}

[[nodiscard]] inline baseline_figures figures_of(const window_usage& u) {
  baseline_figures f;
  // Unsigned, since a difference of signed ones may be out of range. A negative growth, which cannot be, gets too big.
  f.peak_growth_bytes = static_cast<std::uint64_t>(u.peak_bytes) - static_cast<std::uint64_t>(u.entry_bytes);
  f.allocations = u.allocations;
  f.allocated_bytes = u.allocated_bytes;
  return f;
}

/// A set variable that is not empty; null otherwise.
[[nodiscard]] inline const char* environment(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

[[nodiscard]] inline bool is_updating() noexcept {
  const char* value = environment("TIDEMARK_UPDATE_BASELINES");
  return value != nullptr && std::string_view(value) != "0";
}

[[nodiscard]] inline std::string baseline_path(const std::string& file, const location& where) {
  if (!file.empty()) return file;
  if (const char* named = environment("TIDEMARK_BASELINES")) return named;
  return os::folder_of(where.file_name()) + "memory_baselines.json";
}

/// One check against one file.
class baseline_comparison {
 public:
  baseline_comparison(std::string_view name, const window_usage& measured, std::string path, decimal tolerance)
      : name_(name),
        path_(std::move(path)),
        tolerance_(std::move(tolerance)),
        figures_(figures_of(measured)),
        error_bound_bytes_(measured.error_bound_bytes) {
    judgement_.measured = phrase_of(figures_);
  }

  [[nodiscard]] baseline_judgement compare() {
    std::string text;
    const int failed = os::read_whole(path_, most_baseline_bytes, text);
    if (failed == ENOENT) return miss_file();
    baseline_parser parser(text);
    if (failed != 0 || !parser.parse(entries_)) {
      judgement_.expected = "a file of baselines";
      say(shown(path_) + (failed != 0 ? " cannot be read: " + reason(failed) : ": " + parser.error()));
      say("Nothing can be compared before that is mended.");
      return std::move(judgement_);
    }
    const auto found = entries_.find(name_);
    if (found == entries_.end()) return miss_entry();
    if (!found->second.tolerance.empty()) {
      std::size_t end = 0;
      tolerance_ = read_decimal(found->second.tolerance, end);
    }
    return compare_with(found->second);
  }

  [[nodiscard]] baseline_judgement update() {
    std::string target;
    int failed = os::behind_links(path_, target);
    if (failed != 0) return refuse_update(reason(failed));
    const os::folder_lock alone(target);
    if (alone.error() != 0) return refuse_update(lock_reason(alone.error()));
    std::string before;
    failed = os::read_whole(target, most_baseline_bytes, before);
    if (failed != 0 && failed != ENOENT) return refuse_update(reason(failed));
    baseline_parser parser(before);
    if (failed == 0 && !parser.parse(entries_)) {
      return refuse_update(parser.error() + ". Mend it, or delete the file to begin a new one");
    }
    const bool is_new = failed == ENOENT;
    baseline_figures& entry = entries_[name_];
    figures_.tolerance = std::move(entry.tolerance);
    entry = figures_;
    const std::string after = baseline_text(entries_);
    if (after.size() > most_baseline_bytes) return refuse_update("it would hold more than 64 MiB");
    const bool is_same = !is_new && after == before;
    failed = is_same ? 0 : os::replace_whole(target, after);
    if (failed != 0) return refuse_update(append_file::describe(failed));
    judgement_.ok = true;
    judgement_.expected = judgement_.measured;
    say(shown(path_) + (is_same ? " has these figures already." : " has these figures now."));
    return std::move(judgement_);
  }

  /// For what no file can help with.
  [[nodiscard]] baseline_judgement refuse(const char* expected, const char* why) {
    judgement_.expected = expected;
    say(why);
    return std::move(judgement_);
  }

 private:
  [[nodiscard]] baseline_judgement compare_with(const baseline_figures& entry) {
    judgement_.expected = phrase_of(entry);
    judgement_.expected += tolerance_.digits.empty() ? ", exactly" : ", each within " + percent(tolerance_);
    const bool is_peak_close = is_close("peak growth", figures_.peak_growth_bytes, entry.peak_growth_bytes, "byte");
    const bool is_count_close = is_close("allocations", figures_.allocations, entry.allocations, "");
    const bool is_sum_close = is_close("allocated", figures_.allocated_bytes, entry.allocated_bytes, "byte");
    judgement_.ok = is_peak_close && is_count_close && is_sum_close;
    if (judgement_.ok) return std::move(judgement_);
    if (!is_peak_close && error_bound_bytes_ > 0) {
      say("This peak is known to within " + exact_bytes(static_cast<std::uint64_t>(error_bound_bytes_)) +
          " only: the tolerance should cover that.");
    }
    if (!is_above_) {
      say("Better than the baseline: update it, so that it cannot creep back.");
    } else {
      say(is_below_ ? "Worse than the baseline in one figure, better in another. If that is meant, update it."
                    : "Worse than the baseline. If that is meant, update it.");
    }
    figures_.tolerance = entry.tolerance;
    say("To update, run this with TIDEMARK_UPDATE_BASELINES=1, or replace the line in " + shown(path_) + " by");
    say(line());
    return std::move(judgement_);
  }

  /// Whether it is near enough; says how far off it is otherwise.
  [[nodiscard]] bool is_close(const char* figure, std::uint64_t measured, std::uint64_t baseline, std::string_view of) {
    const bool is_more = measured > baseline;
    const std::uint64_t off = is_more ? measured - baseline : baseline - measured;
    if (is_within(off, baseline, tolerance_)) return true;
    (is_more ? is_above_ : is_below_) = true;
    const std::string share = rough_percent(off, baseline);
    std::string text = figure;
    text += ": " + (of.empty() ? grouped(off) : counted(off, of));
    text += share.empty() ? "" : " (" + share + ')';
    text += is_more ? " more than " : " less than ";
    text += grouped(baseline) + ", the baseline";
    say(text);
    return false;
  }

  [[nodiscard]] baseline_judgement miss_file() {
    judgement_.expected = "an entry " + shown(name_) + " in a file of baselines";
    say("There is no file " + shown(path_) + '.');
    say_where_from();
    say("To make it, run this with TIDEMARK_UPDATE_BASELINES=1, or write");
    entries_[name_] = figures_;
    std::string text = baseline_text(entries_);
    text.pop_back();
    say(text);
    return std::move(judgement_);
  }

  [[nodiscard]] baseline_judgement miss_entry() {
    judgement_.expected = "an entry " + shown(name_);
    say(shown(path_) + " has no entry of this name.");
    say("To add it, run this with TIDEMARK_UPDATE_BASELINES=1, or add this line " + place());
    say(line());
    return std::move(judgement_);
  }

  [[nodiscard]] baseline_judgement refuse_update(const std::string& why) {
    judgement_.expected = "a file of baselines that can be updated";
    say(shown(path_) + " could not be updated, and is as it was: " + why + '.');
    say_where_from();
    say("The entry would be");
    say(baseline_line(name_, figures_));
    return std::move(judgement_);
  }

  [[nodiscard]] std::string place() const {
    if (entries_.empty()) return "between the braces:";
    const auto next = entries_.upper_bound(name_);
    if (next != entries_.end()) return "before that of " + shown(next->first) + ':';
    return "at the end, and a comma behind the line before it:";
  }
  /// As it stands in the file: all but the last entry have a comma.
  [[nodiscard]] std::string line() const {
    return baseline_line(name_, figures_) + (entries_.upper_bound(name_) == entries_.end() ? "" : ",");
  }

  [[nodiscard]] static std::string reason(int error) {
    if (error == EINVAL) return "it is no ordinary file";
    if (error == EFBIG) return append_file::describe(error) + " (a file of baselines holds at most 64 MiB)";
    return append_file::describe(error);
  }
  [[nodiscard]] static std::string lock_reason(int error) {
    if (error == ENOENT) return "its folder does not exist";
    if (error == ENOSYS) return "that needs a POSIX system";
    if (error == ETIMEDOUT) return "another process holds the lock (flock) of its folder, and did so for 10 seconds";
    return "its folder cannot be locked (flock): " + append_file::describe(error);
  }

  void say_where_from() {
    if (path_.front() == '/') return;
    say("(It is looked for from the folder that the program runs in; TIDEMARK_BASELINES can name it in full.)");
  }
  void say(const std::string& line) {
    if (!judgement_.advice.empty()) judgement_.advice += '\n';
    judgement_.advice += line;
  }

  std::string name_;
  std::string path_;
  decimal tolerance_;
  baseline_figures figures_;
  std::int64_t error_bound_bytes_;
  baseline_entries entries_;
  baseline_judgement judgement_;
  bool is_above_ = false;
  bool is_below_ = false;
};

inline namespace TIDEMARK_ERROR_TAG {

/// Compares with the entry of that name, or writes it if TIDEMARK_UPDATE_BASELINES says so. Reads the file each time.
/// Threads: any, also several processes on one file. Allocates: yes; the caller keeps that out of the numbers.
/// Throws: `std::invalid_argument` for a name that is empty or no UTF-8, a tolerance that is negative or not finite.
[[nodiscard]] inline baseline_judgement judge_baseline(std::string_view name, const window_usage& measured,
                                                       const testing::baseline_options& options,
                                                       const location& where) {
  if (name.empty()) raise_invalid_argument("tidemark::testing: the name of a baseline is empty");
  for (std::size_t at = 0, n = 0; at < name.size(); at += n) {
    n = utf8_length(name.substr(at));
    if (n == 0) raise_invalid_argument("tidemark::testing: the name of a baseline is no UTF-8, so JSON cannot hold it");
  }
  if (!(options.tolerance >= 0 && options.tolerance <= DBL_MAX)) {
    raise_invalid_argument("tidemark::testing: the tolerance of a baseline is negative, or no finite number");
  }
  baseline_comparison judge(name, measured, baseline_path(options.file, where), decimal_of(options.tolerance));
  if (!measured.counts_events) {
    return judge.refuse("allocations that were counted",
                        "Here they are unknown, so there is nothing to compare or to keep.");
  }
  const baseline_figures f = figures_of(measured);
  if (f.peak_growth_bytes > most_baseline_figure || f.allocations > most_baseline_figure ||
      f.allocated_bytes > most_baseline_figure) {
    return judge.refuse("figures up to 2^63",
                        "One of them is beyond, so something else is wrong with the measurement.");
  }
  return is_updating() ? judge.update() : judge.compare();
}

}  // namespace TIDEMARK_ERROR_TAG

inline namespace TIDEMARK_TAG {

/// The body runs twice, since what is made once would count in whichever test comes first; the second run is compared.
class baseline_check {
 public:
  baseline_check(std::string_view name, testing::baseline_options options, const testing::extent& over,
                 const location& where)
      : where_(where), runs_(over, 2) {
    const quiet hidden;
    name_ = name;
    options_ = std::move(options);
  }
  baseline_check(const baseline_check&) = delete;
  baseline_check& operator=(const baseline_check&) = delete;

  [[nodiscard]] bool next() { return runs_.next(); }
  void is_left(const char* how, bool on_purpose) { runs_.is_left(how, on_purpose); }

  [[nodiscard]] testing::verdict verdict() const {
    const quiet hidden;
    if (!runs_.why_absent().empty()) return unchecked(where_, runs_.why_absent());
    testing::verdict v;
    v.usage = runs_.usage();
    const std::string whose = owner_of(runs_.over());
    if (runs_.left() != nullptr) {
      v.message = message_lines(where_, "left before its end, and not compared with its baseline")
                      .add("but", runs_.left())
                      .add_figures(v.usage, whose)
                      .text();
      return v;
    }
    const baseline_judgement j = judge_baseline(name_, v.usage, options_, where_);
    v.ok = j.ok;
    v.message = message_lines(where_, (j.ok ? "as the baseline " : "not as the baseline ") + shown(name_))
                    .add("expected", j.expected)
                    .add("measured", j.measured)
                    .add_figures(v.usage, whose)
                    .text();
    if (!j.advice.empty()) v.message.append("\n").append(j.advice);
    return v;
  }

 private:
  std::string name_;
  testing::baseline_options options_;
  location where_;
  measured_runs runs_;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail

namespace testing {
inline namespace TIDEMARK_TAG {

/// f takes what the baseline of that name says: its peak growth, its allocations and the bytes they come to, each
/// within the tolerance, both ways. f runs twice, and the second run is compared. With TIDEMARK_UPDATE_BASELINES=1 in
/// the environment the entry is written instead, and the verdict is ok. A missing entry is not, and the message has the
/// line to add.
/// Throws: `std::invalid_argument` for a name that is empty or no UTF-8 and for a tolerance below 0; what f throws.
template <class F>
verdict matches_baseline(std::string_view name, F&& f, baseline_options options = {}, extent over = extent::thread,
                         location where = location::current()) {
  detail::checks::baseline_check run(name, std::move(options), over, where);
  return detail::checks::verdict_of(run, f);
}

}  // namespace TIDEMARK_TAG
}  // namespace testing
}  // namespace v0
}  // namespace tidemark
