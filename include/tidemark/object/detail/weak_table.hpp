// SPDX-License-Identifier: MIT
// A hash table of nodes that hold weak handles. Dead ones are removed by the calls themselves: each call counts, and after as
// many as there were entries one call looks at all of them, so that a table is never much larger than twice its living. Nothing
// is allocated, and no node ended, under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include <tidemark/core/detail/order.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// What every node begins with; the table owns it.
template <class Node>
struct weak_node {
  explicit weak_node(std::size_t h) noexcept : hash(h) {}

  const std::size_t hash;
  Node* next = nullptr;
  int users = 1;  // the table, and snapshots that read its key; under the lock
};

/// Ends nodes outside the lock: it stands in front of the guard.
template <class Node>
class released_nodes {
 public:
  released_nodes() = default;
  ~released_nodes() {
    while (Node* n = first_) {
      first_ = n->next;
      delete n;
    }
  }
  released_nodes(const released_nodes&) = delete;
  released_nodes& operator=(const released_nodes&) = delete;

  /// One user fewer.
  void add(Node& n) noexcept {
    if (--n.users > 0) return;
    n.next = first_;
    first_ = &n;
  }

 private:
  Node* first_ = nullptr;
};

/// `Node` derives from weak_node<Node> and has `bool is_dead() const noexcept`.
/// Threads: members that say so are called under `lock`, the others outside it.
template <class Node>
class weak_table {
 public:
  /// Throws: `std::bad_alloc`.
  weak_table() : buckets_(new Node* [least_buckets] {}) {}
  /// No other call runs.
  ~weak_table() {
    released_nodes<Node> all;
    take_all(all);
    delete[] buckets_;
  }
  weak_table(const weak_table&) = delete;
  weak_table& operator=(const weak_table&) = delete;

  mutable leaf_lock lock;

  /// Under the lock. Throws: what `matches` throws.
  template <class Matches>
  [[nodiscard]] Node* find(std::size_t hash, const Matches& matches) const {
    Node* n = buckets_[place_of(hash)];
    while (n != nullptr && !(n->hash == hash && matches(*n))) n = n->next;
    return n;
  }

  /// Under the lock.
  void link(Node& n) noexcept {
    Node*& bucket = buckets_[place_of(n.hash)];
    n.next = bucket;
    bucket = &n;
    ++count_;
  }
  /// Under the lock.
  void unlink(Node& n, released_nodes<Node>& released) noexcept {
    Node** at = &buckets_[place_of(n.hash)];
    while (*at != &n) at = &(*at)->next;
    *at = n.next;
    --count_;
    released.add(n);
  }

  /// Under the lock: `f(Node&)` on each.
  template <class F>
  void for_each(const F& f) const {
    for (std::size_t i = 0; i < bucket_count_; ++i) {
      for (Node* n = buckets_[i]; n != nullptr; n = n->next) f(*n);
    }
  }
  /// Under the lock: removes those for which `is_over(Node&)` holds.
  template <class IsOver>
  void remove_if(released_nodes<Node>& released, const IsOver& is_over) noexcept {
    for (std::size_t i = 0; i < bucket_count_; ++i) {
      for (Node** at = &buckets_[i]; *at != nullptr;) {
        Node& n = **at;
        if (!is_over(n)) {
          at = &n.next;
          continue;
        }
        *at = n.next;
        --count_;
        released.add(n);
      }
    }
  }

  /// Under the lock: living and dead.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// Under the lock, once per call: whether it is time for tidy() once the lock is given back.
  [[nodiscard]] bool is_untidy() noexcept { return --calls_left_ <= 0 || count_ > bucket_count_; }

  /// Removes the dead, and gives the others the buckets that they need. Without memory for those they stay as they are.
  void tidy() noexcept {
    std::size_t wanted = 0;
    {
      released_nodes<Node> dead;
      const spin_guard held(lock);
      remove_if(dead, [](const Node& n) { return n.is_dead(); });
      calls_left_ = static_cast<std::int64_t>(greater(count_, least_buckets));
      wanted = wanted_buckets();
      if (wanted == bucket_count_) return;
    }
    auto** fresh = new (std::nothrow) Node* [wanted] {};
    if (fresh == nullptr) return;
    {
      const spin_guard held(lock);
      move_to(fresh, wanted);
    }
    delete[] fresh;
  }

 private:
  static constexpr std::size_t least_buckets = 16;

  // The upper bits are mixed in: std::hash of a number is often the number.
  [[nodiscard]] std::size_t place_of(std::size_t hash) const noexcept {
    const std::uint64_t mixed = hash * 0x9e37'79b9'7f4a'7c15U;
    return static_cast<std::size_t>(mixed >> 32 ^ mixed) & (bucket_count_ - 1);
  }

  [[nodiscard]] std::size_t wanted_buckets() const noexcept {
    std::size_t wanted = bucket_count_;
    while (wanted < count_) wanted *= 2;
    while (wanted > least_buckets && wanted / 4 > count_) wanted /= 2;
    return wanted;
  }

  // `fresh` is the old array afterwards.
  void move_to(Node**& fresh, std::size_t bucket_count) noexcept {
    std::swap(buckets_, fresh);
    const std::size_t old_count = std::exchange(bucket_count_, bucket_count);
    for (std::size_t i = 0; i < old_count; ++i) {
      while (Node* n = fresh[i]) {
        fresh[i] = n->next;
        Node*& bucket = buckets_[place_of(n->hash)];
        n->next = bucket;
        bucket = n;
      }
    }
  }

  void take_all(released_nodes<Node>& released) noexcept {
    remove_if(released, [](const Node&) { return true; });
  }

  Node** buckets_;
  std::size_t bucket_count_ = least_buckets;
  std::size_t count_ = 0;
  std::int64_t calls_left_ = least_buckets;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
