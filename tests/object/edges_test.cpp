// SPDX-License-Identifier: MIT
// What a walk over one object finds: each std::shared_ptr in it, once, under the name of the way to it.
#include <tidemark/object/edges.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/object/weak.hpp>

#include "test.hpp"

using tidemark::edge_visitor;
using tidemark::detail::content_of;
using tidemark::detail::edge_content;
using tidemark::detail::edge_found;
using tidemark::detail::edge_walk;
using tidemark::detail::edges_of;
using tidemark::detail::owner_of;
using tidemark::detail::type_name;

namespace {

struct told_edge {
  std::string name, type, member;
  const void* owner;

  friend bool operator==(const told_edge& a, const told_edge& b) {
    return a.name == b.name && a.type == b.type && a.member == b.member && a.owner == b.owner;
  }
};

template <class T>
std::vector<told_edge> edges_in(const T& object) {
  std::vector<told_edge> told;
  edge_walk walk(
      [](void* context, const edge_walk& at, const edge_found& found) {
        static_cast<std::vector<told_edge>*>(context)->push_back(
            {at.name(), std::string(at.type()), std::string(at.member()), found.owner});
      },
      &told, true);
  walk.run(&object, edges_of<T>(), type_name<T>());
  return told;
}

template <class T>
std::vector<std::string> names_in(const T& object) {
  std::vector<std::string> names;
  for (const told_edge& e : edges_in(object)) names.push_back(e.name);
  return names;
}

using names = std::vector<std::string>;
using pointer = std::shared_ptr<int>;

pointer some() { return std::make_shared<int>(1); }

}  // namespace

namespace shapes {

struct part {
  std::shared_ptr<int> inner = some();
  TIDEMARK_EDGES(part, inner);
};

class node {
 public:
  void fill() {
    next = std::make_shared<node>();
    children = {next, nullptr, next};
    parent = next;
  }
  std::shared_ptr<node> next;

 private:
  std::vector<std::shared_ptr<node>> children;
  std::weak_ptr<node> parent;
  int number = 3;
  std::string label = "x";
  node* raw = this;
  TIDEMARK_EDGES(node, next, children, parent, number, label, raw);
};

struct by_hand {
  pointer p = some();
};
template <class Visitor>
void for_each_edge(const by_hand& object, Visitor&& visit) {
  visit("the pointer", object.p);
}

struct by_value {
  pointer p = some();
};
template <class Visitor>
void for_each_edge(const by_value& object, Visitor visit) {
  visit("p", object.p);
}

struct not_a_template {
  pointer p = some();
};
inline void for_each_edge(const not_a_template& object, edge_visitor& visit) { visit("p", object.p); }

struct list_node {
  std::unique_ptr<list_node> next;
  pointer value;
  TIDEMARK_EDGES(list_node, next, value);
};

struct list {
  std::unique_ptr<list_node> head;
  TIDEMARK_EDGES(list, head);
};

struct tree {
  std::vector<tree> branches;
  pointer value;
  TIDEMARK_EDGES(tree, branches, value);
};

struct base {
  pointer of_base = some();
  TIDEMARK_EDGES(base, of_base);
};
struct derived : base {
  pointer own = some();
  TIDEMARK_EDGES(derived, tidemark::edges_of_base<base>(*this), own);
};
struct silent : base {
  pointer own = some();
};

template <class A, class B>
struct pair_of {
  std::shared_ptr<A> a;
  std::shared_ptr<B> b;
  TIDEMARK_EDGES(pair_of, a, b);
};

struct no_edges {
  int number = 0;
};

}  // namespace shapes

TEST_CASE("members listed by the macro are told by name, private ones too, and what holds nothing is passed over") {
  shapes::node n;
  n.fill();
  const void* owner = owner_of(n.next);
  const std::vector<told_edge> expected = {{"next", "shapes::node", "next", owner},
                                           {"children[0]", "shapes::node", "children", owner},
                                           {"children[2]", "shapes::node", "children", owner}};
  CHECK(edges_in(n) == expected);
}

TEST_CASE("a for_each_edge beside the class serves as well, whichever way it takes the visitor") {
  CHECK(names_in(shapes::by_hand()) == names{"the pointer"});
  CHECK(names_in(shapes::by_value()) == names{"p"});
  CHECK(names_in(shapes::not_a_template()) == names{"p"});
}

