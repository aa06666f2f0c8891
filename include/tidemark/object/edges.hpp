// SPDX-License-Identifier: MIT
// How a type says what it holds, once, for find_cycles(), who_holds() and pictures:
//
//   class node {
//     std::shared_ptr<node> next;
//     std::vector<std::shared_ptr<node>> children;
//     std::weak_ptr<node> parent;   // keeps nothing alive: listed or not, it is the same
//     TIDEMARK_EDGES(node, next, children, parent);
//   };
//
// or, without touching the class, in its namespace:
//
//   template <class Visitor>
//   void for_each_edge(const node& n, Visitor&& visit) {
//     visit("next", n.next);
//     visit("children", n.children);
//   }
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <tidemark/object/detail/edges.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Where the first of "next, children" ends. A comma inside brackets separates nothing.
[[nodiscard]] constexpr std::size_t end_of_name(std::string_view names) noexcept {
  std::size_t depth = 0;
  std::size_t end = 0;
  for (; end < names.size() && (names[end] != ',' || depth > 0); ++end) {
    if (names[end] == '(' || names[end] == '[' || names[end] == '{') ++depth;
    if (names[end] == ')' || names[end] == ']' || names[end] == '}') --depth;
  }
  return end;
}

[[nodiscard]] constexpr std::size_t count_names(std::string_view names) noexcept {
  std::size_t count = 1;
  for (std::size_t end = end_of_name(names); end < names.size(); end = end_of_name(names)) {
    names.remove_prefix(end + 1);
    ++count;
  }
  return count;
}

/// The names of a list of members, taken apart when it compiles.
template <std::size_t Count>
struct member_names {
  constexpr explicit member_names(std::string_view list) noexcept {
    for (std::string_view& name : names) {
      const std::size_t end = end_of_name(list);
      name = list.substr(0, end);
      list.remove_prefix(end < list.size() ? end + 1 : end);
      while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
      while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    }
  }
  std::string_view names[Count];
};

template <std::size_t Count, class Visitor, class... Members>
void visit_each(Visitor& visit, const member_names<Count>& list, Members&&... members) {
  static_assert(Count == sizeof...(Members),
                "tidemark: a comma in TIDEMARK_EDGES stands in a template's list; use an alias");
  const std::string_view* name = list.names;
  (static_cast<void>(visit(*name++, std::forward<Members>(members))), ...);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark

/// Inside a class: the members of it that may hold other objects. A base's edges come along as
/// `tidemark::edges_of_base<base>(*this)`. A local class cannot have it: C++ allows no templates there.
#define TIDEMARK_EDGES(type, ...)                                                                                    \
  template <class TidemarkVisitor>                                                                                   \
  void tidemark_visit_edges(TidemarkVisitor& tidemark_visitor) const {                                               \
    static constexpr ::tidemark::detail::member_names<::tidemark::detail::count_names(#__VA_ARGS__)> tidemark_names( \
        #__VA_ARGS__);                                                                                               \
    ::tidemark::detail::visit_each(tidemark_visitor, tidemark_names, __VA_ARGS__);                                   \
  }                                                                                                                  \
  template <class TidemarkVisitor>                                                                                   \
  friend void for_each_edge(const type& tidemark_object, TidemarkVisitor&& tidemark_visitor) {                       \
    tidemark_object.tidemark_visit_edges(tidemark_visitor);                                                          \
  }                                                                                                                  \
  static_assert(true, "a semicolon follows")
