// SPDX-License-Identifier: MIT
// Updates a file of baselines with many hostile names, and writes next to it each name in hexadecimal digits with its
// figures, for baseline_check.py to read both. Then compares with a file that the check wrote, where there is one.
// Usage: baseline_names FILE NAMES | baseline_names --compare FILE NAMES
#include <tidemark/testing/baseline.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "dice.hpp"

namespace {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = tidemark::detail::utf8_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::set<std::string> hostile_names() {
  std::set<std::string> names = {" ",
                                 "plain",
                                 "a/b",
                                 "\"",
                                 "\\",
                                 "\\\"",
                                 "\"\\",
                                 "\\u0041",
                                 "\\ud800",
                                 "\r\n",
                                 "\t\b\f",
                                 "</script>",
                                 "\xE2\x80\xA8\xE2\x80\xA9",
                                 "\xEF\xBB\xBF",
                                 "\xEF\xBF\xBE",
                                 "\xEF\xBF\xBF",
                                 "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8A",
                                 "\xED\x9F\xBF\xEE\x80\x80",
                                 "\xF4\x8F\xBF\xBF",
                                 "{\"a\":1}",
                                 "null",
                                 "tolerance",
                                 "Z",
                                 "a",
                                 "aa",
                                 "\xC2\x80",
                                 "\xC2\x85",
                                 "\xF0\x90\x80\x80"};
  std::string all;
  for (int c = 0; c < 128; ++c) {
    names.emplace(1, static_cast<char>(c));
    all += static_cast<char>(c);
  }
  names.insert(all);
  names.emplace("a\0b\0", 4);
  for (const char c : {'x', '"', '\\', '\n', '\0'}) names.emplace(10'000, c);
  std::string euros;
  for (int i = 0; i < 10'000; ++i) euros += "\xE2\x82\xAC";
  names.insert(euros);
  dice d(1);
  constexpr std::string_view pieces[] = {
      "a", "\"",           "\\",       "\n", "\x7F", "\x1F", "/", "u", "\xC3\xA9", "\xE2\x80\xA8", "\xF0\x9F\x8C\x8A",
      " ", "\xEE\x80\x80", "\xC2\x9F", "0"};
  for (int i = 0; i < 150; ++i) {
    std::string name;
    for (std::uint64_t n = 1 + d.below(24); n > 0; --n) name += pieces[d.below(sizeof pieces / sizeof *pieces)];
    names.insert(name);
  }
  return names;
}

void put_hex(std::FILE* f, std::string_view bytes) {
  for (const char c : bytes) std::fprintf(f, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
}

}  // namespace

int main(int argc, char** argv) {
  const bool compares = argc == 4 && std::string_view(argv[1]) == "--compare";
  if (argc != 3 && !compares) return 2;
  ::setenv("TIDEMARK_UPDATE_BASELINES", compares ? "0" : "1", 1);
  std::FILE* names_file = std::fopen(argv[argc - 1], "w");
  if (names_file == nullptr) return 2;
  std::uint64_t n = 0;
  for (const std::string& name : hostile_names()) {
    if (!is_utf8(name)) return 3;
    ++n;
    tidemark::window_usage u;
    u.peak_bytes = static_cast<std::int64_t>(n * n);
    u.allocations = n % 50 == 0 ? std::uint64_t{1} << 63 : n;
    u.allocated_bytes = n * 1'000'003;
    const auto j =
        tidemark::detail::checks::judge_baseline(name, u, {argv[argc - 2], 0.0}, tidemark::location::current());
    if (!j.ok) {
      std::fprintf(stderr, "%s\n", j.advice.substr(0, 2'000).c_str());
      return 1;
    }
    put_hex(names_file, name);
    std::fprintf(names_file, " %llu %llu %llu\n", static_cast<unsigned long long>(u.peak_bytes),
                 static_cast<unsigned long long>(u.allocations), static_cast<unsigned long long>(u.allocated_bytes));
  }
  return std::fclose(names_file) == 0 ? 0 : 1;
}
