// SPDX-License-Identifier: MIT
// Writes one JSON line for each of many hostile names, and next to it the name itself in hexadecimal digits, for
// json_check.py to read both. Usage: json_names LINES NAMES
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

std::vector<std::string> hostile_names() {
  std::vector<std::string> names = {"",
                                    " ",
                                    "plain",
                                    "\"",
                                    "\\",
                                    "\\\"",
                                    "\"\\",
                                    "\\u0041",
                                    "\n",
                                    "\r\n",
                                    "\t\b\f",
                                    "\x7f",
                                    "</script>",
                                    "\xE2\x80\xA8\xE2\x80\xA9",
                                    "\xEF\xBB\xBF",
                                    "\xEF\xBF\xBE",
                                    "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8A",
                                    "%2F/%25",
                                    "{\"a\":1}",
                                    "null"};
  names.emplace_back("\0", 1);
  names.emplace_back("a\0b\0", 4);
  for (int c = 0; c < 256; ++c) names.emplace_back(1, static_cast<char>(c));
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  names.push_back(all);
  for (const char c : {'x', '"', '\\', '\n', '\xFF', '\0'}) names.emplace_back(10'000, c);
  std::string euros;
  for (int i = 0; i < 10'000; ++i) euros += "\xE2\x82\xAC";
  names.push_back(euros);
  // Each first byte of a sequence before each second one, with nothing, one or two continuation bytes after them.
  for (int first = 0xC0; first < 0x100; ++first) {
    std::string pairs;
    for (int second = 0; second < 256; ++second) {
      for (int more = 0; more < 3; ++more) {
        pairs += static_cast<char>(first);
        pairs += static_cast<char>(second);
        pairs.append(static_cast<std::size_t>(more), '\xBF');
        pairs += '.';
      }
    }
    names.push_back(pairs);
  }
  // Random sequences, mostly of bytes that could belong to one.
  std::uint64_t seed = 1;
  const auto below = [&seed](std::uint64_t end) {
    seed = seed * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    return static_cast<std::size_t>((seed >> 33) % end);
  };
  constexpr std::string_view likely =
      "a\"\\\n\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xED\xEE\xEF\xF0\xF1\xF4\xF5\xFF";
  for (int i = 0; i < 2'000; ++i) {
    std::string name;
    for (std::size_t n = below(24); n > 0; --n) {
      name += below(4) == 0 ? static_cast<char>(below(256)) : likely[below(likely.size())];
    }
    names.push_back(name);
  }
  return names;
}

void put_hex(std::FILE* f, std::string_view kind, std::string_view bytes) {
  std::string line(kind);
  line += ' ';
  for (const char c : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto u = static_cast<unsigned char>(c);
    line += digits[u >> 4];
    line += digits[u & 15U];
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), f);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::FILE* names_file = std::fopen(argv[2], "w");
  if (names_file == nullptr) return 2;
  tidemark::json_sink by_hand{std::string(argv[1])};
  const auto attached = tidemark::attach(std::make_shared<tidemark::json_sink>(std::string(argv[1])));
  for (const std::string& name : hostile_names()) {
    // In a record made by hand the name is everywhere, and whole.
    tidemark::scope_record r;
    r.name = r.path = name;
    const std::string file = name.substr(0, name.find('\0'));
    r.where = tidemark::location::current(file.c_str(), 1, "");
    r.meters.push_back({name, tidemark::reading<tidemark::window_usage>::absent(name), "bytes"});
    by_hand.on_scope(r);
    put_hex(names_file, "hand", name);
    // In a scope's it may be shortened, in its path escaped.
    { const tidemark::scope s(name); }
    put_hex(names_file, "scope", name);
  }
  return std::fclose(names_file) == 0 && tidemark::self().dropped_records == 0 ? 0 : 1;
}