TEST_CASE("a type that tells no edges has no function for it") {
  const bool have_none = edges_of<shapes::no_edges>() == nullptr && edges_of<int>() == nullptr;
  CHECK(have_none);
  const bool is_same = edges_of<const shapes::node>() == edges_of<shapes::node>();
  CHECK(is_same);
}

namespace shapes {
struct ranges {
  pointer array[2][2] = {{some(), nullptr}, {some(), some()}};
  std::array<pointer, 2> fixed = {some(), some()};
  std::deque<pointer> queue = {some()};
  std::list<std::vector<pointer>> nested = {{}, {nullptr, some()}};
  std::set<pointer> set = {some()};
  std::map<std::string, pointer> by_text = {{"a", some()}, {"b", nullptr}};
  std::map<int, part> by_number = {{-7, part()}};
  std::unordered_map<pointer, int> by_pointer = {{some(), 1}};
  std::vector<bool> bits = {true, false};
  TIDEMARK_EDGES(ranges, array, fixed, queue, nested, set, by_text, by_number, by_pointer, bits);
};
struct wrapped {
  std::optional<pointer> maybe = some();
  std::optional<part> maybe_part = part();
  std::optional<pointer> nothing;
  std::unique_ptr<pointer> behind = std::make_unique<pointer>(some());
  std::unique_ptr<part> part_behind = std::make_unique<part>();
  std::unique_ptr<int> number = std::make_unique<int>(1);
  std::pair<int, pointer> pair = {1, some()};
  std::tuple<pointer, int, std::vector<pointer>> tuple = {some(), 2, {some()}};
  part whole;
  TIDEMARK_EDGES(wrapped, maybe, maybe_part, nothing, behind, part_behind, number, pair, tuple, whole);
};
}  // namespace shapes

TEST_CASE("every range is walked, and an element is named by its place or its key") {
  CHECK(names_in(shapes::ranges()) == names{"array[0][0]", "array[1][0]", "array[1][1]", "fixed[0]", "fixed[1]",
                                            "queue[0]", "nested[1][1]", "set[0]", "by_text[\"a\"]",
                                            "by_number[-7].inner", "by_pointer[0].first"});
}

TEST_CASE("what may be there, lies behind a unique_ptr, or in a pair or tuple is walked") {
  CHECK(names_in(shapes::wrapped()) == names{"maybe", "maybe_part.inner", "behind", "part_behind.inner", "pair.second",
                                             "tuple.0", "tuple.2[0]", "whole.inner"});
}

TEST_CASE("an edge of a part is a member of the part's type, and its name is the way from the object") {
  shapes::list l;
  l.head = std::make_unique<shapes::list_node>();
  l.head->next = std::make_unique<shapes::list_node>();
  l.head->next->value = some();
  const std::vector<told_edge> expected = {
      {"head.next.value", "shapes::list_node", "value", owner_of(l.head->next->value)}};
  CHECK(edges_in(l) == expected);
}

TEST_CASE("the same member of the same type is one group, wherever it is, and others are other groups") {
  shapes::tree t;
  t.value = some();
  t.branches.resize(2);
  t.branches[0].value = some();
  t.branches[1].branches.resize(1);
  t.branches[1].branches[0].value = some();
  shapes::ranges r;
  std::set<std::uint64_t> groups;
  const auto receive = [](void* context, const edge_walk& at, const edge_found&) {
    static_cast<std::set<std::uint64_t>*>(context)->insert(at.group());
    CHECK(at.group() == edge_walk::group_of(at.type(), at.member()));
  };
  edge_walk walk(receive, &groups);
  walk.run(&t, edges_of<shapes::tree>(), type_name<shapes::tree>());
  CHECK(groups.size() == 1);
  walk.run(&r, edges_of<shapes::ranges>(), type_name<shapes::ranges>());
  CHECK(groups.size() == 1 + 8);
  CHECK(names_in(t).size() == 3);
}

TEST_CASE("a base's edges come along, under the base's name, also where the derived type tells none") {
  const shapes::derived d;
  const std::vector<told_edge> expected = {{"of_base", "shapes::base", "of_base", owner_of(d.of_base)},
                                           {"own", "shapes::derived", "own", owner_of(d.own)}};
  CHECK(edges_in(d) == expected);
  CHECK(names_in(shapes::silent()) == names{"of_base"});
}

