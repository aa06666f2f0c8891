// SPDX-License-Identifier: MIT
// A table of text for a terminal: columns as wide as their widest cell, names on the left, numbers on the right.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/detail/width.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// At most that many columns of a printable text; what is cut off shows as an ellipsis.
[[nodiscard]] inline std::string fitted(std::string text, std::size_t columns) {
  if (display_width(text) <= columns) return text;
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t length = utf8_length(std::string_view(text).substr(end));
    const std::size_t next = end + (length == 0 ? 1 : length);
    if (display_width(std::string_view(text).substr(0, next)) + 1 > columns) break;
    end = next;
  }
  text.resize(end);
  return text += "\xE2\x80\xA6";
}

/// "1,234,567"
template <class Integer>
[[nodiscard]] std::string grouped(Integer n) {
  std::string text;
  append_integer(text, n);
  const std::size_t first = text[0] == '-' ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

class text_table {
 public:
  struct column {
    std::string_view title;
    bool is_number;
  };
  using row = std::vector<std::string>;  // printable cells; missing ones are empty

  explicit text_table(std::vector<column> columns) : columns_(std::move(columns)) {}

  void add(row cells) { rows_.push_back(std::move(cells)); }
  [[nodiscard]] bool is_empty() const noexcept { return rows_.empty(); }

  [[nodiscard]] std::string text() const {
    std::string all;
    append_to(all);
    return all;
  }
  void append_to(std::string& out) const {
    std::vector<std::size_t> widths;
    for (const column& c : columns_) widths.push_back(display_width(c.title));
    for (const row& cells : rows_) {
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::size_t width = display_width(cells[i]);
        if (width > widths[i]) widths[i] = width;
      }
    }
    row titles;
    for (const column& c : columns_) titles.emplace_back(c.title);
    append_row(out, titles, widths);
    for (const row& cells : rows_) append_row(out, cells, widths);
  }

 private:
  void append_row(std::string& out, const row& cells, const std::vector<std::size_t>& widths) const {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      append_padded(line, i < cells.size() ? std::string_view(cells[i]) : std::string_view(), widths[i],
                    columns_[i].is_number);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line;
    out += '\n';
  }

  std::vector<column> columns_;
  std::vector<row> rows_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
