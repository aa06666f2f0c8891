// SPDX-License-Identifier: MIT
// What a search over tracked objects tells: plain data that outlives the objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/location.hpp>

namespace tidemark {
inline namespace v0 {

/// One tracked object.
struct object_info {
  std::uint64_t id = 0;  ///< never reused
  std::string type;
  std::int64_t bytes = 0;  ///< of its block, reference counts included; not of what it allocated itself
  std::string path;        ///< the scope path open at its creation, "train step/forward"; empty: none
  location where;          ///< of its creation, with TIDEMARK_MAKE_TRACKED; line 0: unknown
  const void* address = nullptr;
  std::int64_t outside_references = 0;  ///< shared_ptr to it that no tracked object tells of
};

/// One std::shared_ptr in one tracked object that holds another.
struct object_edge {
  std::uint64_t from = 0, to = 0;  ///< ids
  std::string name;                ///< the way from the object to the shared_ptr: "children[3]", "head.next"
  std::string type, member;        ///< the type that lists the member, and the member: "list_node", "next"
};

/// A member of a type, for all its objects.
struct edge_member {
  std::string type, member;

  /// "child.parent"
  [[nodiscard]] std::string text() const { return type + '.' + member; }
};

/// Objects that hold each other and that nobody else holds: they are never destroyed. Between any two of them there is a way
/// in both directions.
struct cycle {
  std::vector<object_info> objects;  ///< oldest first; at most `cycle_options::max_objects`
  std::size_t object_count = 0;      ///< of all
  std::vector<object_edge> walk;     ///< from the oldest back to it on the shortest way; at most `max_objects`
  std::size_t walk_length = 0;       ///< of the whole
  std::vector<object_edge> edges;    ///< among `objects`; at most `max_edges`
  std::int64_t bytes = 0;            ///< of all objects' blocks
  std::int64_t retained_bytes = 0;   ///< given back when this cycle alone is broken: with what only it keeps alive
  /// Made std::weak_ptr, these members close no cycle here any more. One where one is enough: that which points from younger
  /// objects to older ones, as from a child to its parent.
  std::vector<edge_member> weaken;

  /// A paragraph for a person.
  [[nodiscard]] std::string text() const;
};

/// Objects and edges to draw.
struct object_picture {
  std::uint64_t focus = 0;  ///< the object that was asked about
  std::vector<object_info> objects;
  std::vector<object_edge> edges;
  bool is_cut = false;  ///< there are more, beyond the depth or the number asked for
};

/// One way along which an object is held: outside, then objects that each hold the next.
struct holding_chain {
  std::vector<object_edge> edges;  ///< from an object that is held from outside; empty: the object itself is
  std::size_t length = 0;          ///< of the whole; of a longer one `edges` has the first 32 and the last 32

  /// "outside -> cache.entries[3] -> node.next -> this"
  std::string text;
};

/// Who keeps an object alive.
struct holders {
  object_info object;
  std::vector<holding_chain> chains;  ///< the shortest, each from another object; none: only cycles hold it
  std::size_t root_count = 0;         ///< objects held from outside along whose edges it is reached, itself included

  /// A line for each chain.
  [[nodiscard]] std::string text() const;
};

namespace detail {

/// "node #3".
[[nodiscard]] inline std::string label_of(const object_info& o) { return o.type + " #" + std::to_string(o.id); }

/// "made in train step/forward at model.cpp:12"; empty where neither is known.
[[nodiscard]] inline std::string origin_of(const object_info& o) {
  std::string text;
  if (!o.path.empty()) text += "in " + o.path;
  if (o.where.line() != 0) {
    if (!text.empty()) text += ' ';
    text += "at " + std::string(o.where.file_name()) + ':' + std::to_string(o.where.line());
  }
  return text.empty() ? text : "made " + text;
}

[[nodiscard]] inline const object_info* find_object(const std::vector<object_info>& objects,
                                                    std::uint64_t id) noexcept {
  for (const object_info& o : objects) {
    if (o.id == id) return &o;
  }
  return nullptr;
}

}  // namespace detail

inline std::string cycle::text() const {
  constexpr std::size_t most_steps = 8;
  const bool is_alone = object_count == 1;
  std::string text = is_alone ? "1 object holds itself and nobody else does: "
                              : std::to_string(object_count) + " objects hold each other and nobody else does: ";
  text += format_bytes(bytes);
  if (retained_bytes != bytes) text += ", " + format_bytes(retained_bytes) + " with what only they keep alive";
  text += ". ";
  for (std::size_t i = 0; i < walk.size() && i < most_steps; ++i) {
    const object_edge& e = walk[i];
    const object_info* from = detail::find_object(objects, e.from);
    text += from != nullptr ? from->type : e.type;
    text += '.' + e.name + " -> ";
  }
  const std::size_t shown = walk.size() < most_steps ? walk.size() : most_steps;
  if (walk_length > shown) text += "(" + std::to_string(walk_length - shown) + " more) -> ";
  if (!objects.empty()) {
    const object_info& oldest = objects.front();
    text += detail::label_of(oldest);
    const std::string origin = detail::origin_of(oldest);
    if (!origin.empty()) text += ", which was " + origin;
    text += '.';
  }
  if (!weaken.empty()) {
    text += " Make ";
    for (std::size_t i = 0; i < weaken.size(); ++i) {
      if (i > 0) text += i + 1 == weaken.size() ? " and " : ", ";
      text += weaken[i].text();
    }
    text += weaken.size() == 1 ? " a std::weak_ptr." : " std::weak_ptr.";
  }
  return detail::printable(text);
}

inline std::string holders::text() const {
  std::string text = detail::label_of(object) + ", ";
  text += format_bytes(object.bytes);
  const std::string origin = detail::origin_of(object);
  if (!origin.empty()) text += ", " + origin;
  text = detail::printable(text);
  if (chains.empty()) return text + "\n  held only by a cycle\n";
  text += '\n';
  for (const holding_chain& c : chains) text += "  " + c.text + '\n';
  if (root_count > chains.size())
    text += "  and from " + std::to_string(root_count - chains.size()) + " other objects\n";
  return text;
}

}  // namespace v0
}  // namespace tidemark
