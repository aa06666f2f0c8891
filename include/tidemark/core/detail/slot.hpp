// SPDX-License-Identifier: MIT
// What a thread keeps: its account, what each scope path owns of its blocks, and the windows it has open. A slot outlives
// its thread and serves the next one; it is never unmapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <tidemark/core/account.hpp>
#include <tidemark/core/detail/arena.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

struct path_node;

inline constexpr std::uint32_t root_path_id = 0;   ///< no scope open
inline constexpr std::uint32_t other_path_id = 1;  ///< paths beyond the table's capacity
inline constexpr std::uint32_t path_capacity = 65'536;

/// What takes a thread off the fast path; kept in `slot::gate`.
enum gate_flag : std::uint32_t {
  gate_quiet = 1,      // blocks are the library's own, or hidden by the user
  gate_ask_sizes = 2,  // the allocator's bookkeeping word cannot be read
};

/// A window of one thread, with a scope path where a scope opened it.
struct thread_window : window_node {
  // 4 * generation + one of the three below. A close elsewhere may only move open to abandoned.
  static constexpr std::uint64_t closed = 0, open = 1, abandoned = 2, step = 4;

  std::atomic<std::uint64_t> state{closed};
  const path_node* path = nullptr;
  std::uint32_t path_id = root_path_id;
  int depth = -1;
  thread_window* next_free = nullptr;
};

struct slot;

/// Names an open window from anywhere: it goes stale when the window closes or its thread ends.
struct window_handle {
  slot* home = nullptr;  // null: the thread had no slot
  thread_window* window = nullptr;
  std::uint64_t ticket = 0;
};

/// Threads: the owner's, but where a member says otherwise.
struct slot {
  thread_account account;

  // What the next block's stamp carries, and where its bytes are booked.
  std::uint64_t owner_word = root_path_id;
  balance* owner_cell = nullptr;

  // Bytes by owner; `owner_cell` points into it. Others read it under the ledger's table lock.
  balance* owned = nullptr;
  std::uint32_t owned_capacity = 0;

  std::uint32_t gate = 0;  // gate_flag
  counter foreign_frees;
  balance quiet_bytes;
  balance quiet_blocks;

  const path_node* path = nullptr;  // of the innermost open scope; null: none
  int depth = -1;                   // of the innermost open scope
  std::uint64_t thread_id = 0;
  int exit_rounds = 0;
  std::atomic<std::uint32_t> abandoned{0};  // windows that others closed; any thread adds

  thread_window* free_windows = nullptr;
  bool has_thread = false;
  slot* next = nullptr;       // in the list of all slots
  slot* next_free = nullptr;  // in the list of slots without a thread

  static constexpr std::uint32_t first_owned_capacity = 256;
  static constexpr int first_windows_count = 12;
  balance first_owned[first_owned_capacity];
  thread_window first_windows[first_windows_count];
  int windows_handed_out = 0;  // of `first_windows`

  // Nothing but zeros, so that one can be static without a byte in the program file; `start()` comes first.
  constexpr slot() noexcept = default;

  /// A thread takes the slot.
  void start(shared_account& shared, std::int64_t settle_bytes) noexcept {
    if (owned == nullptr) {
      owned = first_owned;
      owned_capacity = first_owned_capacity;
    }
    owner_word = root_path_id;
    owner_cell = owned + root_path_id;
    path = nullptr;
    depth = -1;
    exit_rounds = 0;
    account.begin(shared, settle_bytes);
  }

  /// Makes room for the bytes of `id`. False: no memory for a larger table.
  [[nodiscard]] bool reserve_owner(std::uint32_t id, arena& memory, spin_lock& table_lock) noexcept {
    if (id < owned_capacity) return true;
    std::uint32_t capacity = owned_capacity;
    while (capacity <= id) capacity *= 4;
    auto* grown = static_cast<balance*>(memory.map(capacity * sizeof(balance)));
    if (grown == nullptr) return false;
    for (std::uint32_t i = 0; i < owned_capacity; ++i) grown[i].store(owned[i].load());
    balance* old = owned;
    const std::uint32_t old_capacity = owned_capacity;
    {
      const spin_guard held(table_lock);
      owned = grown;
      owned_capacity = capacity;
    }
    owner_cell = grown + static_cast<std::uint32_t>(owner_word);
    if (old != first_owned) memory.unmap(old, old_capacity * sizeof(balance));
    return true;
  }

