// SPDX-License-Identifier: MIT
// What a program sets about GPU drivers: how long a call may take, whether any is made, and, in tests, where libraries
// come from.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// How libraries and the environment are found. For tests; it lives on.
struct resolver {
  void* (*open)(const char* name, bool only_if_loaded);
  void* (*symbol)(void* library, const char* name);
  const char* (*environment)(const char* name);
};

/// Registry of the settings. Threads: any.
class TIDEMARK_EXPORT settings {
 public:
  static constexpr std::uint64_t key = registry_key("gpu settings");

  std::atomic<std::int64_t> deadline_ns{2'000'000'000};  // counter only
  std::atomic<bool> is_off{false};                       // counter only
  std::atomic<const resolver*> resolve{nullptr};         // stored with release, loaded with acquire

  void on_fork(fork_moment) noexcept {}
};

/// From now on libraries are found by `r`; null: by the system. For tests, before the first query.
inline void use_resolver(const resolver* r) noexcept {
  if (settings* all = registry<settings>())
    all->resolve.store(r, std::memory_order_release);  // pairs with resolver_in_use()
}

[[nodiscard]] inline const resolver* resolver_in_use() noexcept {
  const settings* all = find_registry<settings>();
  return all == nullptr ? nullptr : all->resolve.load(std::memory_order_acquire);  // pairs with use_resolver()
}

[[nodiscard]] inline std::int64_t deadline_ns() noexcept {
  const settings* all = find_registry<settings>();
  return all == nullptr ? 2'000'000'000 : all->deadline_ns.load(std::memory_order_relaxed);  // counter only
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
