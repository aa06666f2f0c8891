// SPDX-License-Identifier: MIT
// Rows of text in columns as wide as their widest cell, names on the left, numbers on the right.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/detail/os_message.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// "-1,234,567", of "-1234567".
[[nodiscard]] inline std::string grouped_digits(std::string number) {
  const std::size_t first = number[0] == '-' ? 1 : 0;
  for (std::size_t at = number.size(); at > first + 3;) number.insert(at -= 3, 1, ',');
  return number;
}

/// The first row is the titles. `numbers`: a letter for each column, 'n' where it holds numbers.
class columns {
 public:
  using row = std::vector<std::string>;

  columns(std::string_view numbers, row titles) : numbers_(numbers) { add(std::move(titles)); }

  void add(row cells) {
    widths_.resize(numbers_.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      for (char& c : cells[i]) {
        if (os::is_control(c)) c = '?';  // a name may hold any
      }
      const std::size_t width = width_of(cells[i]);
      if (widths_[i] < width) widths_[i] = width;
    }
    rows_.push_back(std::move(cells));
  }

  [[nodiscard]] std::string text() const {
    std::string all;
    for (const row& cells : rows_) {
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::size_t padding = widths_[i] - width_of(cells[i]);
        const bool is_last = i + 1 == cells.size();
        if (numbers_[i] == 'n') all.append(padding, ' ');
        all += cells[i];
        if (numbers_[i] != 'n' && !is_last) all.append(padding, ' ');
        all += is_last ? "\n" : "  ";
      }
    }
    return all;
  }

 private:
  // Characters: names of types and files are letters.
  [[nodiscard]] static std::size_t width_of(std::string_view cell) noexcept {
    std::size_t n = 0;
    for (const char c : cell) n += (static_cast<unsigned char>(c) & 0xC0U) != 0x80 ? 1 : 0;
    return n;
  }

  std::string_view numbers_;
  std::vector<std::size_t> widths_;
  std::vector<row> rows_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
