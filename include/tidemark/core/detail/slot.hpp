// SPDX-License-Identifier: MIT
// What a thread keeps: its account, what each scope path owns of its blocks, and the windows, scopes and seats it has
// open. A slot outlives its thread and serves the next one; it is never unmapped.
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
  gate_quiet = 1,    // blocks are the library's own, or hidden by the user
  gate_guarded = 2,  // a keeper of this thread is asked before each allocation
};

struct slot;

/// A thing of one thread that another thread's object may still name: a window, a frame. Its memory is never given
/// back.
struct slot_node {
  // 4 * generation + one of the three below. A close elsewhere may only move open to abandoned.
  static constexpr std::uint64_t closed = 0, open = 1, abandoned = 2, step = 4;

  std::atomic<std::uint64_t> state{closed};
  slot_node* next_free = nullptr;

  // Relaxed where the node's own thread reads or writes: what hands a handle to another thread orders that.
  void begin() noexcept { state.store(state.load(std::memory_order_relaxed) | open, std::memory_order_relaxed); }
  // The generation moves on, so that no handle works any more. An abandon() just before it is overwritten, as it may
  // be.
  void end() noexcept {
    state.store((state.load(std::memory_order_relaxed) / step + 1) * step, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_abandoned() const noexcept {
    return (state.load(std::memory_order_acquire) & abandoned) != 0;  // pairs with slot::abandon()
  }
};

/// A window on this thread's account.
struct thread_window : slot_node, window_node {};

/// A seat of this thread in a task; that of the task named stands for those in its ancestors.
struct thread_seat : slot_node, task_seat {};

/// The path that owns new blocks while it is the innermost: that of an open scope, or of a task that the thread joined.
struct thread_frame : slot_node {
  published<thread_frame> older;
  thread_frame* newer = nullptr;
  published<const path_node> path;
  balance start_ns;  // steady clock; 0: no scope
  std::uint32_t path_id = root_path_id;
  int depth = -1;
};

/// Names an open node from anywhere: it goes stale when the node closes or its thread ends.
template <class Node>
struct slot_handle {
  slot* home = nullptr;  // null: none is open
  Node* node = nullptr;
  std::uint64_t ticket = 0;
};

/// Nodes for one thread: a few at hand, more from the arena, all used again.
template <class Node, std::size_t AtHand>
class node_pool {
 public:
  constexpr node_pool() noexcept = default;

  [[nodiscard]] Node* take(arena& memory) noexcept {
    if (TIDEMARK_LIKELY(free_ != nullptr)) {
      auto* node = static_cast<Node*>(free_);
      free_ = node->next_free;
      return node;
    }
    if (handed_out_ < AtHand) return &at_hand_[handed_out_++];
    void* piece = memory.allocate(sizeof(Node));
    return piece == nullptr ? nullptr : new (piece) Node;
  }
  void give_back(Node& node) noexcept {
    node.end();
    node.next_free = free_;
    free_ = &node;
  }

 private:
  slot_node* free_ = nullptr;
  std::size_t handed_out_ = 0;
  Node at_hand_[AtHand];
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

  published<thread_frame> innermost;  // the newest open
  int exit_rounds = 0;
  std::atomic<std::uint32_t> abandoned{0};  // nodes that others closed; any thread adds

  std::atomic<std::uint64_t> thread_id{0};    // the system's number of the thread that has it; 0: none has
  std::atomic<std::uintptr_t> stack_mark{0};  // an address in that thread's stack
  slot* next = nullptr;                       // in the list of all slots
  slot* next_free = nullptr;                  // in the list of slots without a thread

  static constexpr std::uint32_t first_owned_capacity = 256;
  balance first_owned[first_owned_capacity];
  node_pool<thread_window, 8> windows;
  node_pool<thread_frame, 8> frames;
  node_pool<thread_seat, 2> seats;

  // Nothing but zeros, so that one can be static without a byte in the program file; `start()` comes first.
  constexpr slot() noexcept = default;

  /// A thread takes the slot.
  void start(shared_account& shared, std::int64_t settle_bytes, spin_lock& table_lock) noexcept {
    if (owned == nullptr) {
      const spin_guard held(table_lock);
      owned = first_owned;
      owned_capacity = first_owned_capacity;
    }
    owner_word = root_path_id;
    owner_cell = owned + root_path_id;
    innermost.store(nullptr);
    exit_rounds = 0;
    account.begin(shared, settle_bytes);
  }

  /// Makes room for the bytes of `id`. False: no memory for a larger table.
  [[nodiscard]] TIDEMARK_ALWAYS_INLINE bool reserve_owner(std::uint32_t id, arena& memory,
                                                          spin_lock& table_lock) noexcept {
    return TIDEMARK_LIKELY(id < owned_capacity) || grow_owned(id, memory, table_lock);
  }
  [[nodiscard]] TIDEMARK_COLD bool grow_owned(std::uint32_t id, arena& memory, spin_lock& table_lock) noexcept {
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

  /// Null: no memory for one.
  [[nodiscard]] thread_window* open_window(arena& memory) noexcept {
    thread_window* w = windows.take(memory);
    if (w == nullptr) return nullptr;
    w->begin();
    account.open(*w);
    return w;
  }
  window_usage close_window(thread_window& w) noexcept {
    const window_usage u = account.close(w);
    windows.give_back(w);
    return u;
  }
  void drop(thread_window& w) noexcept {
    account.drop(w);
    windows.give_back(w);
  }

  /// The path owns new blocks from now on. Null: no memory.
  [[nodiscard]] thread_frame* open_frame(const path_node* path, std::uint32_t path_id, int depth, arena& memory,
                                         spin_lock& table_lock) noexcept {
    thread_frame* f = frames.take(memory);
    if (f == nullptr) return nullptr;
    f->begin();
    thread_frame* below = innermost.own();
    f->older.store(below);
    f->newer = nullptr;
    f->path.store(path);
    f->start_ns.store(0);
    f->path_id = path_id;
    f->depth = depth;
    if (below != nullptr) below->newer = f;
    innermost.store(f);
    set_owner(path_id, memory, table_lock);
    return f;
  }
  /// In any order: the innermost still open now owns new blocks.
  void drop(thread_frame& f) noexcept {
    thread_frame* const below = f.older.own();
    if (below != nullptr) below->newer = f.newer;
    if (f.newer != nullptr) {
      f.newer->older.store(below);
    } else {
      innermost.store(below);
      // Its table entry exists: it was the owner before.
      owner_word = below == nullptr ? root_path_id : below->path_id;
      if (owner_word >= owned_capacity) owner_word = other_path_id;
      owner_cell = owned + owner_word;
    }
    frames.give_back(f);
  }

  [[nodiscard]] auto seat_maker(arena& memory) noexcept {
    return [this, &memory]() noexcept -> task_seat* {
      thread_seat* s = seats.take(memory);
      if (s != nullptr) s->begin();
      return s;
    };
  }
  /// This thread begins a task. Null: no memory.
  [[nodiscard]] thread_seat* open_task(task_account& t, arena& memory) noexcept {
    return static_cast<thread_seat*>(account.open_task(t, seat_maker(memory)));
  }
  /// It works for the task and its ancestors. Null: the task is over, or no memory.
  [[nodiscard]] thread_seat* join_task(task_account& t, std::uint64_t ticket, arena& memory) noexcept {
    return static_cast<thread_seat*>(account.join_task(t, ticket, seat_maker(memory)));
  }
  void drop(thread_seat& s) noexcept {
    account.leave_task(s);
    for (task_seat* n = &s; n != nullptr;) {
      auto& seat = static_cast<thread_seat&>(*n);
      n = n->in_ancestor;
      seats.give_back(seat);
    }
  }

  /// From another thread: marks the node for its owner to remove. Nothing happens to one that is gone already.
  template <class Node>
  static void abandon(const slot_handle<Node>& h) noexcept {
    std::uint64_t expected = h.ticket;
    if (h.node->state.compare_exchange_strong(expected, h.ticket - slot_node::open + slot_node::abandoned,
                                              std::memory_order_acq_rel)) {  // pairs with sweep_abandoned()
      h.home->abandoned.fetch_add(1, std::memory_order_release);
    }
  }

  /// Drops what other threads gave up.
  TIDEMARK_ALWAYS_INLINE void sweep_abandoned() noexcept {
    if (TIDEMARK_UNLIKELY(abandoned.load(std::memory_order_relaxed) != 0)) sweep_now();  // a miss is seen the next time
  }
  TIDEMARK_COLD void sweep_now() noexcept {
    abandoned.exchange(0, std::memory_order_acquire);  // pairs with abandon(): whatever it counted, the loops see
    for_each_window([this](thread_window& w) {
      if (w.is_abandoned()) drop(w);
    });
    for_each_frame([this](thread_frame& f) {
      if (f.is_abandoned()) drop(f);
    });
    for (task_seat* n = account.newest_seat(); n != nullptr;) {
      auto& seat = static_cast<thread_seat&>(*n);
      n = n->older;
      if (!seat.is_abandoned()) continue;
      drop(seat);
      n = account.newest_seat();  // those in its ancestors went with it
    }
  }

  /// The thread is gone, and with it every window and scope it left open.
  void forget_nodes() noexcept {
    for_each_window([this](thread_window& w) { windows.give_back(w); });
    for_each_frame([this](thread_frame& f) { frames.give_back(f); });
    for (task_seat* n = account.newest_seat(); n != nullptr; n = n->older) {  // the account's end unlinks them
      seats.give_back(static_cast<thread_seat&>(*n));
    }
    innermost.store(nullptr);
    abandoned.store(0, std::memory_order_relaxed);
  }

 private:
  template <class F>
  void for_each_window(F f) noexcept {
    for (window_node* n = account.windows().newest(); n->older != nullptr;) {  // the last is the account's own
      auto& w = static_cast<thread_window&>(*n);
      n = n->older;
      f(w);
    }
  }
  template <class F>
  void for_each_frame(F f) noexcept {
    for (thread_frame* n = innermost.own(); n != nullptr;) {
      thread_frame& frame = *n;
      n = n->older.own();
      f(frame);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
