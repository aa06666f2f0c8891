// SPDX-License-Identifier: MIT
// The contract of gpu/ about what the kernel tells without a driver's library, on Linux:
//   list_drm(found)                     the devices of amdgpu, i915 and xe; null, or why there is no list
//   read_drm_memory(device, found)      null, or why not
//   read_drm_process(device, found)     what this process holds there; null, or why not
// Source: Documentation/gpu/amdgpu/driver-misc.rst (mem_info_*), Documentation/gpu/drm-usage-stats.rst (fdinfo),
// drivers/gpu/drm/amd/amdkfd (kfd/proc, topology).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/gpu/detail/drm_figures.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/own_process_linux.hpp>
#include <tidemark/gpu/detail/system_memory.hpp>
#include <tidemark/sys/detail/process_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <algorithm>
  #include <cstddef>
  #include <cstdint>
  #include <string>
  #include <string_view>
  #include <utility>
  #include <vector>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// Calls `f(name)` for each entry of a folder below the root. False: it cannot be read.
template <class F>
[[nodiscard]] bool for_each_name(const os::system_path& path, F f) {
  os::folder_reader folder(path);
  if (folder.error() != 0) return false;
  while (const char* const name = folder.next()) f(std::string_view(name));
  return true;
}

/// A file that holds one number.
[[nodiscard]] inline bool read_number(const os::system_path& path, std::uint64_t& number) noexcept {
  char buffer[64];
  std::string_view text;
  if (os::system_file(path).read_all(buffer, text) != 0) return false;
  return os::take_number(text, number);
}

// ---- the devices ----

[[nodiscard]] inline bool is_card(std::string_view name) noexcept {
  if (!os::take_prefix(name, "card") || name.empty()) return false;
  return name.find_first_not_of("0123456789") == std::string_view::npos;  // "card0-HDMI-A-1" is a connector
}

/// What "DRIVER=" and "PCI_SLOT_NAME=" in the device's uevent file say.
inline void read_uevent(std::string_view card, std::string& driver, std::string& address) {
  const os::system_file file(os::system_path("/sys/class/drm/", card, "/device/uevent"));
  os::line_reader<1'024> lines(file);
  std::string_view line;
  while (lines.next(line)) {
    if (os::take_prefix(line, "DRIVER=")) driver = line;
    if (os::take_prefix(line, "PCI_SLOT_NAME=")) address = linux_pci_address(line);
  }
}

[[nodiscard]] inline std::string text_of_card(std::string_view card, std::string_view file) {
  char buffer[128];
  std::string_view text;
  if (os::system_file(os::system_path("/sys/class/drm/", card, "/device/", file)).read_all(buffer, text) != 0)
    return {};
  return std::string(text.substr(0, text.find('\n')));
}

[[nodiscard]] inline bool read_card(std::string_view card, std::string_view file, std::uint64_t& number) noexcept {
  return read_number(os::system_path("/sys/class/drm/", card, "/device/", file), number);
}

/// Whether an amdgpu device is a part of the processor. The kernel does not say; a small carve-out and a larger part of
/// the system's memory do.
inline void judge_amdgpu(std::string_view card, figure& is_unified) noexcept {
  constexpr std::uint64_t carve_out = std::uint64_t{1} << 30;
  std::uint64_t vram = 0;
  std::uint64_t gtt = 0;
  if (!read_card(card, "mem_info_vram_total", vram) || !read_card(card, "mem_info_gtt_total", gtt)) {
    is_unified.why = "not_supported: this kernel's amdgpu does not tell the device's memory";
  } else if (gtt <= vram) {
    is_unified.set(0);
  } else if (vram < carve_out) {
    is_unified.set(1);
  } else {
    is_unified.why = "not_supported: amdgpu does not say whether the device shares the system's memory";
  }
}

