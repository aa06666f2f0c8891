// SPDX-License-Identifier: MIT
// The contract of sys/process about any process (see process_linux.hpp) where nothing is known: reasons.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/process_figures.hpp>

#if !TIDEMARK_HAS_LINUX()

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline constexpr char processes_unknown[] = "the memory of processes is read on Linux only so far";

[[nodiscard]] inline const char* read_status(std::int64_t, status_figures& found) noexcept {
  found = status_figures();
  return processes_unknown;
}
[[nodiscard]] inline const char* read_faults(std::int64_t, fault_figures&) noexcept { return processes_unknown; }
[[nodiscard]] inline const char* read_full(std::int64_t, full_figures&) noexcept { return processes_unknown; }
template <class F>
[[nodiscard]] const char* for_each_mapping_of(std::int64_t, F) {
  return processes_unknown;
}
[[nodiscard]] inline std::int64_t process_number(std::int64_t pid) noexcept {
  return pid == this_process_id ? -1 : pid;
}
[[nodiscard]] inline bool is_alive(std::int64_t) noexcept { return false; }
template <class F>
[[nodiscard]] const char* for_each_process(F) {
  return processes_unknown;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
