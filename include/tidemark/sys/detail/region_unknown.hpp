// SPDX-License-Identifier: MIT
// The contract of sys/region (see region_linux.hpp) where nothing is known: a reason.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/region_figures.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline const char* look_at_region(std::uint64_t, std::uint64_t, region_figures&) noexcept {
  return "what lies behind an address is read on Linux only so far";
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
