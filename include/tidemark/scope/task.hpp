// SPDX-License-Identifier: MIT
// A scope over work that several threads share: the thread that opens it, and every thread that joins.
//
//   tidemark::task_scope step("step");
//   std::thread worker([token = step.token()] {
//     const tidemark::join_task joined(token);  // from here on, what this thread allocates counts for the step
//     TIDEMARK_SCOPE("forward");                // its path is "step/forward"
//   });
#pragma once

#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/scope/detail/frame.hpp>
#include <tidemark/scope/meter/task_heap.hpp>
#include <tidemark/scope/scope.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// What this thread and those that join allocate. A task opened inside another is a part of it: who joins it works for both.
class task_scope : public basic_scope<meter::task_heap> {
 public:
  explicit task_scope(std::string_view name, location where = location::current()) noexcept
      : basic_scope<meter::task_heap>(name, where) {}

  /// For the threads that join. Names no task once the scope is closed.
  [[nodiscard]] task_token token() const noexcept {
    const meter::task_heap::window* w = window<meter::task_heap>();
    return w == nullptr ? task_token{} : w->token();
  }
};

/// While one is open on a thread, what the thread allocates and frees counts for the task and those around it, and its scopes
/// go on in the task's path. Joined twice, the thread counts once; joined to several tasks, each event counts once for each.
/// Neither copied nor moved. After the task has closed it does nothing.
/// Threads: opened on the one that joins; closed elsewhere, that thread leaves when it next opens or closes a scope.
class [[nodiscard]] join_task {
 public:
  explicit join_task(task_token token) noexcept {
#if TIDEMARK_OPT_DISABLE
    static_cast<void>(token);
#else
    if (!token) return;
    detail::slot* s = detail::current_slot();
    if (s == nullptr) {
      detail::ledger().process.miss_a_thread(*token.task, token.ticket);
      return;
    }
    s->sweep_abandoned();
    seat_ = detail::handle_of(*s, s->join_task(*token.task, token.ticket, detail::ledger().memory));
    if (seat_.home == nullptr || token.path == nullptr) return;
    frame_ = detail::handle_of(*s, s->open_frame(token.path, token.path_id, token.depth, detail::ledger().memory,
                                                 detail::ledger().table_lock));
#endif
  }
  ~join_task() {
    detail::drop(frame_);
    detail::drop(seat_);
  }
  join_task(const join_task&) = delete;
  join_task& operator=(const join_task&) = delete;

 private:
  detail::slot_handle<detail::thread_seat> seat_;
  detail::slot_handle<detail::thread_frame> frame_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
