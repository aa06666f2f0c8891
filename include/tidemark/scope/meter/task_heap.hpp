// SPDX-License-Identifier: MIT
// The meter of a task: the heap of the thread that opened it and of those that join it meanwhile.
#pragma once

#include <cstdint>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/account.hpp>
#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/detail/frame.hpp>

namespace tidemark {
inline namespace v0 {

/// Names a task and the scope that its threads go on in. Plain data: hand it to the threads that join. It may outlive the
/// task; joining then does nothing.
struct task_token {
  detail::task_account* task = nullptr;  ///< null: it names none
  std::uint64_t ticket = 0;
  const detail::path_node* path = nullptr;
  std::uint32_t path_id = detail::root_path_id;
  int depth = -1;

  explicit operator bool() const noexcept { return task != nullptr; }
};

namespace meter {
inline namespace TIDEMARK_TAG {

/// What the threads of a task allocate minus what they free while they are in it. Exact while one thread is; otherwise within
/// `error_bound_bytes`. A block that another thread frees lowers nothing here.
struct task_heap {
  static constexpr const char* name = "task_heap";
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = true;

  /// One task, from the opening of its window to its close. Threads: opened, read and closed by any.
  class window {
   public:
    window() noexcept {
#if !TIDEMARK_OPT_DISABLE
      detail::slot* s = detail::current_slot();
      if (s == nullptr) return;
      s->sweep_abandoned();
      task_ = detail::take_node(detail::ledger().free_tasks);
      if (task_ == nullptr) return;
      seat_ = detail::handle_of(*s, s->open_task(*task_, detail::ledger().memory));
      if (seat_.home == nullptr) {
        detail::give_node_back(detail::ledger().free_tasks, *task_);
        task_ = nullptr;
        return;
      }
      token_ = {task_, task_->ticket};
      if (const detail::thread_frame* around = s->innermost.own()) {
        token_.path = around->path.own();
        token_.path_id = around->path_id;
        token_.depth = around->depth;
      }
#endif
    }
    window(const window&) = delete;
    window& operator=(const window&) = delete;
    ~window() { static_cast<void>(close()); }

    /// For the threads that join. Names none where there is no memory for a task.
    [[nodiscard]] task_token token() const noexcept { return token_; }

    [[nodiscard]] reading<window_usage> usage() const {
      if (task_ == nullptr) return reason();
      return told(detail::ledger().process.read_task(*task_, own_account(), detail::ledger().settle_bytes));
    }

    reading<window_usage> close() noexcept {
      if (task_ == nullptr) return reason();
      const window_usage u = detail::ledger().process.close_task(*task_, own_account(), detail::ledger().settle_bytes);
      const reading<window_usage> last = told(u);
      detail::drop(seat_);
      detail::give_node_back(detail::ledger().free_tasks, *task_);
      task_ = nullptr;
      return last;
    }

   private:
    [[nodiscard]] static detail::thread_account* own_account() noexcept {
      detail::slot* s = detail::current_slot();
      return s == nullptr ? nullptr : &s->account;
    }

    [[nodiscard]] reading<window_usage> told(const window_usage& u) const noexcept {
      using absent = reading<window_usage>;
      if (detail::ledger().hook == hook_kind::none) return absent::absent_because(detail::ledger().hook_reason);
      if (detail::ledger().process.misses_a_thread(*task_)) {
        return absent::absent("a thread that joined is not counted: it was ending, or memory ran out");
      }
      return u;
    }

    [[nodiscard]] static reading<window_usage> reason() noexcept {
      using absent = reading<window_usage>;
#if TIDEMARK_OPT_DISABLE
      return absent::absent("disabled");
#else
      if (detail::ledger().hook == hook_kind::none) return absent::absent_because(detail::ledger().hook_reason);
      return absent::absent("no task: it is closed, its thread was ending, or memory ran out");
#endif
    }

    detail::task_account* task_ = nullptr;
    detail::slot_handle<detail::thread_seat> seat_;
    task_token token_;
  };
};

}  // namespace TIDEMARK_TAG
}  // namespace meter
}  // namespace v0
}  // namespace tidemark
