// SPDX-License-Identifier: MIT
// One device, asked: of which source its memory, its pools and what this process holds are told, and who is told of an
// answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/gpu/detail/ask.hpp>
#include <tidemark/gpu/detail/device_list.hpp>
#include <tidemark/gpu/detail/device_registry.hpp>
#include <tidemark/gpu/detail/drm_figures.hpp>
#include <tidemark/gpu/detail/drm_linux.hpp>
#include <tidemark/gpu/detail/drm_unknown.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/own_process_linux.hpp>
#include <tidemark/gpu/detail/own_process_unknown.hpp>
#include <tidemark/gpu/detail/system_memory.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// A device as a query names it: copies, for a call that may outlive its caller.
struct queried_device {
  device_key key;
  std::string_view driver;  // a literal, or interned
  figure is_unified;

  [[nodiscard]] bool is_of_kernel() const noexcept { return driver == "amdgpu" || driver == "i915" || driver == "xe"; }
  /// Of a driver that nobody here knows: the user's own device.
  [[nodiscard]] bool is_foreign() const noexcept {
    const std::string_view kind = std::string_view(key.uuid).substr(0, 4);
    return !is_of_kernel() && driver != "nvidia" && kind != "GPU-" && kind != "MIG-";
  }
  [[nodiscard]] drm_listed of_kernel() const {
    drm_listed d;
    d.uuid = key.uuid;
    d.pci_address = key.pci_address;
    d.driver = driver;
    d.is_unified = is_unified;
    return d;
  }
  [[nodiscard]] std::string_view identity() const noexcept { return identity_of(key.uuid, key.pci_address); }
};

/// A device that was listed. Throws: `std::bad_alloc`.
[[nodiscard]] inline queried_device query_of(const device_state& s) {
  const quiet hidden;
  queried_device q;
  q.key = {std::string(s.uuid), std::string(s.pci_address), s.is_mig_parent};
  q.driver = s.driver;
  q.is_unified = s.is_unified;
  return q;
}

inline constexpr const char* is_foreign_device =
    "not_supported: no driver is known for this device; what the program allocates there goes to gpu::domain_of()";

