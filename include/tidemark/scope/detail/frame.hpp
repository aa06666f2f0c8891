// SPDX-License-Identifier: MIT
// A scope's place in its thread: the path that owns new blocks while it is the innermost one open, and its depth.
#pragma once

#include <cstdint>
#include <string_view>

#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/record.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Opens a window on this thread's account. The handle's home is null where the thread has none.
[[nodiscard]] inline window_handle open_thread_window() noexcept {
  window_handle h;
  slot* s = current_slot();
  if (s == nullptr) return h;
  s->sweep_abandoned();
  h.window = s->open_window(ledger.memory);
  if (h.window == nullptr) return h;
  h.home = s;
  h.ticket = h.window->state.load(std::memory_order_relaxed);  // this thread wrote it
  return h;
}

/// Whether this thread opened the window and may close it.
[[nodiscard]] inline bool is_own(const window_handle& h) noexcept {
  return h.home != nullptr && is_slot(this_thread.word) && slot_of(this_thread.word) == h.home &&
         h.window->state.load(std::memory_order_relaxed) == h.ticket;  // its owner alone moves it on
}

class frame {
 public:
  void enter(std::string_view name) noexcept {
    path_tree* paths = registry<path_tree>();
    window_ = open_thread_window();
    slot* s = window_.home;
    path_ = paths == nullptr ? nullptr : paths->child(s == nullptr ? nullptr : s->path, name);
    thread_id_ = s == nullptr ? os::thread_id() : s->thread_id;
    if (s == nullptr || path_ == nullptr) return;
    depth_ = s->depth + 1;
    thread_window& w = *window_.window;
    w.path = path_;
    w.path_id = path_->id;
    w.depth = depth_;
    s->set_path(path_, path_->id, depth_, ledger.memory, ledger.table_lock);
  }

  /// In any order, on any thread: elsewhere than it was entered, the frame goes when its own thread next opens or closes one.
  void leave() noexcept {
    if (window_.home == nullptr) return;
    if (is_own(window_)) {
      slot& s = *window_.home;
      s.sweep_abandoned();
      s.close_window(*window_.window);
      s.resume_path(ledger.memory, ledger.table_lock);
    } else {
      slot::abandon(window_);
    }
    window_.home = nullptr;
  }

  /// Who and where the scope was. Throws: `std::bad_alloc`.
  void describe(scope_record& record) const {
    if (path_ != nullptr) record.name = path_->name;
    record.path = path_text(path_);
    record.thread = thread_id_;
    record.depth = depth_;
    record.owned_bytes = owned_reading(path_);
  }

 private:
  window_handle window_;
  const path_node* path_ = nullptr;
  std::uint64_t thread_id_ = 0;
  int depth_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
