// SPDX-License-Identifier: MIT
// The contract: steady_ns() is a clock that never goes back, in nanoseconds from an unspecified start. <chrono> has the
// same clock and 20k lines more.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <time.h>
#else
  #include <chrono>
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline std::int64_t steady_ns() noexcept {
#if TIDEMARK_HAS_POSIX()
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
#else
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
#endif
}

/// Gives up the processor for about that long. No thread is cancelled in it. Units: nanoseconds, less than a second.
inline void pause_ns(long nanoseconds) noexcept {
#if TIDEMARK_HAS_POSIX()
  const no_cancellation whole;
  const timespec t{0, nanoseconds};
  nanosleep(&t, nullptr);
#else
  static_cast<void>(nanoseconds);
#endif
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
