// SPDX-License-Identifier: MIT
// A check as a statement of a test: it tells the framework what it found, however its body is left.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/figure_check.hpp>
#include <tidemark/testing/detail/words.hpp>
#include <tidemark/testing/extent.hpp>
#include <tidemark/testing/verdict.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

/// A limit in whatever integer a test writes it.
template <class N>
[[nodiscard]] constexpr std::int64_t limit_of(N n) noexcept {
  static_assert(std::is_integral_v<N>, "a limit is a whole number of bytes or allocations");
  if constexpr (std::is_unsigned_v<N>) return n > std::uint64_t{INT64_MAX} ? INT64_MAX : static_cast<std::int64_t>(n);
  return static_cast<std::int64_t>(n);
}

template <class N>
[[nodiscard]] constexpr expectation expected(const char* name, figure what, N limit) noexcept {
  return {what, limit_of(limit), name};
}

/// What stands in front of a message is the framework's to say.
[[nodiscard]] inline std::string without_line(const testing::verdict& v, const location& where) {
  const std::string line = line_of(where) + ": ";
  const bool has_line = v.message.compare(0, line.size(), line) == 0;
  return has_line ? v.message.substr(line.size()) : v.message;
}

inline namespace TIDEMARK_TAG {

/// `Framework::report(verdict, where, is_fatal)` tells a test framework, and throws where that is how it ends a test.
template <class Framework, class Check>
class reported_check {
 public:
  template <class... Args>
  explicit reported_check(const location& where, Args&&... args)
      : where_(where), check_(std::forward<Args>(args)..., where) {}
  reported_check(const reported_check&) = delete;
  reported_check& operator=(const reported_check&) = delete;

  // Where a framework throws from a report, so does this; never while an exception is on its way.
  ~reported_check() noexcept(false) {
    if (is_told_) return;
    const bool by_exception = std::uncaught_exceptions() > exceptions_before_;
    if (!by_exception) {
      check_.is_left("it was left by return", true);
      static_cast<void>(report(false));
      return;
    }
    check_.is_left("it was left by an exception", false);
    contain_exceptions([this] { static_cast<void>(report(false)); }, [](const char*) {});
  }

  [[nodiscard]] bool next() { return check_.next(); }

  /// In a handler around the body. False: the exception goes on.
  [[nodiscard]] bool keeps_exception() { return check_.has_caught() && !check_.lets_out(); }

  /// Tells the framework. Returns whether the check held.
  bool report(bool is_fatal) {
    is_told_ = true;
    check_.is_left("it was left by break", true);
    const quiet hidden;
    const testing::verdict v = check_.verdict();
    Framework::report(v, where_, is_fatal);
    return v.ok;
  }

 private:
  location where_;
  int exceptions_before_ = std::uncaught_exceptions();
  bool is_told_ = false;
  Check check_;
};

/// The same of a verdict that is there already.
template <class Framework>
bool report_verdict(const testing::verdict& v, bool is_fatal, const location& where = location::current()) {
  const quiet hidden;
  Framework::report(v, where, is_fatal);
  return v.ok;
}

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
