// SPDX-License-Identifier: MIT
// The columns of whole texts. width_check.py compares each code point with another table.
#include <tidemark/core/detail/width.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include "test.hpp"

using tidemark::detail::append_padded;
using tidemark::detail::code_points;
using tidemark::detail::display_width;

namespace {

template <std::size_t N>
bool is_sorted_and_apart(const code_points (&table)[N]) {
  for (std::size_t i = 0; i < N; ++i) {
    if (table[i].first > table[i].last) return false;
    if (i > 0 && table[i - 1].last >= table[i].first) return false;
  }
  return true;
}

std::string padded(std::string_view text, std::size_t width, bool right) {
  std::string out = "|";
  append_padded(out, text, width, right);
  return out + "|";
}

}  // namespace

TEST_CASE("a text is as wide as the columns that a terminal takes for it") {
  struct row {
    std::string_view what;
    std::string_view text;
    std::size_t columns;
  };
  for (const row& r : {
           row{"nothing", "", 0},
           row{"ASCII", "train step/forward", 18},
           row{"e with an acute accent, one character", "\xC3\xA9", 1},
           row{"e and a combining acute accent", "e\xCC\x81", 1},
           row{"Greek", "\xCE\xB1\xCE\xB2", 2},
           row{"Chinese", "\xE4\xB8\xAD\xE6\x96\x87", 4},
           row{"Japanese, with a full-width A", "\xE3\x81\x82\xEF\xBC\xA1", 4},
           row{"half-width katakana", "\xEF\xBD\xB1", 1},
           row{"a Hangul syllable", "\xED\x95\x9C", 2},
           row{"the same of its three Jamo", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", 2},
           row{"an emoji", "\xF0\x9F\x9A\x80", 2},
           row{"a heart as text", "\xE2\x9D\xA4", 1},
           row{"a heart with the emoji variation selector", "\xE2\x9D\xA4\xEF\xB8\x8F", 2},
           row{"a selector twice", "\xE2\x9D\xA4\xEF\xB8\x8F\xEF\xB8\x8F", 2},
           row{"a wide emoji with the selector", "\xF0\x9F\x9A\x80\xEF\xB8\x8F", 2},
           row{"a heart with the text variation selector", "\xE2\x9D\xA4\xEF\xB8\x8E", 1},
           row{"a keycap", "1\xEF\xB8\x8F\xE2\x83\xA3", 2},
           row{"a selector alone", "\xEF\xB8\x8F", 0},
           row{"zero-width space, joiners and marks", "a\xE2\x80\x8B\xE2\x80\x8D\xE2\x80\x8F\xEF\xBB\xBF", 1},
           row{"two emoji that a ZWJ joins", "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80", 4},
           row{"a flag of two letters", "\xF0\x9F\x87\xAB\xF0\x9F\x87\xAE", 2},
           row{"the soft hyphen", "\xC2\xAD", 1},
           row{"the replacement character", "\xEF\xBF\xBD", 1},
           row{"private use", "\xEE\x80\x80", 1},
           row{"the last code point", "\xF4\x8F\xBF\xBF", 1},
           row{"a rare Chinese character of plane 3", "\xF0\xB0\x80\x80", 2},
       }) {
    CAPTURE(r.what);
    CHECK(display_width(r.text) == r.columns);
  }
}

TEST_CASE("a byte that is no UTF-8 takes one column, and no byte beyond the text is read") {
  const std::string cut = "\xE4\xB8\xAD";
  CHECK(display_width(std::string_view(cut).substr(0, 2)) == 2);
  CHECK(display_width("\xFF\x80") == 2);
}

TEST_CASE("text is padded to columns, not to bytes, and a wider one stays whole") {
  CHECK(padded("abc", 5, false) == "|abc  |");
  CHECK(padded("abc", 5, true) == "|  abc|");
  CHECK(padded("abc", 3, false) == "|abc|");
  CHECK(padded("abc", 2, true) == "|abc|");
  CHECK(padded("", 2, false) == "|  |");
  CHECK(padded("\xE4\xB8\xAD", 4, true) == "|  \xE4\xB8\xAD|");
  CHECK(padded("e\xCC\x81", 3, false) == "|e\xCC\x81  |");
}

TEST_CASE("the tables are sorted, as the search needs them") {
  CHECK(is_sorted_and_apart(tidemark::detail::zero_width));
  CHECK(is_sorted_and_apart(tidemark::detail::double_width));
  CHECK(!is_sorted_and_apart({code_points{5, 6}, code_points{6, 7}}));
}
