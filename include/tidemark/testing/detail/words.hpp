// SPDX-License-Identifier: MIT
// How checks say their figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

/// "1,234,567"
[[nodiscard]] inline std::string grouped(std::uint64_t n) {
  std::string digits = std::to_string(n);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

[[nodiscard]] inline std::uint64_t magnitude(std::int64_t n) noexcept {
  return n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
}

/// "64.0 KiB (65,536 bytes)", "1 byte", "-8 bytes"
[[nodiscard]] inline std::string exact_bytes(std::int64_t n) {
  const std::uint64_t size = magnitude(n);
  const std::string exact = (n < 0 ? "-" : "") + grouped(size) + (size == 1 ? " byte" : " bytes");
  return size < 1'024 ? exact : format_bytes(n) + " (" + exact + ")";
}
[[nodiscard]] inline std::string exact_bytes(std::uint64_t n) {
  if (n <= std::uint64_t{INT64_MAX}) return exact_bytes(static_cast<std::int64_t>(n));
  return format_bytes(INT64_MAX) + " (" + grouped(n) + " bytes)";
}

/// "1 allocation", "2 allocations"
[[nodiscard]] inline std::string counted(std::uint64_t n, std::string_view what) {
  return grouped(n).append(" ").append(what).append(n == 1 ? "" : "s");
}

/// Whose figures these are.
[[nodiscard]] inline std::string owner_of(const testing::extent& over) {
  switch (over.what()) {
    case testing::extent::kind::thread:
      return "this thread";
    case testing::extent::kind::process:
      return "the whole process";
    case testing::extent::kind::task:
      return "the threads of the task";
    case testing::extent::kind::domain:
      break;
  }
  return "domain '" + over.of_domain()->name() + "'";
}

/// "tests/model_test.cpp:41"
[[nodiscard]] inline std::string line_of(const location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

/// The lines of a message, each with its label.
class message_lines {
 public:
  message_lines(const location& where, std::string_view headline) {
    text_ = line_of(where);
    text_.append(": ").append(headline);
  }
  message_lines& add(std::string_view label, std::string_view text) {
    constexpr std::size_t width = 12;
    text_.append("\n  ").append(label);
    text_.append(label.size() < width ? width - label.size() : 1, ' ').append(text);
    return *this;
  }

  /// Entry, peak, exit, the largest single allocation, and what was counted.
  message_lines& add_figures(const window_usage& u, std::string_view whose) {
    add("entry", exact_bytes(u.entry_bytes) + " live before");
    add("peak", exact_bytes(u.peak_bytes) + ", " + exact_bytes(u.peak_growth()) + " above the entry");
    add("exit", exact_bytes(u.exit_bytes) + " live after");
    if (u.counts_events) {
      add("largest", u.allocations == 0 ? std::string("no allocation")
                                        : exact_bytes(u.largest_bytes) + " in one allocation, the largest");
      add("counted", counted(u.allocations, "allocation") + ", " + exact_bytes(u.allocated_bytes) + "; " +
                         counted(u.deallocations, "deallocation") + ", " + exact_bytes(u.freed_bytes));
    }
    add("of", whose);
    if (u.error_bound_bytes > 0)
      add("within", "entry, peak and exit are each known within " + exact_bytes(u.error_bound_bytes));
    return *this;
  }

  [[nodiscard]] std::string text() { return std::move(text_); }

 private:
  std::string text_;
};

/// A check that nothing could be seen of.
[[nodiscard]] inline testing::verdict unchecked(const location& where, std::string_view why) {
  testing::verdict v;
  v.usage.counts_events = false;
  v.message = message_lines(where, "not checked, and so not passed").add("because", why).text();
  return v;
}

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
