// SPDX-License-Identifier: MIT
// What holds what. A type says once which of its members hold other objects; a walk over one object then tells every
// std::shared_ptr in it, also those in what lies in it by value, in containers, or behind std::unique_ptr. A walk goes
// through such parts by a list of what is still to do: a std::unique_ptr chain may be a million long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/hash_index.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/object/detail/type_name.hpp>

namespace tidemark {
inline namespace v0 {

class edge_visitor;

/// Takes a base's edges along: `TIDEMARK_EDGES(derived, tidemark::edges_of_base<base>(*this), own)`.
template <class Base>
class edges_of_base {
 public:
  explicit edges_of_base(const Base& object) noexcept : object_(object) {}

 private:
  friend class edge_visitor;
  const Base& object_;
};

namespace detail {

/// Tells a visitor the edges of the object, whose type it knows.
using edge_function = void(const void* object, edge_visitor& visitor);

/// Whose object a shared_ptr keeps alive: the same for aliases and for pointers to bases; null for none. The second word of
/// a std::shared_ptr is its control block in libstdc++, libc++ and Microsoft's library.
template <class T>
[[nodiscard]] const void* owner_of(const std::shared_ptr<T>& pointer) noexcept {
  static_assert(sizeof pointer == 2 * sizeof(void*), "a std::shared_ptr is two pointers");
  const void* owner = nullptr;
  std::memcpy(&owner, reinterpret_cast<const char*>(&pointer) + sizeof(void*), sizeof owner);
  return owner;
}

// ---- what a member can be ----

template <class T>
inline constexpr bool is_shared_pointer = false;
template <class T>
inline constexpr bool is_shared_pointer<std::shared_ptr<T>> = true;

/// A handle that keeps nothing alive. Specialised for those of the library beside their own definition.
template <class T>
inline constexpr bool is_weak_handle = false;
template <class T>
inline constexpr bool is_weak_handle<std::weak_ptr<T>> = true;

template <class T>
inline constexpr bool is_unique_pointer = false;
template <class T, class Deleter>
inline constexpr bool is_unique_pointer<std::unique_ptr<T, Deleter>> = true;

/// With the [] of an array.
template <class T>
struct behind_unique;
template <class T, class Deleter>
struct behind_unique<std::unique_ptr<T, Deleter>> {
  using type = T;
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
inline constexpr bool is_base_part = false;
template <class Base>
inline constexpr bool is_base_part<edges_of_base<Base>> = true;

template <class T, class = void>
inline constexpr bool is_complete = false;
template <class T>
inline constexpr bool is_complete<T, std::void_t<decltype(sizeof(T))>> = true;

template <class T, class = void>
inline constexpr bool tells_edges = false;
template <class T>
inline constexpr bool
    tells_edges<T, std::void_t<decltype(for_each_edge(std::declval<const T&>(), std::declval<edge_visitor&>()))>> =
        true;

template <class T, class = void>
inline constexpr bool tells_edges_unless_const = false;
template <class T>
inline constexpr bool tells_edges_unless_const<
    T, std::void_t<decltype(for_each_edge(std::declval<T&>(), std::declval<edge_visitor&>()))>> = true;

template <class T, class = void>
inline constexpr bool is_range = false;
template <class T>
inline constexpr bool is_range<
    T, std::void_t<decltype(std::begin(std::declval<const T&>())), decltype(std::end(std::declval<const T&>()))>> =
    true;
template <class T>
using reference_in = decltype(*std::begin(std::declval<const T&>()));
/// What a range holds; where it gives proxies, as std::vector<bool> does, what it says that it holds.
template <class T, class = void>
struct range_element {
  using type = std::remove_cv_t<std::remove_reference_t<reference_in<T>>>;
};
template <class T>
struct range_element<
    T, std::enable_if_t<!std::is_lvalue_reference_v<reference_in<T>> && !std::is_void_v<typename T::value_type>>> {
  using type = typename T::value_type;
};
template <class T>
using element_of = typename range_element<T>::type;

template <class T, class = void>
inline constexpr bool is_tuple = false;
template <class T>
inline constexpr bool is_tuple<T, std::void_t<decltype(std::tuple_size<T>::value)>> = true;

template <class T>
inline constexpr bool is_pair = false;
template <class First, class Second>
inline constexpr bool is_pair<std::pair<First, Second>> = true;

template <class T, class = void>
inline constexpr bool is_map = false;
template <class T>
inline constexpr bool is_map<T, std::void_t<typename T::key_type, typename T::mapped_type>> = true;

/// What the walk meets in a member.
enum class edge_content {
  nothing,   // numbers, texts, weak handles, raw pointers
  pointers,  // shared_ptr, whatever the containers around it
  objects,   // something whose own edges must be walked
  unknown,
};

template <class T>
[[nodiscard]] constexpr edge_content content_of() noexcept;

template <class T, std::size_t... Index>
[[nodiscard]] constexpr edge_content content_of_tuple(std::index_sequence<Index...>) noexcept {
  edge_content most = edge_content::nothing;
  for (const edge_content c : {edge_content::nothing, content_of<std::tuple_element_t<Index, T>>()...}) {
    if (most < c) most = c;
  }
  return most;
}

template <class T>
[[nodiscard]] constexpr edge_content content_behind() noexcept {
  if constexpr (std::is_array_v<T>) {  // whose length a unique_ptr does not know
    return content_of<std::remove_extent_t<T>>() == edge_content::nothing ? edge_content::nothing
                                                                          : edge_content::unknown;
  } else if constexpr (is_complete<T>) {
    return content_of<T>();
  } else {
    return edge_content::unknown;
  }
}

template <class T>
[[nodiscard]] constexpr edge_content content_of() noexcept {
  using type = std::remove_cv_t<T>;
  if constexpr (is_shared_pointer<type>) {
    return edge_content::pointers;
  } else if constexpr (std::is_scalar_v<type> || is_weak_handle<type>) {
    return edge_content::nothing;
  } else if constexpr (is_base_part<type> || tells_edges<type>) {
    return edge_content::objects;
  } else if constexpr (is_unique_pointer<type>) {
    return content_behind<typename behind_unique<type>::type>();
  } else if constexpr (is_optional<type>) {
    return content_of<typename type::value_type>();
  } else if constexpr (is_range<type>) {
    // A range of itself, as std::filesystem::path, would never end.
    if constexpr (std::is_same_v<element_of<type>, type>) return edge_content::unknown;
    return content_of<element_of<type>>();
  } else if constexpr (is_tuple<type>) {
    return content_of_tuple<type>(std::make_index_sequence<std::tuple_size_v<type>>());
  } else if constexpr (std::is_empty_v<type>) {
    return edge_content::nothing;
  } else {
    return edge_content::unknown;
  }
}

// ---- names ----

/// One step from an object to what a shared_ptr of it holds: "children", then "[3]". Lives while the walk is inside it.
struct edge_step {
  const edge_step* outer;
  std::string_view text;
  std::size_t index = 0;
  const void* key = nullptr;
  void (*say_key)(std::string& into, const void* key) = nullptr;

  void append_to(std::string& into) const {
    if (outer != nullptr) outer->append_to(into);
    if (say_key != nullptr) {
      into += '[';
      say_key(into, key);
      into += ']';
    } else if (text.empty()) {
      into += '[';
      into += std::to_string(index);
      into += ']';
    } else {
      into += text;
    }
  }
};

/// Whether a map's element is named by its key; by its position otherwise.
template <class Key>
inline constexpr bool is_said = std::is_integral_v<Key> || std::is_convertible_v<const Key&, std::string_view>;

template <class Key>
void say_key_of(std::string& into, const void* key) {
  if constexpr (std::is_integral_v<Key>) {
    into += std::to_string(*static_cast<const Key*>(key));
  } else {
    constexpr std::size_t longest = 60;
    const std::string_view text = *static_cast<const Key*>(key);
    into += '"';
    into += text.substr(0, longest);
    if (text.size() > longest) into += "...";
    into += '"';
  }
}

template <class T>
inline constexpr bool is_named_pair = false;
template <class Key, class Value>
inline constexpr bool is_named_pair<std::pair<Key, Value>> = is_said<std::remove_cv_t<Key>>;

// ---- the walk ----

class edge_walk;

/// One edge, told while the walk is at it.
struct edge_found {
  const void* owner;  // owner_of() what is held
  const void* place;  // where the shared_ptr lies; null where it is a temporary
};

/// Walks one object at a time. Allocates where parts lie in parts. Threads: one at a time.
class edge_walk {
 public:
  using receiver = void(void* context, const edge_walk& at, const edge_found& found);

  /// With `names`, `name()` may be asked; it costs an allocation for each part that lies in another.
  edge_walk(receiver* receive, void* context, bool names = false) noexcept
      : receive_(receive), context_(context), has_names_(names) {}
  edge_walk(const edge_walk&) = delete;
  edge_walk& operator=(const edge_walk&) = delete;

  /// Every edge of an object. Throws: what the type's `for_each_edge` throws; `std::bad_alloc`.
  void run(const void* object, edge_function* edges, std::string_view type);

  [[nodiscard]] static std::uint64_t group_of(std::string_view type, std::string_view member) noexcept {
    return hash_text(member, hash_text(type, 0)) | 1;
  }

  // ---- for a receiver: the edge that the walk is at ----

  /// The type that lists the member.
  [[nodiscard]] std::string_view type() const noexcept { return type_; }
  /// The member as it is listed.
  [[nodiscard]] std::string_view member() const noexcept { return member_; }
  /// Both in one number, which is the same wherever they are the same.
  [[nodiscard]] std::uint64_t group() const noexcept {
    if (group_ == 0) {
      if (type_hash_of_ != type_.data()) {
        type_hash_of_ = type_.data();
        type_hash_ = hash_text(type_, 0);
      }
      group_ = hash_text(member_, type_hash_) | 1;
    }
    return group_;
  }
  /// "head.next", "children[3]", "table[\"key\"]": the way from the object to the shared_ptr.
  [[nodiscard]] std::string name() const {
    std::string text = prefix_;
    if (innermost_ != nullptr) innermost_->append_to(text);
    return text;
  }

 private:
  friend class tidemark::edge_visitor;

  /// What is still to be walked.
  struct part {
    const void* object;
    edge_function* edges;
    std::string_view type;
  };

  template <class Member>
  void visit(std::string_view name, const Member& member, bool is_lasting) {
    member_ = name;
    group_ = 0;
    is_lasting_ = is_lasting && !is_local(&member);
    reach(member, edge_step{nullptr, name});
    if (!is_inside_part_) walk_parts();
  }

  /// Whether it lies in a frame between run() and here: a copy that a visitor made, where the next one makes another.
  [[nodiscard]] TIDEMARK_NOINLINE bool is_local(const void* p) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    return at > os::stack_address() && at < outer_frame_;
  }

  template <class T>
  void reach(const T& t, const edge_step& step) {
    if constexpr (content_of<T>() == edge_content::nothing) {
    } else if constexpr (is_shared_pointer<T>) {
      innermost_ = &step;
      const edge_found found{owner_of(t), is_lasting_ ? &t : nullptr};
      if (found.owner != nullptr) receive_(context_, *this, found);
      innermost_ = nullptr;
    } else if constexpr (tells_edges<T>) {
      postpone(t, step);
    } else if constexpr (is_unique_pointer<T> || is_optional<T>) {
      if (t) reach(*t, step);
    } else if constexpr (is_range<T>) {
      reach_elements(t, step);
    } else {
      reach_tuple(t, step, std::make_index_sequence<std::tuple_size_v<T>>());
    }
  }

  template <class Range>
  void reach_elements(const Range& range, const edge_step& step) {
    static_assert(
        std::is_lvalue_reference_v<reference_in<Range>> || content_of<element_of<Range>>() != edge_content::objects,
        "tidemark: a range that makes its elements anew each time cannot hold parts with edges");
    std::size_t index = 0;
    for (auto&& element : range) {
      const bool was_lasting = is_lasting_;
      is_lasting_ = was_lasting && std::is_lvalue_reference_v<reference_in<Range>>;
      edge_step next{&step, {}, index++};
      if constexpr (is_map<Range> && is_named_pair<element_of<Range>>) {
        next.key = &element.first;
        next.say_key = &say_key_of<std::remove_const_t<decltype(element.first)>>;
        reach(element.second, next);
      } else {
        reach(element, next);
      }
      is_lasting_ = was_lasting;
    }
  }

  template <class Tuple, std::size_t... Index>
  void reach_tuple(const Tuple& tuple, const edge_step& step, std::index_sequence<Index...>) {
    using std::get;
    constexpr const char* places[] = {".0", ".1", ".2", ".3", ".4", ".5", ".6", ".7", ".8", ".9"};
    static_assert(sizeof...(Index) <= std::size(places),
                  "tidemark: a tuple of more than ten needs a for_each_edge of what it lies in");
    (reach(get<Index>(tuple), edge_step{&step, is_pair<Tuple> ? (Index == 0 ? ".first" : ".second") : places[Index]}),
     ...);
  }

  template <class T>
  void postpone(const T& t, const edge_step& step);
  void walk_parts();

  receiver* receive_;
  void* context_;
  std::string_view type_;
  std::string_view member_;
  mutable std::uint64_t group_ = 0;  // 0: not asked for yet
  mutable std::uint64_t type_hash_ = 0;
  mutable const char* type_hash_of_ = nullptr;  // names of types are where they are for good
  std::string prefix_;                          // of the part that the walk is in
  const edge_step* innermost_ = nullptr;
  bool has_names_;
  bool is_inside_part_ = false;
  bool is_lasting_ = true;  // what is visited lies where no other object's does
  std::uintptr_t outer_frame_ = 0;
  std::vector<part> parts_;
  std::vector<std::string> prefixes_;  // of `parts_`, with names
};

}  // namespace detail

/// What `for_each_edge(object, visitor)` calls once for each member: `visitor("children", object.children)`. Members are
/// std::shared_ptr, std::unique_ptr, std::optional, arrays, ranges, maps, pairs and tuples of them, and types with edges of
/// their own; weak handles, raw pointers, numbers and texts hold nothing and may be listed. Copies are the same visitor.
/// Threads: the one that was called with it, during that call.
class edge_visitor {
 public:
  explicit edge_visitor(detail::edge_walk& walk) noexcept : walk_(&walk) {}

  /// A member, as it lies in the object; listed twice it is one reference.
  template <class Member>
  void operator()(std::string_view name, Member&& member) const {
    using type = std::remove_cv_t<std::remove_reference_t<Member>>;
    constexpr detail::edge_content content = detail::content_of<type>();
    static_assert(
        content != detail::edge_content::unknown,
        "tidemark: this member has a type that tells no edges. Give that type TIDEMARK_EDGES or a for_each_edge, "
        "visit what it holds yourself, or leave it out where it holds no std::shared_ptr");
    if constexpr (detail::is_base_part<type>) {
      visit_base(member);
    } else {
      static_assert(std::is_lvalue_reference_v<Member> || content != detail::edge_content::objects,
                    "tidemark: visit the member itself, not a copy: its parts are walked later");
      walk_->visit(name, member, std::is_lvalue_reference_v<Member>);
    }
  }

 private:
  template <class Base>
  void visit_base(const edges_of_base<Base>& part) const {
    static_assert(detail::tells_edges<Base>, "tidemark: this base tells no edges");
    const std::string_view type = walk_->type_;
    walk_->type_ = detail::type_name<Base>();
    edge_visitor same = *this;
    for_each_edge(part.object_, same);
    walk_->type_ = type;
  }

  detail::edge_walk* walk_;
};

namespace detail {

template <class T>
void tell_edges(const void* object, edge_visitor& visitor) {
  for_each_edge(*static_cast<const T*>(object), visitor);
}

/// How a `T` tells its edges; null where it does not.
template <class T>
[[nodiscard]] constexpr edge_function* edges_of() noexcept {
  using type = std::remove_cv_t<T>;
  static_assert(tells_edges<type> || !tells_edges_unless_const<type>,
                "tidemark: for_each_edge takes its object by reference to const");
  if constexpr (tells_edges<type>) {
    return &tell_edges<type>;
  } else {
    return nullptr;
  }
}

inline void edge_walk::run(const void* object, edge_function* edges, std::string_view type) {
  type_ = type;
  prefix_.clear();
  is_inside_part_ = false;
  parts_.clear();
  prefixes_.clear();
  outer_frame_ = os::stack_address();
  edge_visitor visitor(*this);
  edges(object, visitor);
}

template <class T>
void edge_walk::postpone(const T& t, const edge_step& step) {
  parts_.push_back({&t, edges_of<T>(), type_name<T>()});
  if (!has_names_) return;
  constexpr std::size_t longest = 240;  // of a chain of a million parts the way to each would be a book
  constexpr std::string_view gap = "...";
  innermost_ = &step;
  std::string way = name();
  innermost_ = nullptr;
  if (way.size() > longest) way.replace(longest / 2, way.size() - longest + gap.size(), gap);
  way += '.';
  prefixes_.push_back(std::move(way));
}

inline void edge_walk::walk_parts() {
  if (parts_.empty()) return;
  const std::string_view type = type_;
  std::string prefix = std::move(prefix_);
  is_inside_part_ = true;
  while (!parts_.empty()) {
    const part next = parts_.back();
    parts_.pop_back();
    type_ = next.type;
    if (has_names_) {
      prefix_ = std::move(prefixes_.back());
      prefixes_.pop_back();
    }
    edge_visitor visitor(*this);
    next.edges(next.object, visitor);
  }
  is_inside_part_ = false;
  type_ = type;
  prefix_ = std::move(prefix);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
