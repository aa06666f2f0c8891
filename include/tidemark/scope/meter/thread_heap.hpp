// SPDX-License-Identifier: MIT
// The meter of one thread's heap.
#pragma once

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/detail/frame.hpp>

namespace tidemark {
inline namespace v0 {
namespace meter {
inline namespace TIDEMARK_TAG {

/// What this thread allocates minus what it frees. Exact. A block that another thread frees lowers that thread's account.
struct thread_heap {
  static constexpr const char* name = "thread_heap";
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = true;

  /// Threads: read and closed where it was opened; elsewhere both are absent, and closing there is safe.
  class window {
   public:
    window() noexcept {
#if !TIDEMARK_OPT_DISABLE
      detail::slot* s = detail::current_slot();
      if (s == nullptr || detail::ledger().hook == hook_kind::none) return;
      s->sweep_abandoned();
      handle_ = detail::handle_of(*s, s->open_window(detail::ledger().memory));
#endif
    }
    window(const window&) = delete;
    window& operator=(const window&) = delete;
    ~window() { detail::drop(handle_); }

    [[nodiscard]] reading<window_usage> usage() const {
      if (!detail::is_own(handle_)) return reason();
      return handle_.home->account.read(*handle_.node);
    }

    reading<window_usage> close() noexcept {
      if (!detail::is_own(handle_)) {
        const reading<window_usage> why = reason();
        detail::drop(handle_);
        return why;
      }
      handle_.home->sweep_abandoned();
      const window_usage u = handle_.home->close_window(*handle_.node);
      handle_.home = nullptr;
      return u;
    }

   private:
    [[nodiscard]] reading<window_usage> reason() const noexcept {
      using absent = reading<window_usage>;
#if TIDEMARK_OPT_DISABLE
      return absent::absent("disabled");
#else
      if (detail::ledger().hook == hook_kind::none) return absent::absent_because(detail::ledger().hook_reason);
      if (handle_.home != nullptr) {
        return absent::absent("not on the thread that opened it: a thread's account is read on its own thread");
      }
      return absent::absent("no window: it is closed, its thread was ending, or memory ran out");
#endif
    }

    detail::slot_handle<detail::thread_window> handle_;
  };
};

}  // namespace TIDEMARK_TAG
}  // namespace meter
}  // namespace v0
}  // namespace tidemark
