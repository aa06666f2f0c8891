// SPDX-License-Identifier: MIT
// signal_posix.hpp's contract on a system without POSIX signals.
#pragma once

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_POSIX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline const char* handle_signal(int, void (*)() noexcept) noexcept {
  return "this system has no signals that tidemark can handle";
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
