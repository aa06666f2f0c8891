// SPDX-License-Identifier: MIT
// Callbacks that wait for the end of an object, each called once or cancelled. Those that fall due while their thread is inside
// another wait until that one is over, so that a chain of objects, each let go by the callback of the one before, needs no
// deeper a stack.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

struct tracked_record;

class expiry_entry {
 public:
  expiry_entry(const expiry_entry&) = delete;
  expiry_entry& operator=(const expiry_entry&) = delete;

  /// Calls it, unless it was cancelled. What it holds is let go before anyone hears that it is over.
  void call() noexcept {
    runner_ = os::thread_mark();
    process_ = ledger().process_id;
    if (!move_on_from_waiting(running)) return;
    [[maybe_unused]] const os::no_cancellation whole;
    call_(*this);
    state_.store(over, std::memory_order_release);  // pairs with wait_until_over()
  }

  /// Whether the call is prevented. What it holds is still to be let go, with drop().
  [[nodiscard]] bool cancel() noexcept { return move_on_from_waiting(over); }

  void drop() noexcept { drop_(*this); }

  /// Does not wait for a call that this thread is inside, nor, in a fork child, for one of a thread that is not there.
  void wait_until_over() const noexcept {
    for (int turns = 0; state_.load(std::memory_order_acquire) == running; ++turns) {  // pairs with call()
      if (runner_ == os::thread_mark() || process_ != ledger().process_id) return;
      turns < 100 ? os::yield_thread() : os::pause_ns(100'000);
    }
  }

  // In the list of its object, under the lock of that one's record; then in the list of a run.
  std::shared_ptr<expiry_entry> self;  // a list keeps what is in it
  tracked_record* record = nullptr;    // null: no longer in the list of its object
  expiry_entry* next = nullptr;
  expiry_entry* previous = nullptr;  // among those of an object

 protected:
  using function = void (*)(expiry_entry&) noexcept;

  expiry_entry(function caller, function dropper) noexcept : call_(caller), drop_(dropper) {}
  ~expiry_entry() = default;

 private:
  static constexpr int waiting = 0, running = 1, over = 2;

  [[nodiscard]] bool move_on_from_waiting(int to) noexcept {
    int expected = waiting;
    return state_.compare_exchange_strong(expected, to, std::memory_order_acq_rel,
                                          std::memory_order_acquire);  // with itself, and with wait_until_over()
  }

  const function call_;
  const function drop_;
  std::atomic<int> state_{waiting};
  const void* runner_ = nullptr;  // written before `running` is
  std::uint64_t process_ = 0;     // the same
};

inline namespace TIDEMARK_ERROR_TAG {

template <class F>
class expiry_call final : public expiry_entry {
 public:
  explicit expiry_call(F f) : expiry_entry(call_it, drop_it), f_(std::move(f)) {}

 private:
  static void call_it(expiry_entry& e) noexcept {
    auto& f = static_cast<expiry_call&>(e).f_;
    contain_exceptions([&] { (*f)(); }, [](const char* what) { os::say("an on_expire callback threw: ", what); });
    f.reset();
  }
  static void drop_it(expiry_entry& e) noexcept { static_cast<expiry_call&>(e).f_.reset(); }

  std::optional<F> f_;
};

}  // namespace TIDEMARK_ERROR_TAG

/// What a thread has still to call, on the stack of the outermost call.
struct expiry_run {
  const void* thread = os::thread_mark();
  expiry_entry* first = nullptr;
  expiry_entry* last = nullptr;
  expiry_run* next = nullptr;

  void append(expiry_entry* list) noexcept {
    (last != nullptr ? last->next : first) = list;
    for (last = list; last->next != nullptr;) last = last->next;
  }
  [[nodiscard]] std::shared_ptr<expiry_entry> take() noexcept {
    expiry_entry* e = first;
    if (e == nullptr) return nullptr;
    first = e->next;
    if (first == nullptr) last = nullptr;
    return std::move(e->self);
  }
};

/// The threads that are inside of such calls. Threads: any.
class expiry_runs {
 public:
  /// Calls every callback of a list, in its order; or leaves that to the call that this thread is inside.
  void run(expiry_entry* list) noexcept {
    if (list == nullptr) return;
    expiry_run here;
    if (expiry_run* outer = find_or_add(here)) return outer->append(list);
    here.append(list);
    while (const std::shared_ptr<expiry_entry> e = here.take()) e->call();
    remove(here);
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) return lock_.lock();
    if (moment == fork_moment::after_in_child) keep_own();
    lock_.unlock();
  }

 private:
  [[nodiscard]] expiry_run* find_or_add(expiry_run& added) noexcept {
    const spin_guard held(lock_);
    for (expiry_run* r = newest_; r != nullptr; r = r->next) {
      if (r->thread == added.thread) return r;
    }
    added.next = newest_;
    newest_ = &added;
    return nullptr;
  }
  void remove(const expiry_run& removed) noexcept {
    const spin_guard held(lock_);
    expiry_run** at = &newest_;
    while (*at != &removed) at = &(*at)->next;
    *at = removed.next;
  }
  // The other threads are not in the child, and their stacks are used again.
  void keep_own() noexcept {
    expiry_run* own = newest_;
    while (own != nullptr && own->thread != os::thread_mark()) own = own->next;
    if (own != nullptr) own->next = nullptr;
    newest_ = own;
  }

  spin_lock lock_;
  expiry_run* newest_ = nullptr;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
