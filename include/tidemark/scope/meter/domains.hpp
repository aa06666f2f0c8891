// SPDX-License-Identifier: MIT
// The meter of the domains: one reading for each, "domain:weights".
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace meter {
inline namespace TIDEMARK_TAG {

/// What every domain was fed in the window: those alive at the entry, and those made since. Exact. In the order of their
/// making. Several readings, so that `usage<meter::domains>()` and `measure<meter::domains>` do not compile.
/// Cost: a lock and a window for each domain at each edge.
struct domains {
  static constexpr const char* name = "domains";
  static constexpr const char* unit = "bytes";
  static constexpr bool counts_events = true;

  /// Threads: opened and closed by any.
  class window {
   public:
    window() noexcept {
#if !TIDEMARK_OPT_DISABLE
      all_ = detail::registry<detail::domain_registry>();
      if (all_ == nullptr) return;
      detail::domain_node* newest = all_->newest();
      first_new_ = newest == nullptr ? 1 : newest->number + 1;
      detail::domain_window* last = nullptr;
      for (detail::domain_node* d = newest; d != nullptr; d = d->older) {
        if (!d->is_alive()) continue;
        detail::domain_window* w = all_->take_window();
        if (w == nullptr) {
          misses_one_ = true;
          continue;
        }
        d->open(*w);
        w->older_of_scope = nullptr;
        (last == nullptr ? newest_ : last->older_of_scope) = w;
        last = w;
      }
#endif
    }
    window(const window&) = delete;
    window& operator=(const window&) = delete;
    ~window() {
      for (detail::domain_window* w = newest_; w != nullptr;) {
        static_cast<void>(w->node->close(*w));
        detail::domain_window* const next = w->older_of_scope;
        all_->give_back(*w);
        w = next;
      }
    }

    /// Appends a reading for each. Throws: `std::bad_alloc`.
    void close(std::vector<meter_reading>& readings) {
      using absent = reading<window_usage>;
#if TIDEMARK_OPT_DISABLE
      readings.push_back({name, absent::absent("disabled"), unit});
#else
      if (all_ == nullptr || misses_one_) {
        readings.push_back({name, absent::absent("no memory for the windows of every domain"), unit});
      }
      if (all_ == nullptr) return;
      detail::domain_node* const newest = all_->newest();  // once: another thread may be making one
      const auto is_new = [this](const detail::domain_node* d) { return d != nullptr && d->number >= first_new_; };
      std::size_t count = 0;
      for (detail::domain_node* d = newest; is_new(d); d = d->older) ++count;
      for (detail::domain_window* w = newest_; w != nullptr; w = w->older_of_scope) ++count;
      readings.reserve(readings.size() + count);  // a window must not be closed and then lost
      const auto first = static_cast<std::ptrdiff_t>(readings.size());
      for (detail::domain_node* d = newest; is_new(d); d = d->older) {
        if (d->is_alive() || d->current().allocations > 0) readings.push_back({d->meter, d->whole_life(), unit});
      }
      while (newest_ != nullptr) {
        detail::domain_window& w = *newest_;
        readings.push_back({w.node->meter, w.node->close(w), unit});
        newest_ = w.older_of_scope;
        all_->give_back(w);
      }
      for (auto i = readings.begin() + first, j = readings.end(); i < j && i < --j; ++i)
        std::swap(*i, *j);  // oldest first
#endif
    }

   private:
    detail::domain_registry* all_ = nullptr;
    detail::domain_window* newest_ = nullptr;
    [[maybe_unused]] std::uint64_t first_new_ = 1;
    [[maybe_unused]] bool misses_one_ = false;
  };
};

}  // namespace TIDEMARK_TAG
}  // namespace meter
}  // namespace v0
}  // namespace tidemark
