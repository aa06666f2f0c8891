// SPDX-License-Identifier: MIT
// The contract of library_linux.hpp where no driver is loaded: reasons.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/settings.hpp>

#if !TIDEMARK_HAS_LINUX()

  #include <cstdlib>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

[[nodiscard]] inline const char* why_no_loader() noexcept {
  return "no_library: GPU drivers are loaded on Linux only so far";
}
[[nodiscard]] inline void* open_library(const char*, bool) noexcept { return nullptr; }
[[nodiscard]] inline void* find_symbol(void*, const char*) noexcept { return nullptr; }
[[nodiscard]] inline const char* environment(const char* name) noexcept {
  const resolver* const r = resolver_in_use();
  return r != nullptr && r->environment != nullptr ? r->environment(name) : nullptr;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
