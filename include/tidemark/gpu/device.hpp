// SPDX-License-Identifier: MIT
// The GPUs of this machine and their memory, asked of drivers that are found at run time: no link flag, no vendor's
// headers.
//
//   if (const auto all = tidemark::gpu::devices()) {
//     for (const tidemark::gpu::device& d : *all) use(d.name, tidemark::gpu::memory(d).used_bytes);
//   }
//
// Asking initialises NVML, never CUDA, and creates no context. docs/gpu.md lists the sources and the reasons.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/gpu/detail/device_list.hpp>
#include <tidemark/gpu/detail/device_query.hpp>
#include <tidemark/gpu/detail/device_registry.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/settings.hpp>

namespace tidemark {
inline namespace v0 {
namespace gpu {

/// A device. Its UUID tells it from all others, or its address where it has none. A user may make one for a device of
/// another vendor, to feed its domain.
struct device {
  std::string uuid;         ///< "GPU-...", "MIG-..."; empty where the driver gives it none
  std::string name;         ///< as the driver calls it
  std::string pci_address;  ///< as Linux writes it, "0000:3b:00.0"; empty where the source has none
  reading<bool> unified = reading<bool>::absent("not_supported: nothing says so");  ///< it shares the system's memory
  /// Under CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; absent where it is hidden, or not known before CUDA is
  /// initialised.
  reading<int> cuda_ordinal = reading<int>::absent("not_supported: not a device of CUDA's");
  std::string_view driver = "";  ///< "nvidia", "amdgpu", "i915" or "xe"; kept for ever
  std::string parent_uuid = {};  ///< of a MIG instance: the GPU that it is a part of
  bool is_mig_parent = false;    ///< divided into MIG instances, which are listed after it
};

/// A device's memory, of all processes. Units: bytes.
struct device_memory {
  using bytes = reading<std::int64_t>;

  bytes total_bytes = bytes::absent("not read");
  /// As the source says: total minus used would count `reserved_bytes` as free.
  bytes free_bytes = bytes::absent("not read");
  /// By processes; of drivers that do not tell them apart, `reserved_bytes` too.
  bytes used_bytes = bytes::absent("not read");
  bytes reserved_bytes = bytes::absent("not read");  ///< by the driver and the firmware
  /// System memory that an AMD device may use (GTT); of a unified one it is in the others too.
  bytes shared_total_bytes = bytes::absent("not read");
  bytes shared_used_bytes = bytes::absent("not read");
  std::string_view source;  ///< "nvml", "cuda", "sysfs", "meminfo"; empty where nothing is known; kept for ever
};

}  // namespace gpu

namespace detail {
namespace driver {

[[nodiscard]] inline queried_device query_of(const gpu::device& d) {
  queried_device q;
  q.key = {d.uuid, d.pci_address, d.is_mig_parent};
  // A literal of a device that is listed; a user's may be anything.
  q.driver = d.driver == "nvidia"   ? "nvidia"
             : d.driver == "amdgpu" ? "amdgpu"
             : d.driver == "i915"   ? "i915"
             : d.driver == "xe"     ? "xe"
                                    : "";
  if (d.unified.has_value()) q.is_unified.set(*d.unified ? 1 : 0);
  return q;
}

[[nodiscard]] inline gpu::device told(listed_device&& d) {
  gpu::device made;
  made.uuid = std::move(d.uuid);
  made.name = std::move(d.name);
  made.pci_address = std::move(d.pci_address);
  made.parent_uuid = std::move(d.parent_uuid);
  made.driver = d.driver;
  made.is_mig_parent = d.is_mig_parent;
  made.unified = d.is_unified.is_known() ? reading<bool>(d.is_unified.value != 0)
                                         : reading<bool>::absent_because(d.is_unified.why);
  made.cuda_ordinal = d.ordinal >= 0 ? reading<int>(d.ordinal) : reading<int>::absent_because(d.why_no_ordinal);
  return made;
}

}  // namespace driver
}  // namespace detail

namespace gpu {
inline namespace TIDEMARK_ERROR_TAG {

/// The devices of NVIDIA's driver, and of amdgpu, i915 and xe. Absent without any driver, and while NVIDIA's does not
/// answer; empty where a driver has no device. A device that this user may not see is left out.
/// Threads: any. Cost: a driver's initialisation the first time, up to seconds. Throws: `std::bad_alloc`.
[[nodiscard]] inline reading<std::vector<device>> devices() {
  using result = reading<std::vector<device>>;
  if (const char* why = tidemark::detail::driver::why_off()) return result::absent_because(why);
  const quiet hidden;
  std::vector<tidemark::detail::driver::listed_device> listed;
  if (const char* why = tidemark::detail::driver::refresh(listed)) return result::absent_because(why);
  std::vector<device> all;
  all.reserve(listed.size());
  for (auto& d : listed) all.push_back(tidemark::detail::driver::told(std::move(d)));
  return all;
}

/// What the device's memory holds now. NVML is asked first, whose figures tell the driver's own part; where it cannot
/// say, CUDA if the program has a context there already, and the system's memory for a device that has none of its own.
/// Threads: any. Cost: a call of the driver, up to the deadline; an answer of the last millisecond is given again.
/// Throws: `std::bad_alloc`.
[[nodiscard]] inline device_memory memory(const device& d) {
  const quiet hidden;
  tidemark::detail::driver::memory_figures f;
  const char* const why = tidemark::detail::driver::read_memory(tidemark::detail::driver::query_of(d), false, f);
  if (why != nullptr) f.be_absent(why);
  return {f.total.told(),        f.free.told(),        f.used.told(), f.reserved.told(),
          f.shared_total.told(), f.shared_used.told(), f.source};
}

/// The account of what this program allocates on the device, external to the heap: fed by the user, or by
/// gpu/cuda_resource.hpp. One for each device, never destroyed. Threads: any.
/// Throws: `std::invalid_argument` for a device without a UUID and an address, `std::bad_alloc`.
[[nodiscard]] inline domain& domain_of(const device& d) {
  namespace driver = tidemark::detail::driver;
  const driver::queried_device asked = driver::query_of(d);
  if (asked.identity().empty()) {
    tidemark::detail::raise_invalid_argument("tidemark::gpu::domain_of: a device has a uuid or a pci_address");
  }
  auto* const all = tidemark::detail::registry<driver::device_registry>();
  driver::device_node* const node = all == nullptr ? nullptr : all->find(asked.identity());
  if (node == nullptr) tidemark::detail::raise_bad_alloc();
  std::atomic<void*>& mine = node->domains[TIDEMARK_HAS_EXCEPTIONS()];
  if (void* known = mine.load(std::memory_order_acquire)) return *static_cast<domain*>(known);  // pairs with the store
  const quiet hidden;
  const std::string name = "device " + (d.uuid.empty() ? d.pci_address : d.uuid);
  domain* made = nullptr;
  for (const domain& known : domains()) {  // another part of the program, with another type of the handle, has one
    if (node->domains[1 - TIDEMARK_HAS_EXCEPTIONS()].load(std::memory_order_acquire) != nullptr &&
        known.name() == name) {
      made = new domain(known);
      break;
    }
  }
  if (made == nullptr) made = new domain(name, domain_options{-1, nullptr, true});
  void* before = nullptr;
  if (mine.compare_exchange_strong(before, made, std::memory_order_acq_rel)) return *made;  // pairs with the load
  delete made;
  return *static_cast<domain*>(before);
}

/// How long a query may wait for the driver; 2 s at first. A call that takes longer goes on by itself, and queries say
/// "timeout" until it returns. Units: nanoseconds. Throws: `std::invalid_argument` for less than 1.
inline void set_driver_deadline_ns(std::int64_t nanoseconds) {
  if (nanoseconds < 1) {
    tidemark::detail::raise_invalid_argument("tidemark::gpu::set_driver_deadline_ns: a deadline is at least 1 ns");
  }
  constexpr std::int64_t a_day = std::int64_t{86'400} * 1'000'000'000;
  auto* const all = tidemark::detail::registry<tidemark::detail::driver::settings>();
  if (all == nullptr) tidemark::detail::raise_bad_alloc();
  all->deadline_ns.store(nanoseconds < a_day ? nanoseconds : a_day, std::memory_order_relaxed);  // counter only
}

}  // namespace TIDEMARK_ERROR_TAG

/// false: from now on every query is absent with "disabled: ...", no library is loaded and no thread is made; the
/// environment variable TIDEMARK_GPU=off does the same. Threads: any.
inline void allow_queries(bool allowed) noexcept {
  if (auto* all = tidemark::detail::registry<tidemark::detail::driver::settings>()) {
    all->is_off.store(!allowed, std::memory_order_relaxed);  // counter only
  }
}

}  // namespace gpu
}  // namespace v0
}  // namespace tidemark
