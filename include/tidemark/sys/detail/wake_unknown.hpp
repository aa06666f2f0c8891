// SPDX-License-Identifier: MIT
// wake_linux.hpp's contract where no system call is known that a signal handler may wake others with: those who wait look
// again twenty times a second.
#pragma once

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_LINUX()

  #include <atomic>
  #include <chrono>
  #include <cstdint>
  #include <thread>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class wake_word {
 public:
  [[nodiscard]] std::uint32_t seen() const noexcept {
    return turn_.load(std::memory_order_acquire);
  }  // pairs with wake()

  void wake() noexcept { turn_.fetch_add(1, std::memory_order_release); }  // pairs with seen()

  void wait(std::uint32_t seen_before, std::int64_t ns) noexcept {
    constexpr std::int64_t step = 50'000'000;
    for (; ns > 0 && seen() == seen_before; ns -= step) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(ns < step ? ns : step));
    }
  }

 private:
  std::atomic<std::uint32_t> turn_{0};
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
