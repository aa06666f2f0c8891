// SPDX-License-Identifier: MIT
// The meter of the resident set: what the system charges the process, not what the program asked for.
#pragma once

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/sys/detail/resident_marks.hpp>
#include <tidemark/sys/peak_reset.hpp>  // which belongs to it

namespace tidemark {
inline namespace v0 {
namespace meter {
inline namespace TIDEMARK_TAG {

/// The process's resident set at the entry and the exit, and its peak in between. Where the kernel's high-water mark rose in
/// the window, that is the peak, within the kernel's per-CPU counters; otherwise the peak is the higher edge, and
/// `error_bound_bytes` reaches up to the mark. `allow_peak_resident_reset(true)` makes it exact there too.
/// Cost: three system calls at each edge; nine at an entry where the mark may be reset. Allocates: nothing.
struct resident {
  static constexpr const char* name = "resident";
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = false;

  /// Threads: opened, read and closed by any.
  class window {
   public:
    window() noexcept {
#if !TIDEMARK_OPT_DISABLE
      marks_ = detail::registry<detail::resident_marks>();
      if (marks_ != nullptr) window_ = marks_->open(why_);
#endif
    }
    window(const window&) = delete;
    window& operator=(const window&) = delete;
    ~window() {
      if (window_ != nullptr) marks_->close(*window_);
    }

    [[nodiscard]] reading<window_usage> usage() const {
      using absent = reading<window_usage>;
      if (window_ == nullptr) return absent::absent_because(why_);
      const char* why = nullptr;
      const window_usage u = marks_->read_window(*window_, why);
      if (why != nullptr) return absent::absent_because(why);
      return u;
    }

    reading<window_usage> close() noexcept {
      const reading<window_usage> last = usage();
      if (window_ != nullptr) marks_->close(*window_);
      window_ = nullptr;
      why_ = "no window: it is closed";
      return last;
    }

   private:
    detail::resident_marks* marks_ = nullptr;
    detail::resident_window* window_ = nullptr;
#if TIDEMARK_OPT_DISABLE
    const char* why_ = "disabled";
#else
    const char* why_ = "no memory for the library's own state";
#endif
  };
};

}  // namespace TIDEMARK_TAG
}  // namespace meter
}  // namespace v0
}  // namespace tidemark
