// SPDX-License-Identifier: MIT
// The names of types, which are the same with g++ and clang++.
#include <tidemark/object/detail/type_name.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "test.hpp"

using tidemark::detail::type_name;

namespace {
struct hidden {
  struct inner {};
};
template <class T>
struct box {};
}  // namespace

namespace nn {
enum class color { red };
template <class T, int Count>
struct layer {};
template <color Color>
struct painted {};
template <bool Flag, std::uint64_t Number, char Letter>
struct values {};
}  // namespace nn

namespace tidemark {
inline namespace v0 {
struct of_the_library {};
}  // namespace v0
}  // namespace tidemark

TEST_CASE("a name is a constant") {
  static_assert(type_name<int>() == "int");
  static_assert(type_name<nn::layer<float, 3>>() == "nn::layer<float, 3>");
}

TEST_CASE("the type by which the place of a name is found has its name too") {
  CHECK(type_name<double>() == "double");
  CHECK(type_name<long double>() == "long double");
  CHECK(type_name<box<double>>() == "(anonymous namespace)::box<double>");
}

TEST_CASE("a name says the namespace, the class around it and the template's arguments") {
  CHECK(type_name<nn::layer<std::vector<std::vector<int>>, -3>>() == "nn::layer<std::vector<std::vector<int>>, -3>");
  CHECK(type_name<nn::painted<nn::color::red>>() == "nn::painted<nn::color::red>");
  CHECK(type_name<nn::values<true, 7, 'x'>>() == "nn::values<true, 7, 'x'>");
  CHECK(type_name<hidden::inner>() == "(anonymous namespace)::hidden::inner");
  CHECK(type_name<box<box<box<hidden>>>>() ==
        "(anonymous namespace)::box<(anonymous namespace)::box<(anonymous namespace)::box<(anonymous "
        "namespace)::hidden>>>");
}

TEST_CASE("inner namespaces of the libraries do not show") {
  CHECK(type_name<tidemark::of_the_library>() == "tidemark::of_the_library");
  CHECK(type_name<std::string>() == "std::string");
  CHECK(type_name<std::map<std::string, std::vector<std::unique_ptr<const char*>>>>() ==
        "std::map<std::string, std::vector<std::unique_ptr<const char*>>>");
  CHECK(type_name<std::array<float, 3>>() == "std::array<float, 3>");
}

TEST_CASE("integers, pointers and references are written one way") {
  CHECK(type_name<unsigned long long>() == "unsigned long long");
  CHECK(type_name<unsigned long>() == "unsigned long");
  CHECK(type_name<long>() == "long");
  CHECK(type_name<unsigned short>() == "unsigned short");
  CHECK(type_name<const short&>() == "const short&");
  CHECK(type_name<const char*>() == "const char*");
  CHECK(type_name<void (*)(int, long long)>() == "void (*)(int, long long)");
  CHECK(type_name<std::pair<const std::string, long>>() == "std::pair<const std::string, long>");
}

TEST_CASE("a name ends in a null character, and is one object for each type") {
  const std::string_view name = type_name<hidden>();
  CHECK(name.data()[name.size()] == '\0');
  CHECK(type_name<hidden>().data() == name.data());
  CHECK(type_name<hidden>() != type_name<hidden::inner>());
}
