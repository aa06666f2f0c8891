// SPDX-License-Identifier: MIT
// The memory pools of a device: what cudaMallocAsync takes from, and what CUDA graphs keep. The driver keeps their
// high-water marks, which miss nothing.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/gpu/detail/device_query.hpp>
#include <tidemark/gpu/detail/device_registry.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/device.hpp>

namespace tidemark {
inline namespace v0 {
namespace gpu {

/// A pool, of the whole process. Units: bytes.
struct pool_memory {
  using bytes = reading<std::int64_t>;

  bytes reserved_bytes = bytes::absent("not read");  ///< what the pool took from the device
  /// The highest since the program began, or since the mark was reset.
  bytes reserved_peak_bytes = bytes::absent("not read");
  bytes used_bytes = bytes::absent("not read");       ///< what is allocated from the pool
  bytes used_peak_bytes = bytes::absent("not read");  ///< as `reserved_peak_bytes`
};

}  // namespace gpu

namespace detail {
namespace driver {
inline namespace TIDEMARK_ERROR_TAG {

[[nodiscard]] inline gpu::pool_memory pool_of(const gpu::device& d, pool_kind kind, bool must_reset) {
  const quiet hidden;
  pool_answer a;
  const queried_device asked = query_of(d);
  if (const char* why = read_pool(asked, kind, must_reset, a)) {
    a.before.be_absent(why);
  } else if (must_reset && kind == pool_kind::of_stream) {
    device_registry* const all = registry<device_registry>();
    device_node* const node = all == nullptr ? nullptr : all->find(asked.identity());
    if (node != nullptr) all->note_reset(*node, a.before, a.after);
  }
  return {a.before.reserved.told(), a.before.reserved_peak.told(), a.before.used.told(), a.before.used_peak.told()};
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail

namespace gpu {
inline namespace TIDEMARK_ERROR_TAG {

/// The pool that cudaMallocAsync takes from. Absent before the program itself has initialised CUDA and has a context
/// there. cudaMalloc, and PyTorch's own allocator, use no pool. Threads: any. Cost: some calls of the driver, up to the
/// deadline.
/// Throws: `std::bad_alloc`.
[[nodiscard]] inline pool_memory memory_pool(const device& d) {
  return tidemark::detail::driver::pool_of(d, tidemark::detail::driver::pool_kind::of_stream, false);
}

/// The same for what CUDA graphs allocate.
[[nodiscard]] inline pool_memory graph_pool(const device& d) {
  return tidemark::detail::driver::pool_of(d, tidemark::detail::driver::pool_kind::of_graphs, false);
}

/// Both high marks start again at what is current; returned is what they were. The pool is the whole process's: whoever
/// else reads the marks is disturbed. The windows of `meter::device_pool` are told before; what rises between the two
/// calls of the driver is lost.
inline pool_memory reset_pool_peak(const device& d) {
  return tidemark::detail::driver::pool_of(d, tidemark::detail::driver::pool_kind::of_stream, true);
}

/// The same for what CUDA graphs allocate.
inline pool_memory reset_graph_pool_peak(const device& d) {
  return tidemark::detail::driver::pool_of(d, tidemark::detail::driver::pool_kind::of_graphs, true);
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace gpu
}  // namespace v0
}  // namespace tidemark
