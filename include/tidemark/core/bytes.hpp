// SPDX-License-Identifier: MIT
// Byte counts as people write them: literals, and text in both directions. KiB, MiB, GiB are powers of 1,024; KB, MB, GB
// powers of 1,000.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {

inline namespace literals {

constexpr std::int64_t operator""_B(unsigned long long n) noexcept { return static_cast<std::int64_t>(n); }
constexpr std::int64_t operator""_KiB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n << 10); }
constexpr std::int64_t operator""_MiB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n << 20); }
constexpr std::int64_t operator""_GiB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n << 30); }
constexpr std::int64_t operator""_KB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n * 1'000); }
constexpr std::int64_t operator""_MB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n * 1'000'000); }
constexpr std::int64_t operator""_GB(unsigned long long n) noexcept {
  return static_cast<std::int64_t>(n * 1'000'000'000);
}

}  // namespace literals

namespace detail {

/// What `format_bytes` says, in a buffer of its own: for where nothing may be allocated.
class byte_text {
 public:
  explicit byte_text(std::int64_t bytes) noexcept {
    // The magnitude is taken unsigned: the lowest int64_t has no positive counterpart.
    const std::uint64_t magnitude =
        bytes < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(bytes) : static_cast<std::uint64_t>(bytes);
    if (bytes < 0) put('-');
    if (magnitude < 1024) {
      put_number(magnitude);
      put(' ');
      put('B');
      return;
    }
    int unit = 0;
    std::uint64_t tenths = 0;
    for (;; ++unit) {
      const int shift = 10 * (unit + 1);
      const std::uint64_t rest = magnitude & ((std::uint64_t{1} << shift) - 1);
      // The rest is first cut to 10 bits and a sticky one, so that ten times it cannot overflow.
      const std::uint64_t scaled =
          (rest >> (shift - 10)) << 1 | ((rest & ((std::uint64_t{1} << (shift - 10)) - 1)) != 0);
      tenths = (magnitude >> shift) * 10 + (scaled * 10 + 1024) / 2048;
      if (tenths < 10 * 1024 || unit == 5) break;
    }
    put_number(tenths / 10);
    put('.');
    put_number(tenths % 10);
    put(' ');
    put("KMGTPE"[unit]);
    put('i');
    put('B');
  }
  [[nodiscard]] std::string_view view() const noexcept { return {characters_, size_}; }

 private:
  void put(char c) noexcept { characters_[size_++] = c; }
  void put_number(std::uint64_t n) noexcept {  // below 1,024
    for (std::uint64_t place = n < 10 ? 1 : n < 100 ? 10 : n < 1'000 ? 100 : 1'000; place > 0; place /= 10) {
      put(static_cast<char>('0' + n / place % 10));
    }
  }

  char characters_[16];  // "-1023.9 KiB" is the longest
  std::size_t size_ = 0;
};

}  // namespace detail

/// "512 B", "12.4 MiB", "-3.0 KiB": the largest power of 1,024 that leaves at least 1.0, with one rounded decimal.
/// Throws: `std::bad_alloc`.
[[nodiscard]] inline std::string format_bytes(std::int64_t bytes) {
  return std::string(detail::byte_text(bytes).view());
}

/// Reads "24 MiB", "1.5GB", "-3.0 KiB", "4096"; upper and lower case alike. Absent with what is wrong with the text.
/// A fraction of a byte is rounded to the nearest.
[[nodiscard]] inline reading<std::int64_t> parse_bytes(std::string_view text) {
  using result = reading<std::int64_t>;
  constexpr std::uint64_t most = static_cast<std::uint64_t>(INT64_MAX);
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  if (text.empty()) return result::absent("no byte count: the text is empty");
  const bool negative = text.front() == '-';
  if (negative || text.front() == '+') text.remove_prefix(1);

  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::uint64_t whole = 0;
  std::size_t at = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    const std::uint64_t digit = static_cast<std::uint64_t>(text[at] - '0');
    if (whole > (most - digit) / 10) return result::absent("no byte count: the number is beyond 8 EiB");
    whole = whole * 10 + digit;
  }
  std::size_t digits = at;
  std::uint64_t fraction = 0;  // in units of 1e-9: finer digits cannot move a GiB by half a byte
  std::uint64_t place = 100'000'000;
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && is_digit(text[at]); ++at, ++digits) {
      fraction += static_cast<std::uint64_t>(text[at] - '0') * place;
      place /= 10;
    }
  }
  if (digits == 0) return result::absent("no byte count: it starts with no digit");

  std::string_view unit = text.substr(at);
  while (!unit.empty() && is_space(unit.front())) unit.remove_prefix(1);
  struct named {
    std::string_view name;
    std::uint64_t bytes;
  };
  constexpr named units[] = {{"", 1},
                             {"b", 1},
                             {"kib", std::uint64_t{1} << 10},
                             {"mib", std::uint64_t{1} << 20},
                             {"gib", std::uint64_t{1} << 30},
                             {"tib", std::uint64_t{1} << 40},
                             {"kb", 1'000},
                             {"mb", 1'000'000},
                             {"gb", 1'000'000'000},
                             {"tb", 1'000'000'000'000}};
  const auto matches = [unit](std::string_view name) {
    if (unit.size() != name.size()) return false;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const char c = unit[i];
      if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != name[i]) return false;
    }
    return true;
  };
  for (const named& u : units) {
    if (!matches(u.name)) continue;
    if (whole > most / u.bytes) return result::absent("no byte count: the number is beyond 8 EiB");
    // Two steps, so that a fraction of a TiB times 1e9 stays within 64 bits.
    const std::uint64_t high = fraction * (u.bytes / 1'000);
    const std::uint64_t low = fraction * (u.bytes % 1'000);
    const std::uint64_t part = high / 1'000'000 + ((high % 1'000'000) * 1'000 + low + 500'000'000) / 1'000'000'000;
    if (whole * u.bytes > most - part) return result::absent("no byte count: the number is beyond 8 EiB");
    const std::int64_t bytes = static_cast<std::int64_t>(whole * u.bytes + part);
    return negative ? -bytes : bytes;
  }
  return result::absent("no byte count: the unit is none of B KiB MiB GiB TiB KB MB GB TB");
}

}  // namespace v0
}  // namespace tidemark
