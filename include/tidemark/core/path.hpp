// SPDX-License-Identifier: MIT
// The tree of scope paths, and how many bytes each still owns. A path is known by the names from the outermost scope to
// the innermost; its number travels in the stamp of every block allocated while it was the innermost open one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/hash_index.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// One scope path. Never freed.
struct path_node {
  std::uint64_t hash = 0;
  const path_node* parent = nullptr;  // null: an outermost scope
  std::string_view name;              // interned
  std::uint32_t id = root_path_id;
  std::atomic<const path_node*> first_child{nullptr};
  const path_node* next_sibling = nullptr;
};

/// The longest name that is kept whole. Units: bytes.
inline constexpr std::size_t name_limit = 255;

/// A name within `name_limit`: a longer one ends in an ellipsis and is never cut inside a UTF-8 character.
class short_name {
 public:
  explicit short_name(std::string_view name) noexcept : view_(name) {
    constexpr std::string_view ellipsis = "\xE2\x80\xA6";
    if (TIDEMARK_LIKELY(name.size() <= name_limit)) return;
    std::size_t keep = name_limit - ellipsis.size();
    // Up to three continuation bytes back; more of them are no UTF-8, and any cut is as good.
    for (int back = 0; back < 3 && (static_cast<unsigned char>(name[keep]) & 0xC0U) == 0x80; ++back) --keep;
    std::memcpy(buffer_, name.data(), keep);
    std::memcpy(buffer_ + keep, ellipsis.data(), ellipsis.size());
    view_ = std::string_view(buffer_, keep + ellipsis.size());
  }
  [[nodiscard]] std::string_view view() const noexcept { return view_; }

 private:
  std::string_view view_;
  char buffer_[name_limit];
};

/// Registry of the scope paths.
class TIDEMARK_EXPORT path_tree {
 public:
  static constexpr std::uint64_t key = registry_key("paths");

  path_tree() noexcept {
    other_.id = other_path_id;
    other_.name = "(other)";
  }

  /// The path of a scope called `name` inside `parent`. Beyond 65,536 paths, or without memory, "(other)".
  /// Cost: one lookup once it is known, without a lock and without a write.
  [[nodiscard]] const path_node* child(const path_node* parent, std::string_view name) noexcept {
    const short_name shortened(name);
    name = shortened.view();
    const std::uint64_t hash = hash_text(name, reinterpret_cast<std::uintptr_t>(parent));
    const auto matches = [=](const path_node& n) { return n.parent == parent && n.name == name; };
    if (const path_node* known = index_.find(hash, matches)) return known;
    if (is_full_.load(std::memory_order_relaxed)) return overflow();  // a hint: add() decides
    const std::string_view kept = intern(name);  // before the lock: the names have their own, and a fork takes both
    const spin_guard held(lock_);
    if (const path_node* known = index_.find(hash, matches)) return known;
    return add(parent, kept, hash);
  }

  /// Above the outermost scopes.
  [[nodiscard]] const path_node& root() const noexcept { return root_; }
  [[nodiscard]] const path_node& other() const noexcept { return other_; }

  /// How many times a new path found no room.
  [[nodiscard]] std::uint64_t overflows() const noexcept {
    return overflows_.load(std::memory_order_relaxed);  // counter only
  }

  void on_fork(fork_moment moment) noexcept { moment == fork_moment::before ? lock_.lock() : lock_.unlock(); }

 private:
  const path_node* add(const path_node* parent, std::string_view name, std::uint64_t hash) noexcept {
    void* piece = next_id_ < path_capacity ? ledger().memory.allocate(sizeof(path_node)) : nullptr;
    auto* node = piece == nullptr ? nullptr : new (piece) path_node;
    if (node != nullptr) {
      node->hash = hash;
      node->parent = parent;
      node->name = name;
      node->id = next_id_;
    }
    if (node == nullptr || !index_.insert(*node, ledger().memory)) return overflow();
    if (++next_id_ == path_capacity) is_full_.store(true, std::memory_order_relaxed);  // a hint
    auto& children = (parent == nullptr ? root_ : const_cast<path_node&>(*parent)).first_child;
    node->next_sibling = children.load(std::memory_order_relaxed);  // written under this lock only
    children.store(node, std::memory_order_release);                // pairs with for_each_path()
    return node;
  }

  const path_node* overflow() noexcept {
    overflows_.fetch_add(1, std::memory_order_relaxed);  // counter only
    return &other_;
  }

  spin_lock lock_;
  hash_index<path_node> index_;
  std::atomic<bool> is_full_{false};
  std::uint32_t next_id_ = other_path_id + 1;
  std::atomic<std::uint64_t> overflows_{0};
  path_node root_;
  path_node other_;
};