TEST_CASE("the owner is the same for aliases and bases, and there is none of an empty pointer") {
  const auto d = std::make_shared<shapes::derived>();
  const std::shared_ptr<shapes::base> as_base = d;
  const std::shared_ptr<pointer> member(d, &d->own);
  CHECK(owner_of(as_base) == owner_of(d));
  CHECK(owner_of(member) == owner_of(d));
  CHECK(owner_of(std::make_shared<shapes::derived>()) != owner_of(d));
  CHECK(owner_of(pointer()) == nullptr);
  const std::shared_ptr<pointer> owns_nothing(std::shared_ptr<void>(), &d->own);
  CHECK(owner_of(owns_nothing) == nullptr);
}

TEST_CASE("a class template lists its members as a class does") {
  shapes::pair_of<int, char> p;
  p.b = std::make_shared<char>('c');
  const std::vector<told_edge> told = edges_in(p);
  REQUIRE(told.size() == 1);
  CHECK(told[0].type == "shapes::pair_of<int, char>");
  CHECK(told[0].name == "b");
}

namespace shapes {
struct accessors {
  [[nodiscard]] pointer made() const { return p; }
  [[nodiscard]] std::vector<pointer> list() const { return {p, p}; }
  pointer p = some();
  TIDEMARK_EDGES(accessors, made(), list());
};
struct brackets {
  std::array<pointer, 2> a = {some(), some()};
  [[nodiscard]] std::size_t at(std::size_t i, std::size_t j) const { return i + j; }
  TIDEMARK_EDGES(brackets, a[at(0, 1)], a[0]);
};
}  // namespace shapes

TEST_CASE("what a function returns may be listed where it is pointers, and a comma in brackets separates nothing") {
  CHECK(names_in(shapes::accessors()) == names{"made()", "list()[0]", "list()[1]"});
  CHECK(names_in(shapes::brackets()) == names{"a[at(0, 1)]", "a[0]"});
}

namespace shapes {
struct opaque {
  int number;
};
struct of_itself {
  [[nodiscard]] const of_itself* begin() const { return this; }
  [[nodiscard]] const of_itself* end() const { return this; }
};
}  // namespace shapes

TEST_CASE("what a member holds is known when it compiles") {
  CHECK(content_of<int>() == edge_content::nothing);
  CHECK(content_of<const char*>() == edge_content::nothing);
  CHECK(content_of<std::string>() == edge_content::nothing);
  CHECK(content_of<std::map<std::string, std::vector<double>>>() == edge_content::nothing);
  CHECK(content_of<std::weak_ptr<int>>() == edge_content::nothing);
  CHECK(content_of<tidemark::tracked_weak<int>>() == edge_content::nothing);
  CHECK(content_of<std::vector<pointer>>() == edge_content::pointers);
  CHECK(content_of<std::shared_ptr<int[]>>() == edge_content::pointers);
  CHECK(content_of<std::vector<shapes::part>>() == edge_content::objects);
  CHECK(content_of<std::pair<int, std::unique_ptr<shapes::node>>>() == edge_content::objects);
  // These do not compile as members.
  CHECK(content_of<shapes::opaque>() == edge_content::unknown);
  CHECK(content_of<std::vector<shapes::opaque>>() == edge_content::unknown);
  CHECK(content_of<std::unique_ptr<pointer[]>>() == edge_content::unknown);
  CHECK(content_of<shapes::of_itself>() == edge_content::unknown);
}

TEST_CASE("a chain of 1,000,000 parts is walked without recursion, and its names stay short") {
  shapes::list l;
  std::unique_ptr<shapes::list_node>* end = &l.head;
  for (int i = 0; i < 1'000'000; ++i) {
    *end = std::make_unique<shapes::list_node>();
    if (i == 999'999) (*end)->value = some();
    end = &(*end)->next;
  }
  const std::vector<told_edge> told = edges_in(l);
  REQUIRE(told.size() == 1);
  CHECK(told[0].member == "value");
  CHECK(told[0].name.size() < 300);
  CHECK(told[0].name.find("head.next.next") == 0);
  CHECK(told[0].name.find("...") != std::string::npos);
  while (l.head != nullptr) l.head = std::move(l.head->next);
}
