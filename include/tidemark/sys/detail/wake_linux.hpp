// SPDX-License-Identifier: MIT
// The contract: a wake_word lets threads sleep, and anyone wake them, also a signal handler.
//   seen()            what to wait for a change of
//   wake()            every thread that waits goes on; async-signal-safe
//   wait(seen, ns)    returns once woken after `seen()`, after about that long, or now and then for nothing
// The time is relative and of the steady clock, which stands still while the machine is suspended. errno is untouched.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <atomic>
  #include <cerrno>
  #include <cstdint>

  #include <linux/futex.h>
  #include <sys/syscall.h>
  #include <time.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class wake_word {
 public:
  [[nodiscard]] std::uint32_t seen() const noexcept {
    return turn_.load(std::memory_order_acquire);
  }  // pairs with wake()

  void wake() noexcept {
    turn_.fetch_add(1, std::memory_order_release);  // pairs with seen()
    const int saved = errno;
    ::syscall(SYS_futex, &turn_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, nullptr, nullptr, 0);
    errno = saved;
  }

  void wait(std::uint32_t seen, std::int64_t ns) noexcept {
    const no_cancellation whole;
    const int saved = errno;
    timespec time{};
    time.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    time.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    ::syscall(SYS_futex, &turn_, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, &time, nullptr, 0);
    errno = saved;
  }

 private:
  static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
                "a futex is a plain 32-bit word");
  std::atomic<std::uint32_t> turn_{0};
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
