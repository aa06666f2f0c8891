// SPDX-License-Identifier: MIT
// The contract of own_process_linux.hpp where no driver is asked: nothing is known.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

[[nodiscard]] inline bool is_first_pid_namespace() noexcept { return false; }
[[nodiscard]] inline bool is_process_here(std::uint64_t) noexcept { return false; }
[[nodiscard]] inline bool is_forked_without_exec() noexcept { return false; }

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