[[nodiscard]] inline const char* list_drm(std::vector<drm_listed>& found) {
  std::vector<std::string> cards;
  const bool is_there = for_each_name(os::system_path("/sys/class/drm"), [&](std::string_view name) {
    if (is_card(name)) cards.emplace_back(name);
  });
  if (!is_there) return "no_library: /sys/class/drm cannot be read";
  for (const std::string& card : cards) {
    drm_listed d;
    std::string driver;
    read_uevent(card, driver, d.pci_address);
    d.driver = driver == "amdgpu" ? "amdgpu" : driver == "i915" ? "i915" : driver == "xe" ? "xe" : "";
    if (d.driver.empty() || d.pci_address.empty()) continue;
    if (d.driver == "amdgpu") {
      const std::string id = text_of_card(card, "unique_id");
      if (!id.empty() && id.find_first_not_of('0') != std::string::npos) d.uuid = "GPU-" + id;
      d.name = text_of_card(card, "product_name");
      judge_amdgpu(card, d.is_unified);
    } else {
      d.is_unified.set(d.pci_address == "0000:00:02.0" ? 1 : 0);  // where Intel's processors have their own
    }
    if (d.name.empty()) {
      d.name = (d.driver == "amdgpu" ? "AMD GPU " : "Intel GPU ") + text_of_card(card, "device");
    }
    found.push_back(std::move(d));
  }
  std::sort(found.begin(), found.end(),
            [](const drm_listed& a, const drm_listed& b) { return a.pci_address < b.pci_address; });
  return nullptr;
}

/// The card with that address; empty where there is none (any more).
[[nodiscard]] inline std::string card_at(std::string_view pci_address) {
  std::string card;
  static_cast<void>(for_each_name(os::system_path("/sys/class/drm"), [&](std::string_view name) {
    std::string driver;
    std::string address;
    if (!is_card(name)) return;
    read_uevent(name, driver, address);
    if (address == pci_address && !driver.empty()) card = name;
  }));
  return card;
}

// ---- memory ----

[[nodiscard]] inline const char* read_drm_memory(const drm_listed& device, memory_figures& found) {
  const std::string card = card_at(device.pci_address);
  if (card.empty()) return "device_lost: /sys/class/drm has no device with this PCI address (any more)";
  if (device.driver != "amdgpu") {
    if (device.is_unified.is_known() && device.is_unified.value == 1) return read_system_memory(found);
    return "not_supported: the kernel tells an Intel device's memory per process only";
  }
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  if (!read_card(card, "mem_info_vram_total", total) || !read_card(card, "mem_info_vram_used", used)) {
    return "not_supported: this kernel's amdgpu has no mem_info_vram_total and mem_info_vram_used";
  }
  found.be_absent("not_supported: amdgpu has no such figure");
  std::uint64_t shared_total = 0;
  std::uint64_t shared_used = 0;
  if (read_card(card, "mem_info_gtt_total", shared_total)) found.shared_total.set(shared_total);
  if (read_card(card, "mem_info_gtt_used", shared_used)) found.shared_used.set(shared_used);
  // Where both are parts of the system's memory, a program gets either.
  const bool is_unified = device.is_unified.is_known() && device.is_unified.value == 1;
  if (is_unified && found.shared_total.is_known() && found.shared_used.is_known()) {
    total += shared_total;
    used += shared_used;
  }
  found.total.set(total);
  found.used.set(used);
  if (used <= total) found.free.set(total - used);
  found.source = "sysfs";
  return nullptr;
}

// ---- this process ----

/// One open descriptor of a device, as its fdinfo file describes it.
struct drm_client {
  std::string address;
  std::uint64_t id = 0;
  bool has_id = false;
  std::vector<drm_region> regions;
};

