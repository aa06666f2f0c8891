// SPDX-License-Identifier: MIT
// The contract of drm_linux.hpp where there is no /sys: reasons.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/drm_figures.hpp>
#include <tidemark/gpu/detail/figures.hpp>

#if !TIDEMARK_HAS_LINUX()

  #include <cstdint>
  #include <vector>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

inline constexpr const char* drm_is_of_linux = "no_library: GPUs are read on Linux only so far";

[[nodiscard]] inline const char* list_drm(std::vector<drm_listed>&) { return drm_is_of_linux; }
[[nodiscard]] inline const char* read_drm_memory(const drm_listed&, memory_figures&) { return drm_is_of_linux; }
[[nodiscard]] inline const char* read_drm_process(const drm_listed&, figure&) { return drm_is_of_linux; }

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
