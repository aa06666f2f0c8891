// SPDX-License-Identifier: MIT
// Who keeps an object alive, and what it keeps alive: the shortest chains of edges from outside to it, and the objects around
// it as a picture for write_dot().
//
//   std::fputs(tidemark::who_holds(batch).value().text().c_str(), stderr);
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/object/cycle.hpp>
#include <tidemark/object/detail/object_graph.hpp>
#include <tidemark/object/object_key.hpp>

namespace tidemark {
inline namespace v0 {

/// How much a picture shows.
struct picture_options {
  std::size_t depth = 3;  ///< steps from the object asked about
  std::size_t max_objects = 100;
  std::size_t max_edges = 1'000;
};

namespace detail {

inline constexpr const char* no_such_object =
    "no live object of that is known: it is null, dead, or was not made with make_tracked";

/// The edges of a graph the other way round.
class reversed_edges {
 public:
  using index = object_graph::index;

  explicit reversed_edges(const object_graph& graph) : first_(graph.size() + std::size_t{1}) {
    std::size_t count = 0;
    for (index i = 0; i < graph.size(); ++i) {
      for (const object_graph::edge& e : graph.edges(i)) {
        ++first_[e.to];
        ++count;
      }
    }
    from_.resize(count);
    std::size_t before = 0;
    for (std::size_t& f : first_) f = before += f;
    for (index i = graph.size(); i-- > 0;) {
      for (const object_graph::edge& e : graph.edges(i)) from_[--first_[e.to]] = i;
    }
  }

  [[nodiscard]] const index* begin(index to) const noexcept { return from_.data() + first_[to]; }
  [[nodiscard]] const index* end(index to) const noexcept { return from_.data() + first_[to + std::size_t{1}]; }

 private:
  std::vector<std::size_t> first_;
  std::vector<index> from_;
};

/// False where the edges are no longer those of the graph.
[[nodiscard]] inline bool tell_chain(const object_graph& graph, object_graph::index root,
                                     const std::vector<object_graph::index>& towards, holding_chain& chain) {
  constexpr std::size_t most = 32;  // told at either end
  std::vector<object_graph::index> way;
  for (object_graph::index i = root; towards[i] != i; i = towards[i]) way.push_back(i);
  chain.length = way.size();
  chain.text = "outside -> ";
  for (std::size_t k = 0; k < way.size(); ++k) {
    if (way.size() > 2 * most && k == most) {
      chain.text += "(" + std::to_string(way.size() - 2 * most) + " more) -> ";
      k = way.size() - most;
    }
    const object_graph::index to = towards[way[k]];
    const std::size_t before = chain.edges.size();
    if (!graph.name_edges(way[k], chain.edges, [to](object_graph::index i) { return i == to; })) return false;
    chain.edges.resize(before + 1);  // others to the same object say no more
    chain.text += std::string(graph.record(way[k]).type) + '.' + chain.edges.back().name + " -> ";
  }
  chain.text = printable(chain.text + "this");
  return true;
}

/// The objects around one, as `neighbours(index, f)` gives them. False as above.
template <class Neighbours>
[[nodiscard]] bool tell_picture(const object_graph& graph, object_graph::index focus, const picture_options& options,
                                Neighbours neighbours, object_picture& picture) {
  using index = object_graph::index;
  std::vector<bool> is_shown(graph.size());
  std::vector<index> shown = {focus};
  is_shown[focus] = true;
  std::size_t end_of_depth = 1;
  std::size_t depth = 0;
  for (std::size_t next = 0; next < shown.size(); ++next) {
    if (next == end_of_depth) {
      ++depth;
      end_of_depth = shown.size();
    }
    neighbours(shown[next], [&](index i) {
      if (is_shown[i]) return;
      if (depth >= options.depth || shown.size() >= options.max_objects) {
        picture.is_cut = true;
        return;
      }
      is_shown[i] = true;
      shown.push_back(i);
    });
  }
  picture.focus = graph.record(focus).id;
  for (const index i : shown) {
    picture.objects.push_back(graph.info(i));
    if (!graph.name_edges(i, picture.edges, [&](index to) { return is_shown[to]; })) return false;
    if (picture.edges.size() > options.max_edges) {
      picture.edges.resize(options.max_edges);
      picture.is_cut = true;
    }
  }
  return true;
}

template <class MakeNeighbours>
[[nodiscard]] reading<object_picture> picture_of(const object_key& object, const picture_options& options,
                                                 MakeNeighbours make_neighbours) {
  using result = reading<object_picture>;
  const quiet hidden;
  object_graph graph;
  if (const char* why = graph.take()) return result::absent_because(why);
  const object_graph::index focus = graph.find(object);
  if (focus == object_graph::none) return result::absent_because(no_such_object);
  object_picture picture;
  if (!tell_picture(graph, focus, options, make_neighbours(graph), picture)) {
    return result::absent_because(object_graph::unstable);
  }
  return picture;
}

}  // namespace detail

/// The shortest chains of edges from objects that are held from outside to this one, each from another object. What no
/// tracked object tells of is outside: a local variable, a global, a container that is part of no tracked object, and the
/// pointer that is passed here. Absent where there is no such object, and with "unstable" where references changed
/// meanwhile. Threads, Throws, Cost: as for `find_cycles()`.
[[nodiscard]] inline reading<holders> who_holds(const object_key& object, std::size_t max_chains = 10) {
  using result = reading<holders>;
  using index = detail::object_graph::index;
  const quiet hidden;
  detail::object_graph graph;
  if (const char* why = graph.take()) return result::absent_because(why);
  const index target = graph.find(object);
  if (target == detail::object_graph::none) return result::absent_because(detail::no_such_object);
  holders told;
  told.object = graph.info(target);
  const detail::reversed_edges back(graph);
  std::vector<index> towards(graph.size(), detail::object_graph::none);  // the next object on the shortest way
  std::vector<index> to_do = {target};
  towards[target] = target;
  for (std::size_t next = 0; next < to_do.size(); ++next) {
    const index i = to_do[next];
    if (graph.outside(i) > 0 && ++told.root_count <= max_chains) {
      told.chains.emplace_back();
      if (!detail::tell_chain(graph, i, towards, told.chains.back())) {
        return result::absent_because(detail::object_graph::unstable);
      }
    }
    for (const index* from = back.begin(i); from != back.end(i); ++from) {
      if (towards[*from] != detail::object_graph::none) continue;
      towards[*from] = i;
      to_do.push_back(*from);
    }
  }
  return told;
}

/// What the object holds, and what that holds. Otherwise as `who_holds()`.
[[nodiscard]] inline reading<object_picture> refs_of(const object_key& object, picture_options options = {}) {
  return detail::picture_of(object, options, [](const detail::object_graph& graph) {
    return [&graph](detail::object_graph::index i, auto f) {
      for (const detail::object_graph::edge& e : graph.edges(i)) f(e.to);
    };
  });
}

/// Which objects hold it, and which hold those. Otherwise as `who_holds()`.
[[nodiscard]] inline reading<object_picture> backrefs_of(const object_key& object, picture_options options = {}) {
  return detail::picture_of(object, options, [](const detail::object_graph& graph) {
    return [back = detail::reversed_edges(graph)](detail::object_graph::index i, auto f) {
      for (const auto* from = back.begin(i); from != back.end(i); ++from) f(*from);
    };
  });
}

}  // namespace v0
}  // namespace tidemark
