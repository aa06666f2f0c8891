// SPDX-License-Identifier: MIT
// The contract of sys/process about the resident set (see resident_linux.hpp) where nothing is known: reasons.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

struct resident_now {
  std::int64_t resident = 0;
  std::int64_t mark = 0;
};

[[nodiscard]] inline const char* read_resident(resident_now&) noexcept {
  return "the resident set is read on Linux only so far";
}
[[nodiscard]] inline const char* reset_mark() noexcept { return "the high-water mark is reset on Linux only so far"; }
[[nodiscard]] inline std::int64_t resident_error_bytes() noexcept { return 0; }

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
