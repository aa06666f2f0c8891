// SPDX-License-Identifier: MIT
// A hash table that only grows: readers take no lock and write nothing, one writer at a time adds. Superseded tables are
// kept, since a reader may be inside one; together they are smaller than the current one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <tidemark/core/detail/arena.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// 64 bits of a text. Cost: about 6 instructions per 8 bytes.
[[nodiscard]] inline std::uint64_t hash_text(std::string_view text, std::uint64_t seed) noexcept {
  constexpr std::uint64_t factor = 0x9e37'79b9'7f4a'7c15U;
  const char* at = text.data();
  const std::size_t size = text.size();
  const auto word_at = [](const char* from) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    return word;
  };
  const auto half_at = [](const char* from) -> std::uint64_t {
    std::uint32_t half = 0;
    std::memcpy(&half, from, sizeof half);
    return half;
  };
  std::uint64_t h = (seed ^ size) * factor;
  for (std::size_t i = 8; i < size; i += 8, at += 8) {
    h = (h ^ word_at(at)) * factor;
    h ^= h >> 32;
  }
  // The last 1 to 8 bytes, in loads that may overlap what is hashed already.
  std::uint64_t last = 0;
  if (size >= 8) {
    last = word_at(text.data() + size - 8);
  } else if (size >= 4) {
    last = half_at(at) << 32 | half_at(at + size - 4);
  } else if (size > 0) {
    last = static_cast<std::uint64_t>(static_cast<unsigned char>(at[0])) << 16 |
           static_cast<std::uint64_t>(static_cast<unsigned char>(at[size / 2])) << 8 |
           static_cast<unsigned char>(at[size - 1]);
  }
  h = (h ^ last) * factor;
  return h ^ h >> 32;
}

/// `Node` has a member `hash`. Nodes are never removed.
template <class Node>
class hash_index {
 public:
  /// The node with that hash for which `matches(node)` holds, or null. Threads: any, without a lock.
  template <class Matches>
  [[nodiscard]] Node* find(std::uint64_t hash, Matches matches) const noexcept {
    const table* t = table_.load(std::memory_order_acquire);  // pairs with grow()
    if (t == nullptr) return nullptr;
    for (std::size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
      Node* node = t->places[i].load(std::memory_order_acquire);  // pairs with insert()
      if (node == nullptr) return nullptr;
      if (node->hash == hash && matches(*node)) return node;
    }
  }

  /// Adds a complete node. False: no memory. Threads: one at a time.
  [[nodiscard]] bool insert(Node& node, arena& memory) noexcept {
    table* t = table_.load(std::memory_order_relaxed);  // written by inserters only
    if (t == nullptr || count_ * 2 > t->mask) {
      t = grow(t, memory);
      if (t == nullptr) return false;
    }
    place(*t, node);
    ++count_;
    return true;
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  struct table {
    std::size_t mask;
    std::atomic<Node*> places[1];  // mask + 1 of them
  };

  static void place(table& t, Node& node) noexcept {
    std::size_t i = node.hash & t.mask;
    while (t.places[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & t.mask;  // inserters only
    t.places[i].store(&node, std::memory_order_release);                                  // pairs with find()
  }

  [[nodiscard]] table* grow(const table* old, arena& memory) noexcept {
    const std::size_t places = old == nullptr ? 256 : (old->mask + 1) * 4;
    auto* t = static_cast<table*>(memory.map(sizeof(table) + places * sizeof(std::atomic<Node*>)));
    if (t == nullptr) return nullptr;
    t->mask = places - 1;
    for (std::size_t i = 0; old != nullptr && i <= old->mask; ++i) {
      if (Node* node = old->places[i].load(std::memory_order_relaxed)) place(*t, *node);  // inserters only
    }
    table_.store(t, std::memory_order_release);  // pairs with find()
    return t;
  }

  std::atomic<table*> table_{nullptr};
  std::size_t count_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
