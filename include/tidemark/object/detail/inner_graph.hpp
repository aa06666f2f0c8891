// SPDX-License-Identifier: MIT
// One cycle by itself: its objects, oldest first, and the edges among them; and which members, made weak, would break it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tidemark/core/detail/order.hpp>
#include <tidemark/object/detail/components.hpp>
#include <tidemark/object/detail/object_graph.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Objects are known by their place in it.
class inner_graph {
 public:
  using index = object_graph::index;

  struct edge {
    index from, to;
    std::uint64_t group;
  };

  /// `place` has room for every object of the graph, whatever is in it.
  inner_graph(const object_graph& graph, const garbage_components& components, index component,
              std::vector<index>& place)
      : objects_(components.begin(component), components.end(component)) {
    for (index i = 0; i < size(); ++i) {
      place[objects_[i]] = i;
      ids_.push_back(graph.record(objects_[i]).id);
      if (ids_[i] < ids_[oldest_]) oldest_ = i;
    }
    for (index i = 0; i < size(); ++i) {
      first_.push_back(edges_.size());
      for (const object_graph::edge& e : graph.edges(objects_[i])) {
        if (components.of(e.to) == component) edges_.push_back({i, place[e.to], e.group});
      }
    }
    first_.push_back(edges_.size());
  }

  [[nodiscard]] index size() const noexcept { return static_cast<index>(objects_.size()); }
  /// Its number in the whole graph.
  [[nodiscard]] index object(index i) const noexcept { return objects_[i]; }

  /// The oldest ones, oldest first.
  [[nodiscard]] std::vector<index> oldest(std::size_t count) const {
    std::vector<index> all(size());
    for (index i = 0; i < size(); ++i) all[i] = i;
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(lesser<std::size_t>(count, size()));
    std::partial_sort(all.begin(), end, all.end(), [this](index a, index b) { return ids_[a] < ids_[b]; });
    all.erase(end, all.end());
    return all;
  }

  /// The shortest way from the oldest object back to it.
  [[nodiscard]] std::vector<edge> shortest_walk() const {
    std::vector<std::size_t> by(size(), edges_.size());  // the edge by which an object was first reached
    std::vector<index> to_do = {oldest_};
    for (std::size_t next = 0;; ++next) {
      const index i = to_do[next];
      for (std::size_t e = first_[i]; e < first_[i + 1]; ++e) {
        if (edges_[e].to == oldest_) return way_to(e, by);
        if (by[edges_[e].to] != edges_.size()) continue;
        by[edges_[e].to] = e;
        to_do.push_back(edges_[e].to);
      }
    }
  }

  /// Members whose edges close every cycle: one where one is enough, and of several such the one whose edges most often point
  /// from a younger object to an older one. An edge of each. Empty where it would take too many.
  [[nodiscard]] std::vector<edge> breaking() const {
    constexpr std::size_t most_members = 64;
    std::vector<edge> chosen;
    for (std::vector<edge> way = shortest_walk(); !way.empty();) {
      if (chosen.size() == most_members) return {};
      const std::vector<edge> candidates = members_on(way);
      std::vector<edge> rest;
      for (const edge& c : candidates) {
        chosen.push_back(c);
        std::vector<edge> other_way = some_cycle_without(chosen);
        if (other_way.empty()) {
          rest.clear();
          break;
        }
        if (rest.empty()) rest = std::move(other_way);  // the first is the best, where none is enough
        chosen.pop_back();
      }
      if (!rest.empty()) chosen.push_back(candidates.front());
      way = std::move(rest);
    }
    for (std::size_t i = 0; chosen.size() > 1 && i < chosen.size();) {
      std::vector<edge> others = chosen;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (some_cycle_without(others).empty()) {
        chosen = std::move(others);
      } else {
        ++i;
      }
    }
    return chosen;
  }

 private:
  [[nodiscard]] std::vector<edge> way_to(std::size_t last, const std::vector<std::size_t>& by) const {
    std::vector<edge> way;
    for (std::size_t e = last;; e = by[edges_[e].from]) {
      way.push_back(edges_[e]);
      if (edges_[e].from == oldest_) break;
    }
    std::reverse(way.begin(), way.end());
    return way;
  }

  [[nodiscard]] static bool is_among(std::uint64_t group, const std::vector<edge>& members) noexcept {
    for (const edge& m : members) {
      if (m.group == group) return true;
    }
    return false;
  }

  /// Empty: without these members there is none.
  [[nodiscard]] std::vector<edge> some_cycle_without(const std::vector<edge>& members) const {
    // Objects that nothing points to are on no cycle; taken away one after the other they leave what is on one, or behind one.
    std::vector<index> in_degree(size());
    for (const edge& e : edges_) {
      if (!is_among(e.group, members)) ++in_degree[e.to];
    }
    std::vector<index> to_do;
    for (index i = 0; i < size(); ++i) {
      if (in_degree[i] == 0) to_do.push_back(i);
    }
    std::size_t gone = 0;
    for (; gone < to_do.size(); ++gone) {
      for (std::size_t e = first_[to_do[gone]]; e < first_[to_do[gone] + 1]; ++e) {
        if (!is_among(edges_[e].group, members) && --in_degree[edges_[e].to] == 0) to_do.push_back(edges_[e].to);
      }
    }
    if (gone == size()) return {};

    // Each that is left has an edge to it from another that is left: backwards from any of them one comes to a cycle.
    std::vector<std::size_t> by(size(), edges_.size());
    index at = 0;
    for (std::size_t e = 0; e < edges_.size(); ++e) {
      if (in_degree[edges_[e].from] == 0 || is_among(edges_[e].group, members)) continue;
      by[edges_[e].to] = e;
      at = edges_[e].to;
    }
    for (index steps = 0; steps < size(); ++steps) at = edges_[by[at]].from;  // by now it is on the cycle
    std::vector<edge> way;
    const index start = at;
    do {
      way.push_back(edges_[by[at]]);
      at = edges_[by[at]].from;
    } while (at != start);
    return way;
  }

  struct candidate {
    edge member;
    std::size_t count = 0;
    std::size_t to_older = 0;
  };

  /// The members on a cycle, those that point to older objects most often first.
  [[nodiscard]] std::vector<edge> members_on(const std::vector<edge>& way) const {
    constexpr std::size_t most_candidates = 32;
    std::vector<candidate> candidates;
    for (const edge& e : way) {
      const bool is_new = std::none_of(candidates.begin(), candidates.end(),
                                       [&](const candidate& c) { return c.member.group == e.group; });
      if (is_new && candidates.size() < most_candidates) candidates.push_back({e});
    }
    for (const edge& e : edges_) {
      for (candidate& c : candidates) {
        if (c.member.group != e.group) continue;
        ++c.count;
        if (ids_[e.to] < ids_[e.from]) ++c.to_older;
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const candidate& a, const candidate& b) {
      return a.to_older * b.count > b.to_older * a.count;
    });
    std::vector<edge> members;
    for (const candidate& c : candidates) members.push_back(c.member);
    return members;
  }

  std::vector<index> objects_;
  std::vector<std::uint64_t> ids_;
  index oldest_ = 0;
  std::vector<std::size_t> first_;
  std::vector<edge> edges_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
