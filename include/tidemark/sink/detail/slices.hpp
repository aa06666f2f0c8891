// SPDX-License-Identifier: MIT
// Which scopes nest: a trace's slices of a thread must, and scopes may end in any order. Scopes are told as they end,
// inner ones first, so that a scope nests unless one told before it reaches over its beginning.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include <tidemark/core/detail/order.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// The slices of one thread. Threads: one at a time.
class thread_slices {
 public:
  /// No scope that began before `known_from_ns` is a slice.
  explicit thread_slices(std::int64_t known_from_ns) { stretches_.push_back({known_from_ns, known_from_ns, -1}); }

  /// Whether this scope is a slice: it then lies in, around or beside every slice before it. `depth` is 0 or more.
  [[nodiscard]] bool add(std::int64_t start_ns, std::int64_t end_ns, int depth) {
    if (end_ns < start_ns || end_ns < last_end_ns()) return false;  // not told as it ended
    std::size_t outside = stretches_.size();
    while (outside > 1 && stretches_[outside - 1].start_ns >= start_ns) --outside;
    if (stretches_[outside - 1].end_ns > start_ns) return false;
    stretches_.resize(outside);
    stretches_.push_back({start_ns, end_ns, depth});
    if (stretches_.size() >= many_) join_neighbours();
    return true;
  }

  [[nodiscard]] std::int64_t last_end_ns() const noexcept { return stretches_.back().end_ns; }
  [[nodiscard]] std::size_t kept() const noexcept { return stretches_.size(); }

 private:
  struct stretch {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
    int depth = 0;
  };

  // What began between two neighbours and is still open has the second in it, which is then deeper than the first,
  // unless scopes crossed there. Where it is no deeper the two are kept as one stretch: no more are then left than
  // scopes are open at a time. A scope that did begin between two joined ones becomes a pair, which is no harm.
  void join_neighbours() {
    std::size_t kept = 1;
    for (std::size_t i = 1; i < stretches_.size(); ++i) {
      stretch joined = stretches_[i];
      while (stretches_[kept - 1].depth >= joined.depth) joined.start_ns = stretches_[--kept].start_ns;
      stretches_[kept++] = joined;
    }
    stretches_.resize(kept);
    many_ = greater(few, 2 * kept);
  }

  static constexpr std::size_t few = 64;

  std::size_t many_ = few;
  std::vector<stretch> stretches_;  // in order, beside each other; the first is what lies before all that is known
};

/// The slices of every thread; of more than `most` threads, those that were quiet longest are forgotten. Threads: one
/// at a time.
class slices {
 public:
  explicit slices(std::size_t most = 1'024) : most_(most) {}

  /// Whether nothing is known of that thread yet.
  [[nodiscard]] bool is_new(std::uint64_t thread) const { return threads_.find(thread) == threads_.end(); }

  [[nodiscard]] bool add(std::uint64_t thread, std::int64_t start_ns, std::int64_t end_ns, int depth) {
    auto found = threads_.find(thread);
    if (found == threads_.end()) {
      if (threads_.size() >= most_) forget_half();
      found = threads_.emplace(thread, thread_slices(known_from_ns_)).first;
    }
    return found->second.add(start_ns, end_ns, depth < 0 ? 0 : depth);
  }

  void clear() {
    threads_.clear();
    known_from_ns_ = earliest;
  }

  [[nodiscard]] std::size_t threads() const noexcept { return threads_.size(); }

 private:
  void forget_half() {
    std::vector<std::int64_t> ends;
    for (const auto& t : threads_) ends.push_back(t.second.last_end_ns());
    const auto middle = ends.begin() + static_cast<std::ptrdiff_t>((ends.size() - 1) / 2);
    std::nth_element(ends.begin(), middle, ends.end());
    for (auto t = threads_.begin(); t != threads_.end();) {
      t = t->second.last_end_ns() <= *middle ? threads_.erase(t) : std::next(t);
    }
    known_from_ns_ = greater(known_from_ns_, *middle);
  }

  static constexpr std::int64_t earliest = INT64_MIN;

  std::size_t most_;
  std::int64_t known_from_ns_ = earliest;
  std::map<std::uint64_t, thread_slices> threads_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
