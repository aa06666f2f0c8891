// SPDX-License-Identifier: MIT
// What a check found.
#pragma once

#include <string>

#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {

/// What a check found: whether it held, in words, and the figures that it was judged by.
/// The message is the library's own memory: it is in no number.
struct [[nodiscard]] verdict {
  bool ok = false;
  std::string message;  ///< several lines: the line of the check, what was expected and measured, the figures
  window_usage usage;   ///< all zero, and `counts_events` false, where nothing could be measured

  explicit operator bool() const noexcept { return ok; }
};

}  // namespace testing
}  // namespace v0
}  // namespace tidemark
