// SPDX-License-Identifier: MIT
// The contract of driver_thread_linux.hpp where no driver is called: a reason.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/driver_state.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

[[nodiscard]] inline const char* run_on_driver_thread(job&, bool& is_left_behind) noexcept {
  is_left_behind = false;
  return "no_library: GPU drivers are called on Linux only so far";
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
