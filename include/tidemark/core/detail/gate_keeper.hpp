// SPDX-License-Identifier: MIT
// Keepers stand at the gate: a hook, a tracked allocator and a resource ask them before an allocation whether it may be
// made.
#pragma once

#include <atomic>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

class domain_node;

/// Who is about to allocate, and what a refusal looks like there.
enum class allocation_caller {
  throwing_new,  // bad_alloc, or whatever a keeper throws
  nothrow_new,   // null
  c_family,      // null and ENOMEM
  tracked,       // bad_alloc: an allocator or a resource that feeds a domain
  told,          // nothing: a sanitizer says afterwards what was allocated
};

/// One allocation that is asked for.
struct allocation_request {
  std::uint64_t bytes;
  std::uint64_t replaced_bytes;  // by a realloc
  const domain_node* into;       // of `tracked`; null: the heap
  allocation_caller caller;

  // Set on the way.
  bool is_repeated = false;  // a new-handler ran since it was asked the first time
  bool is_inner = false;     // a tracked allocator around it has asked already
  bool is_exempt = false;    // for the keepers further out: an exemption stands before them
};

/// Whom an allocation is asked of: a thread's, while it is in the thread's list, or the one of the process.
struct TIDEMARK_EXPORT gate_keeper {
  gate_keeper() = default;
  gate_keeper(const gate_keeper&) = delete;
  gate_keeper& operator=(const gate_keeper&) = delete;

  /// Throws: only at `throwing_new`. Everything else may be called by code that must not.
  virtual bool admits(allocation_request&) = 0;
  /// What it admitted is counted by now, or was never allocated.
  virtual void settled() noexcept {}
  /// The program ends by std::terminate.
  virtual void on_terminate() noexcept {}
  [[nodiscard]] virtual bool injects_failures() const noexcept { return false; }

  gate_keeper* outer = nullptr;  // of the same thread

 protected:
  ~gate_keeper() = default;
};

/// One allocation's way through the gate, from before the real call until the block is counted. The library's own, and
/// those inside `quiet`, are not asked for.
class gate_passage {
 public:
  gate_passage() noexcept = default;  // nothing is allocated
  TIDEMARK_ALWAYS_INLINE explicit gate_passage(const allocation_request& r) : request_(r) {
    if (TIDEMARK_UNLIKELY(is_guarded())) ask();
  }
  TIDEMARK_ALWAYS_INLINE ~gate_passage() { step_back(); }
  gate_passage(const gate_passage&) = delete;
  gate_passage& operator=(const gate_passage&) = delete;

  /// False: it must fail.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

  /// It was not made, and others may go on.
  TIDEMARK_ALWAYS_INLINE void step_back() noexcept {
    if (TIDEMARK_UNLIKELY(is_held_)) leave();
    is_held_ = false;
  }
  /// After a new-handler, which may have made room.
  void ask_again() {
    step_back();
    is_open_ = true;
    request_.is_repeated = true;
    request_.is_exempt = false;
    if (TIDEMARK_UNLIKELY(is_guarded())) ask();
  }

 private:
  [[nodiscard]] static bool is_guarded() noexcept {
    // Relaxed: a hint; asked again below.
    return this_thread().keepers != nullptr || ledger().process_keeper.load(std::memory_order_relaxed) != nullptr;
  }

  TIDEMARK_COLD void ask() {
    thread_local_state& here = this_thread();
    if (here.word == word_passing || here.quiet_depth > 0) return;
    request_.is_inner = here.tracked_depth > 0;
    for (gate_keeper* k = here.keepers; k != nullptr; k = k->outer) {
      if (k->admits(request_)) continue;
      is_open_ = false;
      return;
    }
    if (request_.into != nullptr) {
      ++here.tracked_depth;
      is_held_ = true;
      return;
    }
    process_ = ledger().process_keeper.load(std::memory_order_acquire);  // pairs with its opening
    if (process_ == nullptr) return;
    is_open_ = process_->admits(request_);
    is_held_ = is_open_;
  }

  TIDEMARK_COLD void leave() noexcept {
    if (request_.into != nullptr) {
      --this_thread().tracked_depth;
    } else {
      process_->settled();
    }
  }

  allocation_request request_{};
  gate_keeper* process_ = nullptr;
  bool is_open_ = true;
  bool is_held_ = false;
};

/// A keeper comes before this thread's others.
inline void open_gate_keeper(gate_keeper& k) noexcept {
  static_cast<void>(current_slot());
  thread_local_state& here = this_thread();
  k.outer = here.keepers;
  here.keepers = &k;
  raise_gate(gate_guarded);
}

/// In any order. False: it is not one of this thread's.
[[nodiscard]] inline bool close_gate_keeper(gate_keeper& k) noexcept {
  thread_local_state& here = this_thread();
  gate_keeper** at = &here.keepers;
  while (*at != nullptr && *at != &k) at = &(*at)->outer;
  if (*at == nullptr) return false;
  *at = k.outer;
  if (here.keepers == nullptr) lower_gate(gate_guarded);
  return true;
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
