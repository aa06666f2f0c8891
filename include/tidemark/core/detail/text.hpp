// SPDX-License-Identifier: MIT
// Text for people and files: numbers, and names that may hold any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/core/bytes.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// The length of the UTF-8 character at the start of `text`, or 0 where its first byte begins none. Overlong forms,
/// surrogates and what lies beyond U+10FFFF are none. Source: The Unicode Standard, table 3-7.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned lowest = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned highest = first == 0xED ? 0x9F : 0xBF;
    return second >= lowest && second <= highest && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned lowest = first == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = first == 0xF4 ? 0x8F : 0xBF;
    return second >= lowest && second <= highest && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

/// Appends `text` as valid UTF-8, each bad byte as U+FFFD, and each character below U+0020, and U+007F, as
/// `control(out, character)` says.
template <class Control>
void append_clean(std::string& out, std::string_view text, Control control, bool c1_too = false) {
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (n == 0) {
      out += "\xEF\xBF\xBD";
    } else if (n == 1 && (c < 0x20 || c == 0x7F)) {
      control(out, c);
    } else if (c1_too && n == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) {
      control(out, static_cast<unsigned char>(text[1]));
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
}

inline void append_hex(std::string& out, unsigned char c) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += digits[c >> 4];
  out += digits[c & 15U];
}

/// In double quotes, as JSON writes it. Source: RFC 8259; what is no valid UTF-8 gets U+FFFD for each bad byte.
inline void append_json_string(std::string& out, std::string_view s) {
  out += '"';
  for (std::size_t from = 0; from < s.size();) {
    const std::size_t special = s.find_first_of("\"\\", from);
    append_clean(out, s.substr(from, special - from), [](std::string& o, unsigned char c) {
      o += "\\u00";
      append_hex(o, c);
    });
    if (special == std::string_view::npos) break;
    out += '\\';
    out += s[special];
    from = special + 1;
  }
  out += '"';
}

/// For a person: one line, whatever the name holds. Controls show as \x1b, a newline as \n.
inline void append_printable(std::string& out, std::string_view text) {
  append_clean(
      out, text,
      [](std::string& o, unsigned char c) {
        if (c == '\n') {
          o += "\\n";
        } else {
          o += "\\x";
          append_hex(o, c);
        }
      },
      true);
}

[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string out;
  append_printable(out, text);
  return out;
}

inline void append_integer(std::string& out, std::int64_t n) { out += std::to_string(n); }
inline void append_integer(std::string& out, std::uint64_t n) { out += std::to_string(n); }

/// An amount of a meter: bytes as people write them, another unit as it is.
inline void append_amount(std::string& out, std::int64_t n, std::string_view unit) {
  if (unit == "bytes") {
    out += format_bytes(n);
  } else {
    append_integer(out, n);
    out += ' ';
    append_printable(out, unit);
  }
}

/// The same with its sign always shown.
inline void append_change(std::string& out, std::int64_t n, std::string_view unit) {
  if (n >= 0) out += '+';
  append_amount(out, n, unit);
}

/// "1.84 ms": three digits, from nanoseconds to seconds.
inline void append_duration(std::string& out, std::int64_t ns) {
  struct step {
    std::int64_t ns;
    std::string_view unit;
  };
  constexpr step steps[] = {{1'000'000'000, " s"}, {1'000'000, " ms"}, {1'000, " us"}};
  for (const step& s : steps) {
    if (ns < s.ns) continue;
    const std::int64_t hundredths = ns / (s.ns / 100);
    append_integer(out, hundredths / 100);
    const std::int64_t part = hundredths % 100;
    if (hundredths < 10'000) {
      out += '.';
      out += static_cast<char>('0' + part / 10);
      if (hundredths < 1'000) out += static_cast<char>('0' + part % 10);
    }
    out += s.unit;
    return;
  }
  append_integer(out, ns);
  out += " ns";
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