inline namespace TIDEMARK_ERROR_TAG {

[[nodiscard]] inline const char* read_nvidia_memory(driver_state& s, const device_key& key, memory_figures& found) {
  const char* why = s.nvml.open();
  if (why == nullptr) why = s.nvml.memory(key, found);
  if (why == nullptr || has_code(why, "mig_parent") || has_code(why, "device_lost")) return why;
  // What NVML does not tell CUDA may; then the memory is the system's, or there is no NVML.
  if (s.cuda.memory(key, found) == nullptr) return nullptr;
  if (has_code(why, "not_supported") && read_system_memory(found) == nullptr) return nullptr;
  return why;
}

[[nodiscard]] inline const char* read_memory_now(const queried_device& d, memory_figures& found) {
  const quiet hidden;
  if (d.is_of_kernel()) return read_drm_memory(d.of_kernel(), found);
  if (d.is_foreign()) return is_foreign_device;
  return ask_driver(found, [key = d.key](driver_state& s, memory_figures& f) { return read_nvidia_memory(s, key, f); });
}

/// How old a reading may be that nobody draws a line at: a query is a call of the driver.
inline constexpr std::int64_t recent_ns = 1'000'000;

/// Asks the device, unless it was asked just now and `must_be_new` is not set, and tells the windows that are open.
[[nodiscard]] inline const char* read_memory(const queried_device& d, bool must_be_new, memory_figures& found) {
  if (const char* why = why_off()) return why;
  device_registry* const all = registry<device_registry>();
  device_node* const node = all == nullptr || d.identity().empty() ? nullptr : all->find(d.identity());
  const std::int64_t now = os::steady_ns();
  const char* why = nullptr;
  if (!must_be_new && node != nullptr && all->recent(*node, now - recent_ns, found, why)) return why;
  why = read_memory_now(d, found);
  if (node != nullptr) all->note(*node, found, why, now);
  return why;
}

[[nodiscard]] inline const char* read_process(const queried_device& d, figure& found) {
  if (const char* why = why_off()) return why;
  const quiet hidden;
  if (d.is_of_kernel()) return read_drm_process(d.of_kernel(), found);
  if (d.is_foreign()) return is_foreign_device;
  const bool is_outermost = is_first_pid_namespace();
  return ask_driver(found, [key = d.key, pid = os::process_id(), is_outermost](driver_state& s, figure& f) {
    const char* const why = s.nvml.open();
    return why != nullptr ? why : s.nvml.process_memory(key, pid, is_outermost, is_process_here, f);
  });
}

/// Which pool.
enum class pool_kind { of_stream, of_graphs };

/// What is read before the marks are reset, and after.
struct pool_answer {
  pool_figures before, after;
};

[[nodiscard]] inline const char* read_pool(const queried_device& d, pool_kind kind, bool must_reset,
                                           pool_answer& found) {
  if (const char* why = why_off()) return why;
  const quiet hidden;
  if (d.is_of_kernel() || d.is_foreign()) return "not_supported: memory pools are read of NVIDIA's devices only";
  if (d.key.is_mig_parent) return is_divided;
  return ask_driver(found, [key = d.key, kind, must_reset](driver_state& s, pool_answer& a) {
    const auto read = [&](pool_figures& f, bool reset) {
      return kind == pool_kind::of_stream ? s.cuda.pool(key, f, reset) : s.cuda.graphs(key, f, reset);
    };
    const char* why = read(a.before, must_reset);
    if (why == nullptr && must_reset) why = read(a.after, false);
    return why;
  });
}

/// Lists the devices anew, for those who ask by an ordinal.
[[nodiscard]] inline const char* refresh(std::vector<listed_device>& found) {
  const quiet hidden;
  if (const char* why = list_devices(found)) return why;
  device_registry* const all = registry<device_registry>();
  if (all == nullptr) return nullptr;
  bool has_nvidia = false;
  for (const listed_device& d : found) has_nvidia = has_nvidia || d.driver == "nvidia";
  struct change {
    device_node* node;
    device_state state;
  };
  std::vector<change> changes;
  for (const listed_device& d : found) {
    device_node* const node = all->find(identity_of(d.uuid, d.pci_address));
    if (node == nullptr) continue;
    const int place = static_cast<int>(&d - found.data());
    changes.push_back({node,
                       {intern(d.uuid), intern(d.pci_address), d.driver, d.is_mig_parent, d.is_unified,
                        has_nvidia ? d.ordinal : place, d.why_no_ordinal}});
  }
  // At once, for whoever looks a device up meanwhile.
  all->with_lock([&] {
    all->for_each([](device_node& d) {
      d.state.ordinal = -1;
      d.state.why_no_ordinal = "device_lost: the device is no longer listed";
    });
    for (const change& c : changes) c.node->state = c.state;
  });
  return nullptr;
}

/// The device that is visible as `ordinal`: among CUDA's where there are any of NVIDIA's, otherwise its place in the
/// list.
[[nodiscard]] inline const char* find_visible(int ordinal, queried_device& found, device_node*& node) {
  device_registry* const all = registry<device_registry>();
  if (all == nullptr) return no_memory;
  const char* why_none = nullptr;
  const auto look = [&] {
    node = nullptr;
    why_none = nullptr;
    device_state state;
    all->for_each([&](device_node& d) {
      if (d.state.ordinal == ordinal && !d.state.driver.empty()) {
        node = &d;
        state = d.state;
      } else if (has_code(d.state.why_no_ordinal, "cuda_not_initialised")) {
        why_none = d.state.why_no_ordinal;
      }
    });
    if (node != nullptr) found = query_of(state);
    return node != nullptr;
  };
  if (look()) return nullptr;
  std::vector<listed_device> listed;
  if (const char* why = refresh(listed)) return why;
  if (look()) return nullptr;
  return why_none != nullptr ? why_none : "no_device: no device is visible under this ordinal";
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