[[nodiscard]] inline drm_client read_client(std::string_view descriptor) {
  drm_client c;
  const os::system_file file(os::system_path("/proc/self/fdinfo/", descriptor));
  os::line_reader<1'024> lines(file);
  std::string_view line;
  while (lines.next(line)) {
    if (os::take_prefix(line, "drm-pdev:")) {
      c.address = linux_pci_address(os::take_word(line));
    } else if (os::take_prefix(line, "drm-client-id:")) {
      c.has_id = os::take_number(line, c.id);
    } else {
      note_region(line, c.regions);
    }
  }
  return c;
}

[[nodiscard]] inline const char* read_fdinfo(const drm_listed& device, figure& found) {
  std::vector<std::string> descriptors;
  const bool is_there = for_each_name(os::system_path("/proc/self/fd"), [&](std::string_view name) {
    char buffer[512];
    std::string_view link = read_link(os::system_path("/proc/self/fd/", name), buffer);
    if (os::take_prefix(link, "/dev/dri/")) descriptors.emplace_back(name);
  });
  if (!is_there) return "not_supported: /proc/self/fd cannot be read: is /proc mounted?";
  const bool counts_shared = device.is_unified.is_known() && device.is_unified.value == 1;
  std::vector<std::uint64_t> seen;
  std::uint64_t sum = 0;
  bool is_old = false;
  for (const std::string& descriptor : descriptors) {
    const drm_client c = read_client(descriptor);
    if (c.address.empty()) is_old = true;  // of which device, it does not say
    if (c.address != device.pci_address) continue;
    if (c.regions.empty()) is_old = true;
    if (c.has_id && std::find(seen.begin(), seen.end(), c.id) != seen.end()) continue;  // a duplicated descriptor
    if (c.has_id) seen.push_back(c.id);
    for (const drm_region& r : c.regions) {
      if (counts(r, counts_shared)) sum += r.bytes();
    }
  }
  if (sum == 0 && is_old)
    return "not_supported: this kernel's driver does not tell a process's memory (Linux 5.19 and later do)";
  found.set(sum);
  return found.why;
}

/// The number that KFD gives the device with this address. False: KFD does not know it.
[[nodiscard]] inline bool find_kfd_device(std::string_view pci_address, std::uint64_t& id) {
  bool is_found = false;
  static_cast<void>(for_each_name(os::system_path("/sys/class/kfd/kfd/topology/nodes"), [&](std::string_view node) {
    std::uint64_t gpu = 0;
    if (is_found || !read_number(os::system_path("/sys/class/kfd/kfd/topology/nodes/", node, "/gpu_id"), gpu) ||
        gpu == 0)
      return;
    const os::system_file file(os::system_path("/sys/class/kfd/kfd/topology/nodes/", node, "/properties"));
    os::line_reader<1'024> lines(file);
    std::string_view line;
    std::uint64_t domain = 0;
    std::uint64_t location = 0;
    while (lines.next(line)) {
      const std::string_view word = os::take_word(line);
      if (word == "domain") static_cast<void>(os::take_number(line, domain));
      if (word == "location_id") static_cast<void>(os::take_number(line, location));
    }
    if (pci_address_of(domain, location) != pci_address) return;
    id = gpu;
    is_found = true;
  }));
  return is_found;
}

/// The larger of what KFD says, which does not see graphics, and of fdinfo: each tells a part of what the process
/// holds.
[[nodiscard]] inline const char* read_drm_process(const drm_listed& device, figure& found) {
  figure of_fdinfo;
  const char* const why = read_fdinfo(device, of_fdinfo);
  std::uint64_t of_kfd = 0;
  std::uint64_t id = 0;
  const bool has_kfd = device.driver == "amdgpu" && is_first_pid_namespace() &&
                       find_kfd_device(device.pci_address, id) &&
                       read_number(os::system_path("/sys/class/kfd/kfd/proc/", os::process_id(), "/vram_", id), of_kfd);
  if (why != nullptr && !has_kfd) return why;
  const std::uint64_t other = why == nullptr ? static_cast<std::uint64_t>(of_fdinfo.value) : 0;
  found.set(has_kfd && of_kfd > other ? of_kfd : other);
  return found.why;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
