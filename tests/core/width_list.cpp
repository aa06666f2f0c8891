// SPDX-License-Identifier: MIT
// Prints the columns of every code point but the surrogates, a line each: "hexadecimal columns". For width_check.py.
#include <cstdio>
#include <string>

#include <tidemark/core/detail/width.hpp>

int main() {
  for (unsigned c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
      constexpr unsigned leads[] = {0, 0xC0, 0xE0, 0xF0};
      text += static_cast<char>(leads[more] | (c >> (6 * more)));
      for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
        text += static_cast<char>(0x80U | ((c >> shift) & 0x3FU));
    }
    std::printf("%x %zu\n", c, tidemark::detail::display_width(text));
  }
  return 0;
}
