// SPDX-License-Identifier: MIT
// The objects that nobody outside holds, and the strongly connected components among them, without recursion.
// Source: R. Tarjan, Depth-first search and linear graph algorithms, SIAM J. Comput. 1 (1972), with the calls on a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/object/detail/object_graph.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// For each object whether something outside holds it, directly or through others.
[[nodiscard]] inline std::vector<bool> held_from_outside(const object_graph& graph) {
  std::vector<bool> is_held(graph.size());
  std::vector<object_graph::index> to_do;
  for (object_graph::index i = 0; i < graph.size(); ++i) {
    if (graph.outside(i) <= 0) continue;
    is_held[i] = true;
    to_do.push_back(i);
  }
  while (!to_do.empty()) {
    const object_graph::index i = to_do.back();
    to_do.pop_back();
    for (const object_graph::edge& e : graph.edges(i)) {
      if (is_held[e.to]) continue;
      is_held[e.to] = true;
      to_do.push_back(e.to);
    }
  }
  return is_held;
}

/// The strongly connected components of the objects that nobody outside holds.
class garbage_components {
 public:
  using index = object_graph::index;
  static constexpr index none = object_graph::none;

  explicit garbage_components(const object_graph& graph)
      : graph_(graph),
        is_held_(held_from_outside(graph)),
        component_(graph.size(), none),
        order_(graph.size(), none),
        lowest_(graph.size(), none) {
    for (index i = 0; i < graph.size(); ++i) {
      if (!is_held_[i] && order_[i] == none) search(i);
    }
    first_.push_back(members_.size());
  }

  [[nodiscard]] index count() const noexcept { return static_cast<index>(first_.size() - 1); }
  [[nodiscard]] const index* begin(index component) const noexcept { return members_.data() + first_[component]; }
  [[nodiscard]] const index* end(index component) const noexcept { return members_.data() + first_[component + 1]; }
  [[nodiscard]] std::size_t size(index component) const noexcept { return first_[component + 1] - first_[component]; }
  /// `none` for what is held from outside.
  [[nodiscard]] index of(index object) const noexcept { return component_[object]; }

  /// Whether its objects keep each other, or the one itself, alive.
  [[nodiscard]] bool is_cycle(index component) const noexcept {
    if (size(component) > 1) return true;
    const index only = *begin(component);
    for (const object_graph::edge& e : graph_.edges(only)) {
      if (e.to == only) return true;
    }
    return false;
  }

 private:
  struct call {
    index object;
    std::size_t next_edge;
  };

  void enter(index object) {
    order_[object] = lowest_[object] = next_order_++;
    open_.push_back(object);
    calls_.push_back({object, 0});
  }

  void search(index start) {
    enter(start);
    while (!calls_.empty()) {
      call& now = calls_.back();
      const index object = now.object;
      const object_graph::span edges = graph_.edges(object);
      if (now.next_edge < edges.size()) {
        const index to = edges.begin()[now.next_edge++].to;
        if (is_held_[to]) continue;
        if (order_[to] == none) {
          enter(to);
        } else if (component_[to] == none && order_[to] < lowest_[object]) {
          lowest_[object] = order_[to];
        }
        continue;
      }
      calls_.pop_back();
      if (!calls_.empty() && lowest_[object] < lowest_[calls_.back().object]) {
        lowest_[calls_.back().object] = lowest_[object];
      }
      if (lowest_[object] == order_[object]) close(object);
    }
  }

  void close(index top) {
    const auto component = static_cast<index>(first_.size());
    first_.push_back(members_.size());
    for (index object = none; object != top;) {
      object = open_.back();
      open_.pop_back();
      component_[object] = component;
      members_.push_back(object);
    }
  }

  const object_graph& graph_;
  std::vector<bool> is_held_;
  std::vector<index> component_;
  std::vector<index> order_;   // in which the search came to the objects
  std::vector<index> lowest_;  // order that an object leads back to
  std::vector<index> open_;
  std::vector<call> calls_;
  index next_order_ = 0;
  std::vector<std::size_t> first_;
  std::vector<index> members_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
