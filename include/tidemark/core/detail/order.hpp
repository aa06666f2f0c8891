// SPDX-License-Identifier: MIT
// The lesser and the greater of two: the standard's own names are macros in some programs.
#pragma once

namespace tidemark {
inline namespace v0 {
namespace detail {

template <class T>
[[nodiscard]] constexpr T lesser(T a, T b) noexcept {
  return b < a ? b : a;
}

template <class T>
[[nodiscard]] constexpr T greater(T a, T b) noexcept {
  return a < b ? b : a;
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
