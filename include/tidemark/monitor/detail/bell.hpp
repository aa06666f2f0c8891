// SPDX-License-Identifier: MIT
// What wakes the threads of all monitors, and what a signal asks of whichever comes first.
#pragma once

#include <atomic>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/sys/detail/wake_linux.hpp>
#include <tidemark/sys/detail/wake_unknown.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Registry of what a monitor waits for besides its next sample. Every member is async-signal-safe.
class TIDEMARK_EXPORT monitor_bell {
 public:
  static constexpr std::uint64_t key = registry_key("monitor bell");

  os::wake_word word;

  /// Asks for a dump.
  void ask() noexcept {
    is_asked_.store(true, std::memory_order_release);  // pairs with answer()
    word.wake();
  }
  /// Makes the dump, if one was asked for.
  void answer() noexcept {
    if (!is_asked_.load(std::memory_order_relaxed)) return;                               // a hint
    auto* const make = make_.load(std::memory_order_acquire);                             // pairs with dump_by()
    if (make != nullptr && is_asked_.exchange(false, std::memory_order_acquire)) make();  // pairs with ask()
  }
  void dump_by(void (*make)() noexcept) noexcept {
    make_.store(make, std::memory_order_release);
  }  // pairs with answer()

  [[nodiscard]] bool has_dump() const noexcept { return make_.load(std::memory_order_relaxed) != nullptr; }  // a hint

  void on_fork(fork_moment) noexcept {}

 private:
  std::atomic<bool> is_asked_{false};
  std::atomic<void (*)() noexcept> make_{nullptr};
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
