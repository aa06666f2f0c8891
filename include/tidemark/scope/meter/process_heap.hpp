// SPDX-License-Identifier: MIT
// The meter of the whole process's heap.
#pragma once

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace meter {
inline namespace TIDEMARK_TAG {

/// What every thread together allocates minus frees, as far as the hook sees it. Exact while one thread runs; otherwise
/// within `error_bound_bytes`.
struct process_heap {
  static constexpr const char* name = "process_heap";
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = true;

  /// Threads: opened, read and closed by any.
  class window {
   public:
    window() noexcept {
#if !TIDEMARK_OPT_DISABLE
      if (hook_state() != hook_kind::none) node_ = detail::open_process_window();
#endif
    }
    window(const window&) = delete;
    window& operator=(const window&) = delete;
    ~window() {
      if (node_ != nullptr) detail::close_process_window(*node_);
    }

    [[nodiscard]] reading<window_usage> usage() const {
      if (node_ == nullptr) return reason();
      return detail::read_process_window(*node_);
    }

    reading<window_usage> close() noexcept {
      if (node_ == nullptr) return reason();
      const window_usage u = detail::close_process_window(*node_);
      node_ = nullptr;
      return u;
    }

   private:
    [[nodiscard]] static reading<window_usage> reason() noexcept {
      using absent = reading<window_usage>;
#if TIDEMARK_OPT_DISABLE
      return absent::absent("disabled");
#else
      if (detail::ledger().hook == hook_kind::none) return absent::absent_because(detail::ledger().hook_reason);
      return absent::absent("no window: it is closed, or memory ran out");
#endif
    }

    detail::window_node* node_ = nullptr;
  };
};

}  // namespace TIDEMARK_TAG
}  // namespace meter
}  // namespace v0
}  // namespace tidemark
