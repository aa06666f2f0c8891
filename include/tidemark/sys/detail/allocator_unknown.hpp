// SPDX-License-Identifier: MIT
// The contract of sys/allocator (see allocator_linux.hpp) where nothing is known: reasons.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/allocator_figures.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline constexpr char allocators_unknown[] = "the allocator is asked on Linux only so far";

inline void ask_allocator(allocator_figures& found) noexcept {
  found.why_no_kind = found.why_no_in_use = found.why_no_retained = allocators_unknown;
}
[[nodiscard]] inline const char* give_back() noexcept { return allocators_unknown; }

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
