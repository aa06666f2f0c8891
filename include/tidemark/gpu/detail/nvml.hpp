// SPDX-License-Identifier: MIT
// NVIDIA's management library, found at run time. Used by the driver thread alone.
// Source: nvml.h (API 13). Symbols without a suffix are the first ABI: the vendor's header renames calls by macro, the
// library does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/gpu/detail/abi.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/library_linux.hpp>
#include <tidemark/gpu/detail/library_unknown.hpp>
#include <tidemark/gpu/detail/symbol.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// A device as NVML lists it.
struct nvml_listed {
  std::string uuid, name, pci_address, parent_uuid;
  bool is_mig_parent = false;
  bool is_mig_instance = false;
  figure is_unified;  // 1 or 0
};

struct nvml_list {
  std::vector<nvml_listed> devices;
  int refused = 0;            // counted, and not to be had
  const char* why = nullptr;  // of the last that was refused for another reason than permissions
};

inline namespace TIDEMARK_ERROR_TAG {

class nvml_library {
 public:
  /// Loaded and started. Null, or why not. What fails is tried again a second later: loading reads folders, and the
  /// driver's start may run a program to load its kernel module.
  [[nodiscard]] const char* open() {
    constexpr std::int64_t patience_ns = 1'000'000'000;
    if (is_started_) return nullptr;
    const std::int64_t now = os::steady_ns();
    if (why_not_open_ == nullptr || now - tried_ns_ >= patience_ns) {
      tried_ns_ = now;
      why_not_open_ = start();
    }
    return why_not_open_;
  }

  /// Null, or why there is no list.
  [[nodiscard]] const char* list(nvml_list& found) {
    std::uint32_t count = 0;
    if (!count_ || !by_index_) return no_symbol("nvmlDeviceGetCount");
    if (const int answer = count_(&count)) return why_not(answer);
    constexpr std::uint32_t most = 256;  // a count may lie
    for (std::uint32_t i = 0; i < count && i < most; ++i) {
      nvml_device handle = nullptr;
      if (const int answer = by_index_(i, &handle)) {
        ++found.refused;
        if (answer != nvml_no_permission && answer != nvml_invalid_argument) found.why = why_not(answer);
        continue;
      }
      add(found, handle);
    }
    return nullptr;
  }

  /// Null, or why not.
  [[nodiscard]] const char* memory(const device_key& device, memory_figures& found) {
    nvml_device handle = nullptr;
    if (const char* why = find(device, handle)) return why;
    found.be_absent("not_supported: NVML has no such figure");
    const int answer = read_memory(handle, found);
    if (answer == nvml_success) {
      found.source = "nvml";
      return nullptr;
    }
    forget_handles();  // a device that was lost and came back has another
    if (answer == nvml_no_permission && device.is_mig_parent) return mig_parent;
    return why_not(answer);
  }

  /// What the process with this number uses. Null, or why it is not known. `is_here(pid)` says whether that number is a
  /// process in this pid namespace; `is_outermost` that the namespace is the system's first.
  template <class IsHere>
  [[nodiscard]] const char* process_memory(const device_key& device, std::uint64_t process, bool is_outermost,
                                           IsHere is_here, figure& found) {
    if (device.is_mig_parent) return "mig_parent: ask the MIG instances, which are devices of their own";
    nvml_device handle = nullptr;
    if (const char* why = find(device, handle)) return why;
    std::vector<nvml_process_v1> all;
    if (const int answer = list_processes(handle, all)) {
      forget_handles();
      return answer == list_grows ? "driver_error: the list of processes grew each time it was asked for"
                                  : why_not(answer);
    }
    bool is_listed = false;
    bool is_foreign = false;
    std::uint64_t most = 0;
    bool is_told = false;
    for (const nvml_process_v1& p : all) {
      is_foreign = is_foreign || (!is_outermost && !is_here(p.pid));
      if (p.pid != process) continue;
      is_listed = true;
      if (p.used == nvml_not_available) continue;
      is_told = true;
      if (p.used > most) most = p.used;  // one process may be in the lists of compute, graphics and MPS
    }
    if (!is_outermost && (!is_listed || is_foreign)) {
      return "pid_namespace: the driver lists processes by the numbers that the host gives them, and this process does "
             "not learn its own in a container";
    }
    if (is_listed && !is_told) {
      return "not_available_wddm: the driver does not say what a process uses (under WDDM and WSL2 it never does)";
    }
    found.set(most);  // not listed: it has no context on the device
    return found.why;
  }

  /// The reason for an answer of NVML's.
  [[nodiscard]] const char* why_not(int answer) {
    switch (answer) {
      case nvml_uninitialized:
        is_started_ = false;
        forget_handles();
        return "driver_error: something else in the program shut NVML down; it is started again at the next question";
      case nvml_not_supported:
        return "not_supported: NVML does not answer this for the device";
      case nvml_no_permission:
        return "no_permission: NVML does not answer this to this user";
      case nvml_driver_not_loaded:
        return "driver_not_loaded: the library is there, but NVIDIA's kernel driver is not loaded";
      case nvml_timeout:
        return "timeout: NVML itself gave up waiting";
      case nvml_library_not_found:
        return "no_library: NVML lacks a library that it needs";
      case nvml_function_not_found:
        return "no_symbol: the driver is older than the question";
      case nvml_gpu_is_lost:
        return "device_lost: the GPU has fallen off the bus, or cannot be reached; it needs a reset or a reboot";
      case nvml_reset_required:
        return "device_lost: the GPU needs a reset before it answers again";
      case nvml_not_found:
      case nvml_gpu_not_found:
        return "device_lost: the driver no longer knows the device";
      case nvml_operating_system:
        return "no_permission: the operating system blocks the GPU for this process (a cgroup, or a missing device "
               "file)";
      case nvml_version_mismatch:
        return "driver_mismatch: NVIDIA's library and its kernel driver are of different versions: reboot, or install "
               "both anew";
      default:
        break;
    }
    const char* const text = error_text(answer);
    return kept_reason("driver_error: NVML answered " + std::to_string(answer) + (*text == '\0' ? "" : ", ") + text);
  }

  static constexpr const char* mig_parent =
      "mig_parent: the GPU is divided (MIG), and the whole is told to administrators only: ask its MIG instances";

 private:
  static constexpr int list_grows = -1;

  [[nodiscard]] const char* start() {
    if (const char* why = why_no_loader()) return why;
    if (library_ == nullptr) {
      if (const char* why = load()) return why;
    }
    const int answer = init_();
    if (answer != nvml_success) return why_not(answer);
    is_started_ = true;
    return nullptr;
  }

  [[nodiscard]] const char* load() {
    const char* const given = environment("LIB_NVML_PATH");
    if (given != nullptr && *given != '\0') {
      library_ = open_library(given, false);
      if (library_ == nullptr) return "no_library: LIB_NVML_PATH names no library that can be loaded";
    } else {
      // The plain name may be a stub for linking.
      for (const char* name : {"libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}) {
        if ((library_ = open_library(name, false)) != nullptr) break;
      }
      if (library_ == nullptr) {
        return "no_library: NVIDIA's libnvidia-ml.so.1 is not found: no NVIDIA driver, or not in this container";
      }
    }
    resolve();
    if (init_) return nullptr;
    library_ = nullptr;
    return "no_symbol: the library that is called NVML has no nvmlInit";
  }

  void resolve() noexcept {
    init_.find(library_, "nvmlInit_v2", "nvmlInit");
    count_.find(library_, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
    by_index_.find(library_, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
    by_uuid_.find(library_, "nvmlDeviceGetHandleByUUID");
    uuid_.find(library_, "nvmlDeviceGetUUID");
    name_.find(library_, "nvmlDeviceGetName");
    pci_.find(library_, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2");
    memory_v2_.find(library_, "nvmlDeviceGetMemoryInfo_v2");
    memory_.find(library_, "nvmlDeviceGetMemoryInfo");
    mig_mode_.find(library_, "nvmlDeviceGetMigMode");
    mig_count_.find(library_, "nvmlDeviceGetMaxMigDeviceCount");
    mig_by_index_.find(library_, "nvmlDeviceGetMigDeviceHandleByIndex");
    details_.find(library_, "nvmlDeviceGetRunningProcessDetailList");
    lists_[0].find_all(library_, "nvmlDeviceGetComputeRunningProcesses");
    lists_[1].find_all(library_, "nvmlDeviceGetGraphicsRunningProcesses");
    lists_[2].find_all(library_, "nvmlDeviceGetMPSComputeRunningProcesses");
    has_early_v3_ = find_symbol(library_, "nvmlDeviceGetConfComputeMemSizeInfo") != nullptr && !details_;
  }

  [[nodiscard]] const char* error_text(int answer) const noexcept {
    const void* const address = find_symbol(library_, "nvmlErrorString");
    const char* (*function)(int) = nullptr;
    std::memcpy(&function, &address, sizeof address);
    const char* const text = function == nullptr ? nullptr : function(answer);
    return text == nullptr ? "" : text;
  }

  [[nodiscard]] static const char* no_symbol(std::string_view name) {
    return kept_reason("no_symbol: the driver's library lacks " + std::string(name));
  }

  // ---- devices ----

  [[nodiscard]] std::string text_of(const symbol<int(nvml_device, char*, std::uint32_t)>& function,
                                    nvml_device d) const {
    char text[128] = "";
    if (!function || function(d, text, sizeof text - 1) != nvml_success) return {};
    return text;
  }
  [[nodiscard]] std::string address_of(nvml_device d) const {
    nvml_pci pci{};
    if (!pci_ || pci_(d, &pci) != nvml_success) return {};
    pci.address[sizeof pci.address - 1] = '\0';
    return linux_pci_address(pci.address);
  }

  void add(nvml_list& found, nvml_device handle) {
    nvml_listed d;
    d.uuid = text_of(uuid_, handle);
    d.name = text_of(name_, handle);
    d.pci_address = address_of(handle);
    if (d.uuid.empty() && d.pci_address.empty()) {
      ++found.refused;
      found.why = "driver_error: NVML tells neither the UUID nor the PCI address of a device";
      return;
    }
    std::uint32_t current = 0;
    std::uint32_t pending = 0;
    d.is_mig_parent = mig_mode_ && mig_mode_(handle, &current, &pending) == nvml_success && current == 1;
    // Where memory is the system's, NVML has no figure for it.
    memory_figures m;
    const int answer = d.is_mig_parent ? nvml_no_permission : read_memory(handle, m);
    if (answer == nvml_success || answer == nvml_not_supported) {
      d.is_unified.set(answer == nvml_not_supported ? 1 : 0);
    } else {
      d.is_unified.why = d.is_mig_parent ? mig_parent : why_not(answer);
    }
    const bool is_divided = d.is_mig_parent;
    const nvml_listed parent = d;
    found.devices.push_back(std::move(d));
    if (is_divided) add_instances(found, handle, parent);
  }

  void add_instances(nvml_list& found, nvml_device handle, const nvml_listed& parent) {
    std::uint32_t count = 0;
    if (!mig_count_ || !mig_by_index_ || mig_count_(handle, &count) != nvml_success) return;
    for (std::uint32_t i = 0; i < count && i < 64; ++i) {
      nvml_device instance = nullptr;
      if (mig_by_index_(handle, i, &instance) != nvml_success) continue;  // not every place is taken
      nvml_listed d;
      d.uuid = text_of(uuid_, instance);
      if (d.uuid.empty()) continue;
      d.name = text_of(name_, instance);
      if (d.name.empty()) d.name = parent.name + " MIG";
      d.pci_address = parent.pci_address;
      d.parent_uuid = parent.uuid;
      d.is_mig_instance = true;
      d.is_unified.set(0);
      found.devices.push_back(std::move(d));
    }
  }

  // Handles are kept: finding one may ask every device.
  [[nodiscard]] const char* find(const device_key& device, nvml_device& handle) {
    for (const auto& known : handles_) {
      if (known.first == device.uuid && !device.uuid.empty()) {
        handle = known.second;
        return nullptr;
      }
    }
    int answer = nvml_not_found;
    if (by_uuid_ && !device.uuid.empty()) answer = by_uuid_(device.uuid.c_str(), &handle);
    if (answer != nvml_success) {
      const int by_list = find_in_list(device, handle);
      if (by_list == nvml_success || answer == nvml_not_found || answer == nvml_invalid_argument) answer = by_list;
    }
    if (answer != nvml_success) return why_not(answer);
    if (!device.uuid.empty()) handles_.emplace_back(device.uuid, handle);
    return nullptr;
  }
  [[nodiscard]] int find_in_list(const device_key& device, nvml_device& handle) const {
    std::uint32_t count = 0;
    if (!count_ || !by_index_) return nvml_function_not_found;
    if (const int answer = count_(&count)) return answer;
    int refused = nvml_not_found;
    for (std::uint32_t i = 0; i < count && i < 256; ++i) {
      nvml_device d = nullptr;
      if (const int answer = by_index_(i, &d)) {
        if (answer != nvml_no_permission && answer != nvml_invalid_argument) refused = answer;
        continue;
      }
      const std::string uuid = text_of(uuid_, d);
      const bool is_it = uuid.empty() || device.uuid.empty()
                             ? address_of(d) == device.pci_address && !device.pci_address.empty()
                             : uuid == device.uuid;
      if (!is_it) continue;
      handle = d;
      return nvml_success;
    }
    return refused;
  }
  void forget_handles() noexcept { handles_.clear(); }

  // ---- memory ----

  [[nodiscard]] int read_memory(nvml_device handle, memory_figures& found) const {
    if (memory_v2_) {
      nvml_memory_v2 m{};
      m.version = nvml_memory_v2_version;
      const int answer = memory_v2_(handle, &m);
      if (answer == nvml_success) {
        found.total.set(m.total);
        found.free.set(m.free);  // total minus used would count what the driver keeps as free
        found.used.set(m.used);
        found.reserved.set(m.reserved);
        return answer;
      }
      if (answer != nvml_function_not_found && answer != nvml_argument_version_mismatch) return answer;
    }
    if (!memory_) return nvml_function_not_found;
    nvml_memory m{};
    const int answer = memory_(handle, &m);
    if (answer != nvml_success) return answer;
    found.total.set(m.total);
    found.free.set(m.free);
    found.used.set(m.used);
    found.reserved.why = "not_supported: the driver is too old to tell what it keeps for itself; that may be in `used`";
    return answer;
  }

  // ---- processes ----

  using list_function = symbol<int(nvml_device, std::uint32_t*, void*)>;
  struct list_functions {
    list_function v2, v3, v1;

    void find_all(void* library, std::string_view name) {
      const std::string plain(name);
      v2.find(library, (plain + "_v2").c_str());
      v3.find(library, (plain + "_v3").c_str());
      v1.find(library, plain.c_str());
    }
  };

  /// 0, an answer of NVML's, or `list_grows`.
  [[nodiscard]] int list_processes(nvml_device handle, std::vector<nvml_process_v1>& found) const {
    if (details_) {
      int answer = list_details(handle, nvml_mode_all, found);
      if (answer == nvml_invalid_argument || answer == nvml_not_supported) {
        found.clear();
        for (const std::uint32_t mode : {nvml_mode_compute, nvml_mode_graphics, nvml_mode_mps}) {
          const int one = list_details(handle, mode, found);
          if (mode == nvml_mode_compute || one == nvml_success) answer = one;
          if (mode == nvml_mode_compute && one != nvml_success) break;
        }
      }
      const bool is_too_old = answer == nvml_function_not_found || answer == nvml_argument_version_mismatch ||
                              answer == nvml_not_supported || answer == nvml_invalid_argument;
      if (!is_too_old) return answer;
      found.clear();
    }
    int answer = nvml_function_not_found;
    for (const list_functions& f : lists_) {
      const int one = list_one_kind(handle, f, found);
      if (one == nvml_success || one == list_grows) answer = one;
      if (&f == &lists_[0] && one != nvml_success) return one;  // the others are not on every driver
      if (answer == list_grows) break;
    }
    return answer;
  }

  [[nodiscard]] int list_one_kind(nvml_device handle, const list_functions& f,
                                  std::vector<nvml_process_v1>& found) const {
    if (f.v2) return list_entries(handle, f.v2, sizeof(nvml_process_v2), found);  // of one size on every driver
    if (f.v3) {
      return list_entries(handle, f.v3, has_early_v3_ ? sizeof(nvml_process_v3_early) : sizeof(nvml_process_v2), found);
    }
    if (f.v1) return list_entries(handle, f.v1, sizeof(nvml_process_v1), found);
    return nvml_function_not_found;
  }

  static constexpr std::uint32_t most_processes = 100'000;
  static constexpr int most_tries = 8;

  /// Each entry begins with the number of the process and what it uses, whatever follows.
  [[nodiscard]] static int list_entries(nvml_device handle, const list_function& function, std::size_t entry_bytes,
                                        std::vector<nvml_process_v1>& found) {
    std::uint32_t count = 0;
    int answer = function(handle, &count, nullptr);
    if (answer == nvml_success && count == 0) return answer;
    for (int i = 0; i < most_tries && (answer == nvml_insufficient_size || answer == nvml_success); ++i) {
      const std::uint32_t room = (count < most_processes ? count : most_processes) * 2 + 5;
      // As large as the largest entry, so that a wrong guess of the size overruns nothing.
      std::vector<unsigned char> entries(std::size_t{room} * sizeof(nvml_process_v3_early));
      count = room;
      answer = function(handle, &count, entries.data());
      if (answer != nvml_success) continue;
      for (std::uint32_t j = 0; j < count && j < room; ++j) {
        nvml_process_v1 p{};
        std::memcpy(&p, entries.data() + j * entry_bytes, sizeof p);
        found.push_back(p);
      }
      return answer;
    }
    return answer == nvml_insufficient_size ? list_grows : answer;
  }

  [[nodiscard]] int list_details(nvml_device handle, std::uint32_t mode, std::vector<nvml_process_v1>& found) const {
    nvml_process_detail_list list{nvml_process_detail_list_version, mode, 0, nullptr};
    int answer = details_(handle, &list);
    if (answer == nvml_success && list.count == 0) return answer;
    for (int i = 0; i < most_tries && (answer == nvml_insufficient_size || answer == nvml_success); ++i) {
      const std::uint32_t room = (list.count < most_processes ? list.count : most_processes) * 2 + 5;
      std::vector<nvml_process_detail> entries(room);
      list = {nvml_process_detail_list_version, mode, room, entries.data()};
      answer = details_(handle, &list);
      if (answer != nvml_success) continue;
      for (std::uint32_t j = 0; j < list.count && j < room; ++j) found.push_back({entries[j].pid, entries[j].used});
      return answer;
    }
    return answer == nvml_insufficient_size ? list_grows : answer;
  }

  void* library_ = nullptr;
  bool is_started_ = false;
  bool has_early_v3_ = false;
  std::int64_t tried_ns_ = 0;
  const char* why_not_open_ = nullptr;
  std::vector<std::pair<std::string, nvml_device>> handles_;

  symbol<int()> init_;
  symbol<int(std::uint32_t*)> count_;
  symbol<int(std::uint32_t, nvml_device*)> by_index_;
  symbol<int(const char*, nvml_device*)> by_uuid_;
  symbol<int(nvml_device, char*, std::uint32_t)> uuid_, name_;
  symbol<int(nvml_device, nvml_pci*)> pci_;
  symbol<int(nvml_device, nvml_memory_v2*)> memory_v2_;
  symbol<int(nvml_device, nvml_memory*)> memory_;
  symbol<int(nvml_device, std::uint32_t*, std::uint32_t*)> mig_mode_;
  symbol<int(nvml_device, std::uint32_t*)> mig_count_;
  symbol<int(nvml_device, std::uint32_t, nvml_device*)> mig_by_index_;
  symbol<int(nvml_device, nvml_process_detail_list*)> details_;
  list_functions lists_[3];
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
