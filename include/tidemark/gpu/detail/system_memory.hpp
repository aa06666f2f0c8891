// SPDX-License-Identifier: MIT
// The memory of a device that has none of its own: the system's.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/sys/host.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// Null, or why it is not known.
[[nodiscard]] inline const char* read_system_memory(memory_figures& found) {
  const host_memory_reading host = host_memory();
  if (!host.total_bytes || !host.available_bytes) {
    return "not_supported: the device has no memory of its own, and the system does not tell its (/proc/meminfo)";
  }
  found.be_absent("not_supported: the device's memory is the system's");
  found.total.set(static_cast<std::uint64_t>(*host.total_bytes));
  found.free.set(static_cast<std::uint64_t>(*host.available_bytes));
  if (host.used_bytes) found.used.set(static_cast<std::uint64_t>(*host.used_bytes));
  found.source = "meminfo";
  return nullptr;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
