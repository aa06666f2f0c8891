// SPDX-License-Identifier: MIT
// The contract of sys/limit (see limit_linux.hpp) where nothing is known: reasons.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/limit_reading.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class limit_tracker {
 public:
  void read_all() noexcept {}
  void read_some() noexcept {}
  [[nodiscard]] memory_limit_reading found() const noexcept {
    constexpr const char* why = "limits of memory are read on Linux only so far";
    memory_limit_reading r;
    for (auto* const bytes : {&r.limit_bytes, &r.used_bytes, &r.headroom_bytes, &r.high_bytes, &r.oom_kills}) {
      *bytes = memory_limit_reading::bytes::absent_because(why);
    }
    r.some_pressure = r.full_pressure = memory_limit_reading::pressure::absent_because(why);
    r.not_seen = why;
    return r;
  }
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
