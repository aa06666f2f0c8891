// SPDX-License-Identifier: MIT
// The contract of sys/host (see host_linux.hpp) where nothing is known: a reason.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/host_figures.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline const char* read_host(host_figures& found) noexcept {
  found = host_figures();
  return "the memory of the host is read on Linux only so far";
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