/// "train step/forward": the names from the outermost scope in, with '/' inside a name as %2F and '%' as %25.
/// Throws: `std::bad_alloc`.
[[nodiscard]] inline std::string path_text(const path_node* innermost) {
  std::string text;
  // Built from its end, without recursion: a path is as deep as the program's own recursion was.
  for (const path_node* node = innermost; node != nullptr; node = node->parent) {
    for (std::size_t i = node->name.size(); i-- > 0;) {
      const char c = node->name[i];
      if (c == '/') {
        text += "F2%";
      } else if (c == '%') {
        text += "52%";
      } else {
        text += c;
      }
    }
    if (node->parent != nullptr) text += '/';
  }
  for (std::size_t i = 0, j = text.size(); i + 1 < j; ++i, --j) std::swap(text[i], text[j - 1]);
  return text;
}

/// Runs `f(const path_node&)` on a path and on every one below it, each after the one it lies in.
template <class F>
void for_each_path(const path_node& top, F f) {
  const path_node* node = &top;
  for (;;) {
    f(*node);
    if (const path_node* child = node->first_child.load(std::memory_order_acquire)) {  // pairs with add()
      node = child;
      continue;
    }
    while (node != &top && node->next_sibling == nullptr && node->parent != nullptr) node = node->parent;
    if (node == &top || node->next_sibling == nullptr) return;
    node = node->next_sibling;
  }
}

/// The bytes of live blocks that were allocated in this path itself.
[[nodiscard]] inline std::int64_t own_bytes(const path_node& path) noexcept {
  std::int64_t sum = 0;
  const spin_guard held(ledger().table_lock);
  for_each_slot([&](const slot& s) {
    if (path.id < s.owned_capacity) sum += s.owned[path.id].load();
  });
  return sum;
}

/// The same for this path and those below it, over all its calls so far. Cost: one addition per path and slot.
[[nodiscard]] inline std::int64_t owned_bytes(const path_node& top) noexcept {
  std::int64_t sum = 0;
  for_each_path(top, [&](const path_node& node) { sum += own_bytes(node); });
  return sum;
}

/// One path at this moment.
struct path_state {
  const path_node* path;
  std::int64_t own_bytes;    // live blocks allocated in it
  std::int64_t owned_bytes;  // with those of the paths below it
  std::uint64_t open;        // scopes open in it, on any thread
  std::int64_t opened_ns;    // when the oldest of them began, steady clock
};

/// Every path, each after the one it lies in. Threads: any; scopes that open or close meanwhile may be missed.
/// Cost: one addition per path and slot. Throws: `std::bad_alloc`.
[[nodiscard]] inline std::vector<path_state> path_states() {
  std::vector<path_state> states;
  const path_tree* tree = find_registry<path_tree>();
  if (tree == nullptr) return states;
  std::uint32_t highest_id = other_path_id;
  const auto add = [&](const path_node& n) {
    if (n.id == root_path_id) return;
    states.push_back({&n, 0, 0, 0, 0});
    if (n.id > highest_id) highest_id = n.id;
  };
  for_each_path(tree->root(), add);
  add(tree->other());

  // By path id. Nothing is allocated in the lock, which a hook may want.
  std::vector<std::int64_t> own(highest_id + 1);
  {
    const spin_guard held(ledger().table_lock);
    for_each_slot([&](const slot& s) {
      for (std::uint32_t id = 0; id <= highest_id && id < s.owned_capacity; ++id) own[id] += s.owned[id].load();
    });
  }
  struct opening {
    std::uint64_t count = 0;
    std::int64_t first_ns = 0;
  };
  std::vector<opening> open(highest_id + 1);
  for_each_slot([&](const slot& s) {
    // A list that changes meanwhile may lead anywhere in its thread's frames, but its memory stays.
    int steps = 0;
    for (const thread_frame* f = s.innermost.load(); f != nullptr && ++steps < 100'000; f = f->older.load()) {
      const path_node* path = f->path.load();
      const std::int64_t start_ns = f->start_ns.load();
      if (path == nullptr || start_ns == 0 || path->id > highest_id || f->is_abandoned()) continue;
      opening& o = open[path->id];
      if (o.count++ == 0 || start_ns < o.first_ns) o.first_ns = start_ns;
    }
  });

  std::vector<std::int64_t> owned = own;
  for (std::size_t i = states.size(); i-- > 0;) {  // from the innermost outwards
    path_state& s = states[i];
    s.own_bytes = own[s.path->id];
    s.owned_bytes = owned[s.path->id];
    s.open = open[s.path->id].count;
    s.opened_ns = open[s.path->id].first_ns;
    if (s.path->parent != nullptr) owned[s.path->parent->id] += s.owned_bytes;
  }
  return states;
}

/// What a record says of the bytes that its path owns.
[[nodiscard]] inline reading<std::int64_t> owned_reading(const path_node* path) noexcept {
  using result = reading<std::int64_t>;
  if (ledger().hook == hook_kind::none) return result::absent_because(ledger().hook_reason);
  if (path == nullptr) return result::absent("no memory for the scope's path");
  return owned_bytes(*path);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
