// SPDX-License-Identifier: MIT
// Finds objects that hold each other and that nobody else holds: std::shared_ptr never destroys them. A type says once what it
// holds, objects are made tracked, and the rest is one call:
//
//   struct node {
//     std::vector<std::shared_ptr<node>> children;
//     std::shared_ptr<node> parent;
//     TIDEMARK_EDGES(node, children, parent);
//   };
//   auto root = tidemark::make_tracked<node>();   // ... and its children
//   root.reset();
//   for (const tidemark::cycle& c : tidemark::find_cycles().value()) std::puts(c.text().c_str());
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/object/cycle.hpp>
#include <tidemark/object/detail/components.hpp>
#include <tidemark/object/detail/inner_graph.hpp>
#include <tidemark/object/detail/object_graph.hpp>
#include <tidemark/object/dot.hpp>
#include <tidemark/object/edges.hpp>
#include <tidemark/object/holders.hpp>
#include <tidemark/object/weak.hpp>

namespace tidemark {
inline namespace v0 {

struct cycle_options {
  int tries = 3;                      ///< readings that may disagree before the answer is "unstable"
  std::size_t max_cycles = SIZE_MAX;  ///< the ones that keep most
  std::size_t max_objects = 1'000;    ///< listed of one cycle
  std::size_t max_edges = 4'000;
};

namespace detail {

/// A cycle before it is told.
struct found_cycle {
  object_graph::index component;
  std::uint64_t oldest_id;
  std::int64_t bytes;
  std::int64_t retained_bytes;
};

/// What would be given back, were the cycle broken: its own objects, and those that lose their last holder with it.
class retained_sums {
 public:
  using index = object_graph::index;

  retained_sums(const object_graph& graph, const garbage_components& components)
      : graph_(graph), components_(components), holders_(graph.size()), lost_(graph.size()) {
    for (index i = 0; i < graph.size(); ++i) {
      for (const object_graph::edge& e : graph.edges(i)) ++holders_[e.to];
    }
  }

  [[nodiscard]] found_cycle of(index component) {
    found_cycle sum{component, UINT64_MAX, 0, 0};
    to_do_.assign(components_.begin(component), components_.end(component));
    for (const index i : to_do_) {
      sum.bytes += graph_.record(i).block_bytes;
      if (graph_.record(i).id < sum.oldest_id) sum.oldest_id = graph_.record(i).id;
    }
    touched_.clear();
    while (!to_do_.empty()) {
      const index i = to_do_.back();
      to_do_.pop_back();
      sum.retained_bytes += graph_.record(i).block_bytes;
      for (const object_graph::edge& e : graph_.edges(i)) {
        if (components_.of(e.to) == component) continue;
        touched_.push_back(e.to);
        if (++lost_[e.to] == holders_[e.to] && components_.of(e.to) != garbage_components::none) to_do_.push_back(e.to);
      }
    }
    for (const index i : touched_) lost_[i] = 0;
    return sum;
  }

 private:
  const object_graph& graph_;
  const garbage_components& components_;
  std::vector<index> holders_;
  std::vector<index> lost_;
  std::vector<index> to_do_;
  std::vector<index> touched_;
};

/// The name of one edge. False: it is gone.
[[nodiscard]] inline bool name_edge(const object_graph& graph, object_graph::index from, object_graph::index to,
                                    std::uint64_t group, object_edge& named) {
  std::vector<object_edge> all;
  if (!graph.name_edges(from, all, [to](object_graph::index i) { return i == to; })) return false;
  for (object_edge& e : all) {
    if (edge_walk::group_of(e.type, e.member) != group) continue;
    named = std::move(e);
    return true;
  }
  return false;
}

/// False where the edges are no longer those of the graph.
[[nodiscard]] inline bool tell(const object_graph& graph, const garbage_components& components,
                               const found_cycle& found, const cycle_options& options,
                               std::vector<object_graph::index>& place, cycle& told) {
  using index = object_graph::index;
  const inner_graph inner(graph, components, found.component, place);
  told.bytes = found.bytes;
  told.retained_bytes = found.retained_bytes;
  told.object_count = inner.size();
  std::vector<bool> is_listed(inner.size());
  const std::vector<index> listed = inner.oldest(options.max_objects);
  for (const index i : listed) is_listed[i] = true;
  for (const index i : listed) {
    told.objects.push_back(graph.info(inner.object(i)));
    if (told.edges.size() >= options.max_edges) continue;
    const bool is_same = graph.name_edges(inner.object(i), told.edges, [&](index to) {
      return components.of(to) == found.component && is_listed[place[to]];
    });
    if (!is_same) return false;
    if (told.edges.size() > options.max_edges) told.edges.resize(options.max_edges);
  }
  const std::vector<inner_graph::edge> walk = inner.shortest_walk();
  told.walk_length = walk.size();
  for (const inner_graph::edge& e : walk) {
    if (told.walk.size() == options.max_objects) break;
    told.walk.emplace_back();
    if (!name_edge(graph, inner.object(e.from), inner.object(e.to), e.group, told.walk.back())) return false;
  }
  for (const inner_graph::edge& e : inner.breaking()) {
    object_edge named;
    if (!name_edge(graph, inner.object(e.from), inner.object(e.to), e.group, named)) return false;
    told.weaken.push_back({std::move(named.type), std::move(named.member)});
  }
  return true;
}

}  // namespace detail

/// Every set of tracked objects that keep each other alive and that nothing else does, by trial deletion: the references to
/// an object that no tracked object's edges account for are from outside, and what outside holds, directly or through
/// others, is no garbage. The ones that keep most come first.
/// What a type does not tell of counts as outside: a cycle through it is missed, but nothing that is held is ever called
/// leaked. Absent, with "unstable", where references changed meanwhile.
/// Threads: any; one search at a time, and the caller sees to it that no thread changes edges of tracked objects meanwhile.
/// Visitors run outside every lock, inside `quiet`; every tracked object is kept alive until the search ends, and dies in
/// it where its last other holder has gone.
/// Allocates: 110 to 140 bytes for each object, and 40 to 100 for each edge (measured).
/// Throws: what a `for_each_edge` throws; `std::bad_alloc`.
/// Cost: each object is visited twice; see bench/object. Source: D. Bacon, V. Rajan, Concurrent cycle collection in reference
/// counted systems, ECOOP 2001, for trial deletion.
[[nodiscard]] inline reading<std::vector<cycle>> find_cycles(cycle_options options = {}) {
  using result = reading<std::vector<cycle>>;
  using index = detail::object_graph::index;
  const quiet hidden;
  detail::object_graph graph;
  if (const char* why = graph.take(options.tries)) return result::absent_because(why);
  const detail::garbage_components components(graph);
  detail::retained_sums sums(graph, components);
  std::vector<detail::found_cycle> found;
  for (index c = 0; c < components.count(); ++c) {
    if (components.is_cycle(c)) found.push_back(sums.of(c));
  }
  std::sort(found.begin(), found.end(), [](const detail::found_cycle& a, const detail::found_cycle& b) {
    if (a.retained_bytes != b.retained_bytes) return a.retained_bytes > b.retained_bytes;
    return a.oldest_id < b.oldest_id;
  });
  std::vector<cycle> told;
  std::vector<index> place(graph.size());
  for (const detail::found_cycle& f : found) {
    if (told.size() == options.max_cycles) break;
    told.emplace_back();
    if (!detail::tell(graph, components, f, options, place, told.back())) {
      return result::absent_because(detail::object_graph::unstable);
    }
  }
  return told;
}

}  // namespace v0
}  // namespace tidemark
