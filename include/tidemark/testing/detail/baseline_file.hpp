// SPDX-License-Identifier: MIT
// The file of baselines: one JSON object, an entry a line, sorted by name, so that a change is one line of a diff. Read
// strictly, since a typing mistake must not let a check pass. Source: RFC 8259.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/core/detail/text.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

/// What a figure can be at most: 2^63.
inline constexpr std::uint64_t most_baseline_figure = std::uint64_t{1} << 63;

/// A number of zero or more as its decimal digits: 0.d1d2d3... times ten to the power `point`. Neither end digit is 0.
struct decimal {
  std::string digits;
  int point = 0;
};

/// Reads a JSON number that has no sign. `end` is where it ends: 0 where there is none.
[[nodiscard]] inline decimal read_decimal(std::string_view text, std::size_t& end) {
  constexpr int most_exponent = 100'000;  // beyond any use, within any int
  const auto is_digit = [text](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  decimal number;
  std::size_t at = 0;
  end = 0;
  if (!is_digit(0) || (text[0] == '0' && is_digit(1))) return number;
  for (; is_digit(at); ++at) number.digits += text[at];
  number.point = static_cast<int>(at < most_exponent ? at : most_exponent);
  if (at < text.size() && text[at] == '.') {
    if (!is_digit(++at)) return {};
    for (; is_digit(at); ++at) number.digits += text[at];
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const bool is_negative = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    if (!is_digit(at)) return {};
    int exponent = 0;
    for (; is_digit(at); ++at) {
      if (exponent < most_exponent) exponent = exponent * 10 + (text[at] - '0');
    }
    number.point += is_negative ? -exponent : exponent;
  }
  end = at;
  const std::size_t first = number.digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  number.digits.erase(0, first);
  number.point -= static_cast<int>(first);
  number.digits.erase(number.digits.find_last_not_of('0') + 1);
  return number;
}

/// The shortest decimal that is this double and no other: 0.05 as a person wrote it, not 0.05000000000000000277. Takes
/// what is finite and not below 0.
[[nodiscard]] inline decimal decimal_of(double number) {
  char text[64] = "";
  for (int digits = 0; digits < 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*e", digits, number);
    if (!(std::strtod(text, nullptr) < number) && !(std::strtod(text, nullptr) > number)) break;
  }
  std::string plain;  // the point is the locale's, and may be any bytes
  for (const char* c = text; *c != '\0'; ++c) {
    if ((*c >= '0' && *c <= '9') || *c == 'e' || *c == '+' || *c == '-') plain += *c;
    if (plain.size() == 1) plain += '.';
  }
  if (plain.find('e') == 2) plain.erase(1, 1);  // no digit behind the point
  std::size_t end = 0;
  return read_decimal(plain, end);
}

/// Whether difference / whole <= limit, exactly.
[[nodiscard]] inline bool is_within(std::uint64_t difference, std::uint64_t whole, const decimal& limit) {
  if (difference == 0) return true;
  if (whole == 0 || limit.digits.empty()) return false;
  // The quotient lies between 2^-64 and 2^64: 20 digits on either side of the point.
  if (limit.point > 20) return true;
  if (limit.point < -20) return false;
  const std::size_t places = limit.point > 0 ? static_cast<std::size_t>(limit.point) : 0;
  std::string integer = limit.digits.substr(0, places);
  integer.append(places - integer.size(), '0');
  if (integer.empty()) integer = "0";
  std::string fraction(limit.point < 0 ? static_cast<std::size_t>(-limit.point) : 0, '0');
  if (places < limit.digits.size()) fraction += limit.digits.substr(places);

  const std::string quotient = std::to_string(difference / whole);
  if (quotient.size() != integer.size()) return quotient.size() < integer.size();
  if (quotient != integer) return quotient < integer;
  std::uint64_t rest = difference % whole;
  for (const char wanted : fraction) {  // long division; ten times the rest could be too large for 64 bits
    char digit = '0';
    std::uint64_t next = 0;
    for (int i = 0; i < 10; ++i) {
      const bool carries = next >= whole - rest;
      next = carries ? next - (whole - rest) : next + rest;
      if (carries) ++digit;
    }
    if (digit != wanted) return digit < wanted;
    rest = next;
  }
  return rest == 0;
}

/// What an entry holds.
struct baseline_figures {
  std::uint64_t peak_growth_bytes = 0;
  std::uint64_t allocations = 0;
  std::uint64_t allocated_bytes = 0;
  std::string tolerance;  // as it is written; empty: none
};

using baseline_entries = std::map<std::string, baseline_figures>;  // a std::string is ordered bytewise

/// `"name": {...}`, without a comma.
[[nodiscard]] inline std::string baseline_line(std::string_view name, const baseline_figures& figures) {
  std::string out = "  ";
  append_json_string(out, name);
  out += R"(: {"peak_growth_bytes": )";
  append_integer(out, figures.peak_growth_bytes);
  out += R"(, "allocations": )";
  append_integer(out, figures.allocations);
  out += R"(, "allocated_bytes": )";
  append_integer(out, figures.allocated_bytes);
  if (!figures.tolerance.empty()) {
    out += R"(, "tolerance": )";
    out += figures.tolerance;
  }
  out += '}';
  return out;
}

/// The whole file.
[[nodiscard]] inline std::string baseline_text(const baseline_entries& entries) {
  if (entries.empty()) return "{}\n";
  std::string out = "{\n";
  const char* separator = "";
  for (const auto& entry : entries) {
    out += separator;
    separator = ",\n";
    out += baseline_line(entry.first, entry.second);
  }
  out += "\n}\n";
  return out;
}

/// Reads a file of baselines, and nothing else.
class baseline_parser {
 public:
  explicit baseline_parser(std::string_view text) : text_(text) {}

  /// Whether the text is such a file; `error()` says what is wrong with it, and where.
  [[nodiscard]] bool parse(baseline_entries& entries) {
    skip_space();
    if (at_ == text_.size()) return fail(0, "the file is empty; one without entries holds {}");
    if (text_.substr(0, 3) == "\xEF\xBB\xBF")
      return fail(0, "the file begins with a byte order mark; save it without one");
    if (!take('{')) return expect("'{'");
    if (!take('}')) {
      do {
        if (!entry(entries)) return false;
      } while (take(','));
      if (!take('}')) return expect("',' or '}' after an entry");
    }
    skip_space();
    return at_ == text_.size() || expect("the end of the file");
  }

  /// "line 3, column 12: expected ':' after a name, found '}'".
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  [[nodiscard]] bool entry(baseline_entries& entries) {
    skip_space();
    const std::size_t begin = at_;
    std::string name;
    if (!string(name, "the name of an entry in double quotes")) return false;
    if (name.empty()) return fail(begin, "the name of an entry is empty");
    const auto made = entries.emplace(std::move(name), baseline_figures());
    if (!made.second) return fail(begin, "there are two entries of the name " + quoted(made.first->first));
    if (!take(':')) return expect("':' after the name of an entry");
    return figures(made.first->first, made.first->second);
  }

  [[nodiscard]] bool figures(const std::string& name, baseline_figures& into) {
    struct field {
      const char* key;
      std::uint64_t* number;
      bool is_there;
    };
    field fields[] = {{"peak_growth_bytes", &into.peak_growth_bytes, false},
                      {"allocations", &into.allocations, false},
                      {"allocated_bytes", &into.allocated_bytes, false},
                      {"tolerance", nullptr, false}};
    if (!take('{')) return expect("'{', where the figures of an entry begin");
    if (peek() != '}') {
      do {
        skip_space();
        const std::size_t begin = at_;
        std::string key;
        if (!string(key, "the name of a figure in double quotes")) return false;
        field* known = nullptr;
        for (field& f : fields) {
          if (key == f.key) known = &f;
        }
        if (known == nullptr) return fail(begin, "no figure is called " + quoted(key) + known_figures);
        if (known->is_there) return fail(begin, "the entry has " + quoted(key) + " twice");
        known->is_there = true;
        if (!take(':')) return expect("':' after the name of a figure");
        if (!(known->number != nullptr ? whole_number(*known->number) : tolerance(into.tolerance))) return false;
      } while (take(','));
    }
    skip_space();
    const std::size_t end = at_;
    if (!take('}')) return expect("',' or '}' after a figure");
    for (const field& f : fields) {
      if (f.is_there || f.number == nullptr) continue;
      return fail(end, "the entry " + quoted(name) + " lacks \"" + f.key + '"');
    }
    return true;
  }

  [[nodiscard]] bool whole_number(std::uint64_t& into) {
    if (peek() == '-') return fail(at_, "the figure is negative");
    if (!starts_number()) return expect("a whole number");
    std::size_t end = 0;
    static_cast<void>(read_decimal(text_.substr(at_), end));
    if (end == 0) return fail(at_, "expected a whole number, which does not begin with 0 unless it is 0");
    std::uint64_t number = 0;
    for (const char c : text_.substr(at_, end)) {
      if (c < '0' || c > '9') return fail(at_, "expected a whole number, without a fraction or an exponent");
      const auto digit = static_cast<std::uint64_t>(c - '0');
      if (number > (most_baseline_figure - digit) / 10) return fail(at_, "the figure is larger than 2^63");
      number = number * 10 + digit;
    }
    into = number;
    at_ += end;
    return true;
  }

  [[nodiscard]] bool tolerance(std::string& into) {
    if (peek() == '-') return fail(at_, "the tolerance is negative");
    if (!starts_number()) return expect("a number of zero or more: 0.05 is 5 %");
    std::size_t end = 0;
    const decimal number = read_decimal(text_.substr(at_), end);
    if (end == 0) return fail(at_, "expected a number of zero or more as JSON writes it: 0.05 is 5 %");
    if (number.point > 300) return fail(at_, "the tolerance is too large");
    into = text_.substr(at_, end);
    at_ += end;
    return true;
  }

  [[nodiscard]] bool string(std::string& into, const char* what) {
    if (!take('"')) return expect(what);
    const std::size_t begin = at_ - 1;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      const std::size_t n = utf8_length(text_.substr(at_));
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        if (!escape(into)) return false;
        continue;
      }
      if (c < 0x20) return expect("the rest of a string, in which controls are written as \\n or \\u000a");
      if (n == 0) return expect("UTF-8");
      into += text_.substr(at_, n);
      at_ += n;
    }
    return fail(begin, "the string that begins here does not end");
  }

  [[nodiscard]] bool escape(std::string& into) {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    const std::size_t begin = at_++;
    const std::size_t which = at_ < text_.size() ? letters.find(text_[at_]) : std::string_view::npos;
    if (which != std::string_view::npos) {
      into += meanings[which];
      ++at_;
      return true;
    }
    unsigned long code = 0;
    if (!hex(code))
      return fail(begin, "the backslash begins none of JSON's escapes: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u000a");
    if (code >= 0xD800 && code <= 0xDFFF) {
      unsigned long low = 0;
      const bool is_pair = code <= 0xDBFF && at_ < text_.size() && text_[at_++] == '\\' && hex(low);
      if (!is_pair || low < 0xDC00 || low > 0xDFFF)
        return fail(begin, "the escape is half a character: a lone surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(into, code);
    return true;
  }

  [[nodiscard]] bool hex(unsigned long& code) {
    constexpr std::string_view digits = "0123456789abcdef0123456789ABCDEF";
    if (text_.size() - at_ < 5 || text_[at_] != 'u') return false;
    for (const char c : text_.substr(at_ + 1, 4)) {
      const std::size_t digit = digits.find(c);
      if (digit == std::string_view::npos) return false;
      code = code << 4 | (digit & 15U);
    }
    at_ += 5;
    return true;
  }

  static void append_utf8(std::string& out, unsigned long code) {
    const auto put = [&out](unsigned long byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xC0 | code >> 6);
    } else {
      if (code < 0x10000) {
        put(0xE0 | code >> 12);
      } else {
        put(0xF0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3F));
      }
      put(0x80 | (code >> 6 & 0x3F));
    }
    put(0x80 | (code & 0x3F));
  }

  void skip_space() noexcept {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  /// The next character that is no space; 0 at the end.
  [[nodiscard]] char peek() noexcept {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  [[nodiscard]] bool take(char c) noexcept {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool starts_number() noexcept { return peek() >= '0' && peek() <= '9'; }

  [[nodiscard]] static std::string quoted(std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  }

  /// False, for the caller to return.
  [[nodiscard]] bool expect(const char* what) {
    std::string found = "the end of the file";
    if (at_ < text_.size()) {
      const std::size_t n = utf8_length(text_.substr(at_));
      const auto c = static_cast<unsigned char>(text_[at_]);
      found = "'";
      if (n == 0) {
        found = "the byte 0x";
        append_hex(found, c);
      } else {
        append_printable(found, text_.substr(at_, n));
        found += '\'';
      }
    }
    return fail(at_, std::string("expected ") + what + ", found " + found);
  }
  [[nodiscard]] bool fail(std::size_t at, const std::string& what) {
    std::size_t line = 1;
    std::size_t column = 1;
    for (const char c : text_.substr(0, at)) {
      if (c == '\n') {
        ++line;
        column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80) {  // a character counts once
        ++column;
      }
    }
    error_ = "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what;
    return false;
  }

  static constexpr const char* known_figures =
      R"(; an entry has "peak_growth_bytes", "allocations", "allocated_bytes" and, if it likes, "tolerance")";

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
};

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
