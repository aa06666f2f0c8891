// SPDX-License-Identifier: MIT
// What this process holds of a device's memory, as the driver or the kernel charges it.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/gpu/detail/device_query.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/device.hpp>

namespace tidemark {
inline namespace v0 {
namespace gpu {
inline namespace TIDEMARK_ERROR_TAG {

/// The bytes of this process on the device, its context and libraries included; managed memory that is not on the
/// device is not. 0 where the process is known to have nothing there. NVML's list of processes; for amdgpu, i915 and xe
/// the kernel's fdinfo, for amdgpu KFD where that says more. In a container NVML's list mostly cannot be read:
/// "pid_namespace".
/// Threads: any. Cost: two calls of the driver or more, up to the deadline; fdinfo: microseconds for each descriptor of
/// a GPU.
/// Throws: `std::bad_alloc`.
[[nodiscard]] inline reading<std::int64_t> process_memory(const device& d) {
  const quiet hidden;
  tidemark::detail::driver::figure f;
  if (const char* why = tidemark::detail::driver::read_process(tidemark::detail::driver::query_of(d), f)) {
    return reading<std::int64_t>::absent_because(why);
  }
  return f.told();
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace gpu
}  // namespace v0
}  // namespace tidemark
