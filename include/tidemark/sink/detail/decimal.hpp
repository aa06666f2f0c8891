// SPDX-License-Identifier: MIT
// Decimal fractions without floating point: whole to the last digit, and with a point in every locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Appends `n` with its last `digits` digits behind the point: 1234567 with 3 is "1234.567".
inline void append_fixed(std::string& out, std::int64_t n, std::size_t digits) {
  std::string text =
      std::to_string(n < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n));
  if (text.size() <= digits) text.insert(0, digits + 1 - text.size(), '0');
  text.insert(text.size() - digits, 1, '.');
  if (n < 0) out += '-';
  out += text;
}

/// Units: MiB with 6 digits behind the point, cut.
inline void append_mebibytes(std::string& out, std::int64_t bytes) {
  constexpr std::int64_t mebibyte = 1'048'576;
  append_fixed(out, bytes / mebibyte * 1'000'000 + bytes % mebibyte * 1'000'000 / mebibyte, 6);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
