// SPDX-License-Identifier: MIT
// What a type is called, without RTTI: taken at compile time from what the compiler calls a function of it. g++ and
// clang name the same type alike, but for lambdas, types local to a function, inline namespaces and pointers to const
// pointers.
#pragma once

#include <cstddef>
#include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {

template <class T>
[[nodiscard]] constexpr const char* function_of_type() noexcept {
#if defined(_MSC_VER) && !defined(__clang__)
  return __FUNCSIG__;
#else
  return __PRETTY_FUNCTION__;
#endif
}

/// The name as this compiler writes it.
template <class T>
[[nodiscard]] constexpr std::string_view raw_type_name() noexcept {
  constexpr std::string_view known = "double";
  constexpr std::string_view pattern = function_of_type<double>();
  constexpr std::size_t before = pattern.find(known);
  static_assert(before != std::string_view::npos, "this compiler names no type in its functions");
  std::string_view name = function_of_type<T>();
  name.remove_prefix(before);
  name.remove_suffix(pattern.size() - before - known.size());
  return name;
}

struct type_name_part {
  std::string_view written;
  std::string_view said;
};

/// Where compilers and standard libraries differ. The first that fits wins.
inline constexpr type_name_part type_name_parts[] = {
    {"{anonymous}", "(anonymous namespace)"},
    {"<unnamed>", "(anonymous namespace)"},
    {"tidemark::v0::", "tidemark::"},
    {"std::__cxx11::basic_string<char>", "std::string"},
    {"std::__1::basic_string<char>", "std::string"},
    {"std::basic_string<char>", "std::string"},
    {"std::__cxx11::", "std::"},
    {"std::__1::", "std::"},
    {"long long unsigned int", "unsigned long long"},
    {"long unsigned int", "unsigned long"},
    {"short unsigned int", "unsigned short"},
    {"long long int", "long long"},
    {"long int", "long"},
    {"short int", "short"},
    {"> >", ">>"},
    {" *", "*"},
    {" &", "&"},
};

/// `write(char)` of each character of the name.
template <class Write>
constexpr void spell_type_name(std::string_view raw, Write write) noexcept {
  while (!raw.empty()) {
    std::string_view said = raw.substr(0, 1);
    std::size_t taken = 1;
    for (const type_name_part& part : type_name_parts) {
      if (raw.substr(0, part.written.size()) != part.written) continue;
      said = part.said;
      taken = part.written.size();
      if (part.written == "> >") {  // the last may begin another
        said = ">";
        taken = 2;
      }
      break;
    }
    raw.remove_prefix(taken);
    for (const char c : said) write(c);
  }
}

[[nodiscard]] constexpr std::size_t length_of_type_name(std::string_view raw) noexcept {
  std::size_t length = 0;
  spell_type_name(raw, [&length](char) { ++length; });
  return length;
}

template <std::size_t Length>
struct type_name_text {
  constexpr explicit type_name_text(std::string_view raw) noexcept {
    std::size_t at = 0;
    spell_type_name(raw, [&](char c) { characters[at++] = c; });
  }
  char characters[Length + 1] = {};
};

template <class T>
inline constexpr type_name_text<length_of_type_name(raw_type_name<T>())> type_name_of{raw_type_name<T>()};

/// "nn::layer", "std::vector<float>": null-terminated, and as long-lived as the shared object that asks.
template <class T>
[[nodiscard]] constexpr std::string_view type_name() noexcept {
  return {type_name_of<T>.characters, sizeof type_name_of<T>.characters - 1};
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