  /// New blocks belong to this path from now on.
  void set_owner(std::uint32_t id, arena& memory, spin_lock& table_lock) noexcept {
    if (!reserve_owner(id, memory, table_lock)) id = other_path_id;
    owner_word = id;
    owner_cell = owned + id;
  }

  /// Opens a window. Null: no memory for one.
  [[nodiscard]] thread_window* open_window(arena& memory) noexcept {
    thread_window* w = take_window(memory);
    if (w == nullptr) return nullptr;
    w->path = nullptr;
    account.open(*w);
    // Ordered by whatever hands the handle to another thread.
    w->state.store(w->state.load(std::memory_order_relaxed) | thread_window::open, std::memory_order_relaxed);
    return w;
  }

  window_usage close_window(thread_window& w) noexcept {
    const window_usage u = account.close(w);
    release(w);
    return u;
  }

  /// Closes what other threads gave up, so that the account forgets it.
  void sweep_abandoned() noexcept {
    if (TIDEMARK_LIKELY(abandoned.load(std::memory_order_relaxed) == 0)) return;  // a miss is seen the next time
    abandoned.exchange(0, std::memory_order_acquire);  // pairs with abandon(): whatever it counted, the loop sees
    for (window_node* n = account.windows().newest(); n->older != nullptr;) {
      auto& w = static_cast<thread_window&>(*n);
      n = n->older;
      if ((w.state.load(std::memory_order_acquire) & thread_window::abandoned) != 0) close_window(w);  // abandon()
    }
  }

  /// From another thread: marks the window for its owner to remove. Nothing happens to one that is gone already.
  static void abandon(const window_handle& h) noexcept {
    std::uint64_t expected = h.ticket;
    if (h.window->state.compare_exchange_strong(expected, h.ticket - thread_window::open + thread_window::abandoned,
                                                std::memory_order_acq_rel)) {  // pairs with sweep_abandoned()
      h.home->abandoned.fetch_add(1, std::memory_order_release);
    }
  }

  /// The thread is gone, and with it every window it left open.
  void forget_windows() noexcept {
    for (window_node* n = account.windows().newest(); n->older != nullptr;) {
      auto& w = static_cast<thread_window&>(*n);
      n = n->older;
      release(w);
    }
    abandoned.store(0, std::memory_order_relaxed);
  }

  /// The innermost scope still open now owns new blocks.
  void resume_path(arena& memory, spin_lock& table_lock) noexcept {
    const window_node* n = account.windows().newest();
    while (n->older != nullptr && static_cast<const thread_window*>(n)->path == nullptr) n = n->older;
    if (n->older == nullptr) return set_path(nullptr, root_path_id, -1, memory, table_lock);
    const auto& w = static_cast<const thread_window&>(*n);
    set_path(w.path, w.path_id, w.depth, memory, table_lock);
  }

  void set_path(const path_node* node, std::uint32_t id, int new_depth, arena& memory, spin_lock& table_lock) noexcept {
    path = node;
    depth = new_depth;
    set_owner(id, memory, table_lock);
  }

 private:
  [[nodiscard]] thread_window* take_window(arena& memory) noexcept {
    if (free_windows != nullptr) {
      thread_window* w = free_windows;
      free_windows = w->next_free;
      return w;
    }
    if (windows_handed_out < first_windows_count) return &first_windows[windows_handed_out++];
    void* piece = memory.allocate(sizeof(thread_window));
    return piece == nullptr ? nullptr : new (piece) thread_window;
  }

  void give_back(thread_window& w) noexcept {
    w.next_free = free_windows;
    free_windows = &w;
  }

  // The generation moves on, so that no handle to it works any more.
  void release(thread_window& w) noexcept {
    const std::uint64_t generation = w.state.load(std::memory_order_relaxed) / thread_window::step + 1;
    w.state.exchange(generation * thread_window::step, std::memory_order_acq_rel);  // pairs with abandon()
    give_back(w);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
