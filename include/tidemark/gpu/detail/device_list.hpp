// SPDX-License-Identifier: MIT
// The list of devices, put together of what NVML, CUDA and the kernel each know, and which of them CUDA numbers how.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/ask.hpp>
#include <tidemark/gpu/detail/cuda.hpp>
#include <tidemark/gpu/detail/drm_linux.hpp>
#include <tidemark/gpu/detail/drm_unknown.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/library_linux.hpp>
#include <tidemark/gpu/detail/library_unknown.hpp>
#include <tidemark/gpu/detail/nvml.hpp>
#include <tidemark/gpu/detail/visible_devices.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

inline constexpr const char* is_hidden = "hidden: CUDA does not show this program the device (CUDA_VISIBLE_DEVICES)";
inline constexpr const char* order_unknown =
    "cuda_not_initialised: CUDA orders its devices when it is initialised, fastest first; CUDA_DEVICE_ORDER=PCI_BUS_ID "
    "makes the order known before";
inline constexpr const char* instance_unknown =
    "cuda_not_initialised: which MIG instance CUDA takes is known when it is initialised, or from "
    "CUDA_VISIBLE_DEVICES=MIG-...";
inline constexpr const char* is_divided = "mig_parent: CUDA uses the GPU's MIG instances, not the whole";

struct listed_device {
  std::string uuid, name, pci_address, parent_uuid;
  std::string_view driver = "nvidia";  // a literal
  bool is_mig_parent = false;
  figure is_unified;  // 1 or 0
  int ordinal = -1;
  const char* why_no_ordinal = is_hidden;

  [[nodiscard]] bool is_mig_instance() const noexcept { return !parent_uuid.empty(); }
};

/// As CUDA itself numbers them.
inline void number_by_cuda(std::vector<listed_device>& all, const std::vector<cuda_listed>& visible) {
  for (std::size_t i = 0; i < visible.size(); ++i) {
    listed_device* match = nullptr;
    for (listed_device& d : all) {
      if (!d.uuid.empty() && bare_uuid(d.uuid) == bare_uuid(visible[i].uuid)) match = &d;
    }
    for (listed_device& d : all) {
      const bool is_at_address = !d.pci_address.empty() && d.pci_address == visible[i].pci_address;
      if (match == nullptr && is_at_address && !d.is_mig_parent && !d.is_mig_instance()) match = &d;
    }
    if (match == nullptr) continue;
    match->ordinal = static_cast<int>(i);
    if (visible[i].is_unified.is_known()) match->is_unified = visible[i].is_unified;
  }
}

/// As CUDA will number them, as far as the environment fixes it. `is_whole`: no device is missing in the list.
inline void number_by_environment(std::vector<listed_device>& all, bool is_whole, const char* visible,
                                  const char* order) {
  std::vector<listed_device*> physical;
  std::vector<listed_device*> instances;
  for (listed_device& d : all) (d.is_mig_instance() ? instances : physical).push_back(&d);
  const bool is_ordered =
      is_whole && (physical.size() == 1 || (order != nullptr && std::string_view(order) == "PCI_BUS_ID"));
  const visible_devices wanted = parse_visible_devices(visible);
  const bool by_uuid = wanted.is == visible_devices::kind::uuids;
  const bool by_instance = by_uuid && !wanted.uuids.empty() && wanted.uuids.front().substr(0, 4) == "MIG-";
  std::vector<listed_device*>& candidates = by_instance ? instances : physical;
  std::sort(candidates.begin(), candidates.end(),
            [](const listed_device* a, const listed_device* b) { return a->pci_address < b->pci_address; });
  const bool hides_all = wanted.is == visible_devices::kind::numbers && wanted.numbers.empty();
  if (!by_uuid && !hides_all && (!is_ordered || !instances.empty())) {
    for (listed_device& d : all) d.why_no_ordinal = instances.empty() ? order_unknown : instance_unknown;
    return;
  }
  std::vector<std::string_view> uuids;
  for (const listed_device* d : candidates) uuids.emplace_back(d->uuid);
  std::vector<std::size_t> chosen = visible_of(wanted, uuids);
  if (by_instance && chosen.size() > 1) chosen.resize(1);  // a process has one instance
  for (std::size_t i = 0; i < chosen.size(); ++i) candidates[chosen[i]]->ordinal = static_cast<int>(i);
}

inline namespace TIDEMARK_ERROR_TAG {

/// NVIDIA's devices. Runs on the driver thread. Null, or why there is no list.
[[nodiscard]] inline const char* list_nvidia(driver_state& s, std::vector<listed_device>& found) {
  nvml_list by_nvml;
  const char* why = s.nvml.open();
  if (why == nullptr) why = s.nvml.list(by_nvml);
  std::vector<cuda_listed> by_cuda;
  const char* const why_no_cuda = s.cuda.list(by_cuda);
  if (why != nullptr && (why_no_cuda != nullptr || by_cuda.empty())) return why;
  if (why != nullptr) {  // a container without NVML, or a Jetson
    for (std::size_t i = 0; i < by_cuda.size(); ++i) {
      listed_device d;
      d.uuid = by_cuda[i].uuid;
      d.name = by_cuda[i].name;
      d.pci_address = by_cuda[i].pci_address;
      d.is_unified = by_cuda[i].is_unified;
      d.ordinal = static_cast<int>(i);
      if (!d.uuid.empty() || !d.pci_address.empty()) found.push_back(std::move(d));
    }
    return nullptr;
  }
  if (by_nvml.devices.empty() && by_nvml.why != nullptr) return by_nvml.why;
  for (nvml_listed& n : by_nvml.devices) {
    listed_device d;
    d.uuid = std::move(n.uuid);
    d.name = std::move(n.name);
    d.pci_address = std::move(n.pci_address);
    d.parent_uuid = std::move(n.parent_uuid);
    d.is_mig_parent = n.is_mig_parent;
    d.is_unified = n.is_unified;
    found.push_back(std::move(d));
  }
  if (why_no_cuda == nullptr) {
    number_by_cuda(found, by_cuda);
  } else {
    number_by_environment(found, by_nvml.refused == 0, environment("CUDA_VISIBLE_DEVICES"),
                          environment("CUDA_DEVICE_ORDER"));
  }
  for (listed_device& d : found) {
    if (d.is_mig_parent) d.ordinal = -1;
    if (d.is_mig_parent) d.why_no_ordinal = is_divided;
  }
  return nullptr;
}

/// Every device. Null, or why there is no list: no driver at all, or one that is there and does not answer.
[[nodiscard]] inline const char* list_devices(std::vector<listed_device>& found) {
  const char* const why =
      ask_driver(found, [](driver_state& s, std::vector<listed_device>& list) { return list_nvidia(s, list); });
  const bool has_nvidia = why == nullptr;
  if (!has_nvidia && !has_code(why, "no_library") && !has_code(why, "driver_not_loaded")) return why;
  std::vector<drm_listed> drm;
  static_cast<void>(list_drm(drm));
  if (!has_nvidia && drm.empty()) return why;
  for (drm_listed& d : drm) {
    listed_device one;
    one.uuid = std::move(d.uuid);
    one.name = std::move(d.name);
    one.pci_address = std::move(d.pci_address);
    one.driver = d.driver;
    one.is_unified = d.is_unified;
    one.why_no_ordinal = "not_supported: not a device of CUDA's";
    found.push_back(std::move(one));
  }
  return nullptr;
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
