// SPDX-License-Identifier: MIT
// The limits on the heap of the whole process. While one is open, every allocation of every thread asks here.
#pragma once

#include <atomic>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

/// Whether `bytes` more, `replaced` of which take the place of live ones, stay below a ceiling. Giving back always
/// does.
[[nodiscard]] constexpr bool has_room(std::int64_t live, std::int64_t ceiling, std::uint64_t bytes,
                                      std::uint64_t replaced) noexcept {
  if (bytes <= replaced) return true;
  const std::uint64_t more = bytes - replaced;
  return live <= ceiling && more <= static_cast<std::uint64_t>(ceiling) - static_cast<std::uint64_t>(live);
}

/// Of growth from now on; beyond what a number can say there is no limit.
[[nodiscard]] constexpr std::int64_t ceiling_above(std::int64_t live, std::int64_t growth) noexcept {
  return live > INT64_MAX - growth ? INT64_MAX : live + growth;
}

struct process_limit {
  std::int64_t ceiling = 0;
  std::uint64_t refusals = 0;
  const void* thread = nullptr;  // the mark of the one that opened it
  process_limit* older = nullptr;
};

/// Registry of the open ones. Allocations take turns, each from the question until it is counted: as frees can only
/// lower what is live, no two together can pass a limit that one alone may not.
class TIDEMARK_EXPORT process_limits final : public gate_keeper {
 public:
  static constexpr std::uint64_t key = registry_key("process limits");

  void open(process_limit& limit, std::int64_t growth) noexcept {
    limit.thread = os::thread_mark();
    const spin_guard held(lock_);
    if (newest_ == nullptr) {
      ledger().process_keeper.store(this, std::memory_order_release);  // pairs with gate_passage::ask()
      ledger().guard_all(true);
    }
    limit.ceiling = ceiling_above(ledger().process.live_now(), growth);
    limit.older = newest_;
    newest_ = &limit;
  }
  void close(process_limit& limit) noexcept {
    const spin_guard held(lock_);
    process_limit** at = &newest_;
    while (*at != nullptr && *at != &limit) at = &(*at)->older;
    if (*at == nullptr) return;  // a fork child's, whose thread is not there
    *at = limit.older;
    if (newest_ == nullptr) stop();
  }
  [[nodiscard]] std::uint64_t refusals(const process_limit& limit) noexcept {
    const spin_guard held(lock_);
    return limit.refusals;
  }

  /// Where it admits, the lock is held until `settled()`.
  bool admits(allocation_request& r) noexcept override {
    lock_.lock();
    const std::int64_t live = ledger().process.live_now();
    bool is_admitted = true;
    for (process_limit* l = newest_; l != nullptr; l = l->older) {
      if (has_room(live, l->ceiling, r.bytes, r.replaced_bytes)) continue;
      ++l->refusals;
      is_admitted = false;
    }
    if (!is_admitted) lock_.unlock();
    return is_admitted;
  }
  void settled() noexcept override { lock_.unlock(); }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) return lock_.lock();
    if (moment == fork_moment::after_in_child) {
      // Those of threads that the child lacks would never end.
      for (process_limit** at = &newest_; *at != nullptr;) {
        if ((*at)->thread == os::thread_mark()) {
          at = &(*at)->older;
        } else {
          *at = (*at)->older;
        }
      }
      if (newest_ == nullptr) stop();
    }
    lock_.unlock();
  }

 private:
  static void stop() noexcept {
    if (ledger().process_keeper.exchange(nullptr) != nullptr) ledger().guard_all(false);
  }

  spin_lock lock_;
  process_limit* newest_ = nullptr;
};

}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
