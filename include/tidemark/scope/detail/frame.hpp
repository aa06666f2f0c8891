// SPDX-License-Identifier: MIT
// A scope's place in its thread: the path that owns new blocks while it is the innermost one open, and its depth.
#pragma once

#include <cstdint>
#include <string_view>

#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/record.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Whether this thread opened the node and may close it.
template <class Node>
[[nodiscard]] bool is_own(const slot_handle<Node>& h) noexcept {
  return h.home != nullptr && is_slot(this_thread().word) && slot_of(this_thread().word) == h.home &&
         h.node->state.load(std::memory_order_relaxed) == h.ticket;  // its owner alone moves it on
}

/// The handle of a node that this thread has just opened; null is a handle to nothing.
template <class Node>
[[nodiscard]] slot_handle<Node> handle_of(slot& home, Node* node) noexcept {
  if (node == nullptr) return {};
  return {&home, node, node->state.load(std::memory_order_relaxed)};  // this thread wrote it
}

/// Closes without a reading, in any order and on any thread: elsewhere, the node goes when its own thread next opens or
/// closes one.
template <class Node>
void drop(slot_handle<Node>& h) noexcept {
  if (h.home == nullptr) return;
  if (TIDEMARK_LIKELY(is_own(h))) {
    h.home->sweep_abandoned();
    h.home->drop(*h.node);
  } else {
    slot::abandon(h);
  }
  h.home = nullptr;
}

class frame {
 public:
  void enter(std::string_view name) noexcept {
    path_tree* tree = registry<path_tree>();
    slot* s = current_slot();
    thread_id_ = s == nullptr ? os::thread_id() : s->thread_id.load(std::memory_order_relaxed);  // this thread's
    if (tree == nullptr) return;
    if (s == nullptr) {
      path_ = tree->child(nullptr, name);
      return;
    }
    s->sweep_abandoned();
    const thread_frame* around = s->innermost.own();
    depth_ = around == nullptr ? 0 : around->depth + 1;
    path_ = tree->child(around == nullptr ? nullptr : around->path.own(), name);
    handle_ = handle_of(*s, s->open_frame(path_, path_->id, depth_, ledger().memory, ledger().table_lock));
  }

  /// When the scope began. Threads: the one that entered.
  void started(std::int64_t start_ns) noexcept {
    if (handle_.home != nullptr) handle_.node->start_ns.store(start_ns);
  }

  void leave() noexcept { drop(handle_); }

  /// Who and where the scope was. Throws: `std::bad_alloc`.
  void describe(scope_record& record) const {
    os::keep_this_loaded();  // reasons in its readings are texts of this shared object
    if (path_ != nullptr) record.name = path_->name;
    record.path = path_text(path_);
    record.thread = thread_id_;
    record.depth = depth_;
    record.owned_bytes = owned_reading(path_);
  }

 private:
  slot_handle<thread_frame> handle_;
  const path_node* path_ = nullptr;
  std::uint64_t thread_id_ = 0;
  int depth_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
