// SPDX-License-Identifier: MIT
// The CUDA driver, asked only where the program itself has loaded and initialised it: nothing here loads it,
// initialises it or creates a context, which would cost the program hundreds of MiB. Used by the driver thread alone.
// Source: cuda.h (13).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/abi.hpp>
#include <tidemark/gpu/detail/figures.hpp>
#include <tidemark/gpu/detail/library_linux.hpp>
#include <tidemark/gpu/detail/library_unknown.hpp>
#include <tidemark/gpu/detail/symbol.hpp>
#include <tidemark/gpu/detail/uuid.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// A device as CUDA lists it; its ordinal is the place in the list.
struct cuda_listed {
  std::string uuid, name, pci_address;
  figure is_unified;  // 1 or 0
};

inline namespace TIDEMARK_ERROR_TAG {

class cuda_library {
 public:
  /// In a child of fork() whose parent may have initialised CUDA it is not to be touched: where it is loaded by now,
  /// nobody can tell which of the two did.
  void begin_in_fork_child() noexcept { is_forbidden_ = why_no_loader() == nullptr && load(); }

  /// Null: the program has initialised CUDA, and `count` devices are visible to it.
  [[nodiscard]] const char* find(int& count) {
    if (is_forbidden_)
      return "forked: CUDA was loaded before this child of fork() first asked, and may not be used in a child; start "
             "it by exec()";
    if (const char* why = why_no_loader()) return why;
    if (library_ == nullptr) {
      if (!load()) return "cuda_not_initialised: the program has not loaded CUDA";
      resolve();
    }
    if (!count_ || !get_) return "no_symbol: the library that is called CUDA lacks cuDeviceGetCount";
    const int answer = count_(&count);
    if (answer == cuda_not_initialised) {
      return "cuda_not_initialised: the program has not initialised CUDA, and asking must not do so";
    }
    return answer == cuda_success ? nullptr : why_not(answer);
  }

  [[nodiscard]] const char* list(std::vector<cuda_listed>& found) {
    int count = 0;
    if (const char* why = find(count)) return why;
    for (int i = 0; i < count && i < 256; ++i) {
      cuda_listed d;
      cuda_device device = 0;
      if (get_(&device, i) == cuda_success) d = describe(device);
      found.push_back(d);
    }
    return nullptr;
  }

  /// What cuMemGetInfo says. Null, or why it cannot be asked.
  [[nodiscard]] const char* memory(const device_key& key, memory_figures& found) {
    return in_context(key, [&](cuda_device) -> const char* {
      std::size_t free = 0;
      std::size_t total = 0;
      if (!memory_) return "no_symbol: the CUDA driver lacks cuMemGetInfo_v2";
      if (const int answer = memory_(&free, &total)) return why_not(answer);
      found.be_absent("not_supported: CUDA has no such figure");
      found.total.set(total);
      found.free.set(free);
      if (free <= total) found.used.set(total - free);
      found.source = "cuda";
      return nullptr;
    });
  }

  /// The pool that cudaMallocAsync takes from.
  [[nodiscard]] const char* pool(const device_key& key, pool_figures& found, bool must_reset) {
    return in_context(key, [&](cuda_device device) -> const char* {
      int is_supported = 1;
      if (attribute_ && attribute_(&is_supported, cuda_supports_pools, device) == cuda_success && is_supported == 0) {
        return "not_supported: the device has no memory pools";
      }
      cuda_pool pool = nullptr;
      if (!get_pool_ || !pool_get_) return "no_symbol: the CUDA driver is too old for memory pools";
      if (const int answer = get_pool_(&pool, device)) return why_not(answer);
      found.pool = pool;
      const auto get = [&](int attribute, std::uint64_t& value) { return pool_get_(pool, attribute, &value); };
      const auto set = [&](int attribute, std::uint64_t& value) {
        return pool_set_ ? pool_set_(pool, attribute, &value) : cuda_no_device;
      };
      return read(found, cuda_pool_figures, must_reset, get, set);
    });
  }

  /// What CUDA graphs keep for their own allocations.
  [[nodiscard]] const char* graphs(const device_key& key, pool_figures& found, bool must_reset) {
    return in_context(key, [&](cuda_device device) -> const char* {
      if (!graph_get_) return "no_symbol: the CUDA driver is too old to tell the memory of graphs";
      const auto get = [&](int attribute, std::uint64_t& value) { return graph_get_(device, attribute, &value); };
      const auto set = [&](int attribute, std::uint64_t& value) {
        return graph_set_ ? graph_set_(device, attribute, &value) : cuda_no_device;
      };
      return read(found, cuda_graph_figures, must_reset, get, set);
    });
  }

  [[nodiscard]] const char* why_not(int answer) {
    switch (answer) {
      case cuda_deinitialised:
        return "cuda_deinitialised: the program is ending, and CUDA is gone";
      case cuda_stub_library:
        return "no_library: the libcuda that is loaded is a stub for linking";
      case cuda_no_device:
        return "no_device: CUDA sees no device";
      default:
        return kept_reason("driver_error: CUDA answered " + std::to_string(answer));
    }
  }

 private:
  [[nodiscard]] bool load() noexcept {
    for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
      if ((library_ = open_library(name, true)) != nullptr) return true;
    }
    return false;
  }

  void resolve() noexcept {
    count_.find(library_, "cuDeviceGetCount");
    get_.find(library_, "cuDeviceGet");
    name_.find(library_, "cuDeviceGetName");
    uuid_.find(library_, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
    address_.find(library_, "cuDeviceGetPCIBusId");
    attribute_.find(library_, "cuDeviceGetAttribute");
    state_.find(library_, "cuDevicePrimaryCtxGetState");
    retain_.find(library_, "cuDevicePrimaryCtxRetain");
    release_.find(library_, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease");
    push_.find(library_, "cuCtxPushCurrent_v2");
    pop_.find(library_, "cuCtxPopCurrent_v2");
    memory_.find(library_, "cuMemGetInfo_v2");
    get_pool_.find(library_, "cuDeviceGetMemPool", "cuDeviceGetDefaultMemPool");
    pool_get_.find(library_, "cuMemPoolGetAttribute");
    pool_set_.find(library_, "cuMemPoolSetAttribute");
    graph_get_.find(library_, "cuDeviceGetGraphMemAttribute");
    graph_set_.find(library_, "cuDeviceSetGraphMemAttribute");
  }

  [[nodiscard]] cuda_listed describe(cuda_device device) const {
    cuda_listed d;
    cuda_uuid id{};
    if (uuid_ && uuid_(&id, device) == cuda_success) d.uuid = gpu_uuid(id.bytes);
    char text[128] = "";
    if (name_ && name_(text, sizeof text - 1, device) == cuda_success) d.name = text;
    text[0] = '\0';
    if (address_ && address_(text, sizeof text - 1, device) == cuda_success) d.pci_address = linux_pci_address(text);
    int is_integrated = 0;
    if (attribute_ && attribute_(&is_integrated, cuda_is_integrated, device) == cuda_success) {
      d.is_unified.set(is_integrated != 0 ? 1 : 0);
    }
    return d;
  }

  [[nodiscard]] const char* device_of(const device_key& key, cuda_device& found) {
    int count = 0;
    if (const char* why = find(count)) return why;
    const bool is_mig = key.is_mig_parent || std::string_view(key.uuid).substr(0, 4) == "MIG-";
    bool is_by_address = false;
    for (int i = 0; i < count && i < 256; ++i) {
      cuda_device device = 0;
      if (get_(&device, i) != cuda_success) continue;
      const cuda_listed d = describe(device);
      if (!d.uuid.empty() && bare_uuid(d.uuid) == bare_uuid(key.uuid)) {
        found = device;
        return nullptr;
      }
      // MIG instances share one address.
      if (!is_by_address && !is_mig && !d.pci_address.empty() && d.pci_address == key.pci_address) {
        found = device;
        is_by_address = true;
      }
    }
    return is_by_address ? nullptr : "hidden: the device is not among those that CUDA shows this program";
  }

  /// Runs `f(device)` with the device's primary context, where the program has one. It may end between the question and
  /// the call that keeps it alive, which would then make it anew and end it again.
  template <class F>
  [[nodiscard]] const char* in_context(const device_key& key, F f) {
    cuda_device device = 0;
    if (const char* why = device_of(key, device)) return why;
    unsigned flags = 0;
    int is_active = 0;
    if (!state_ || !retain_ || !release_ || !push_ || !pop_) return "no_symbol: the CUDA driver is too old to be asked";
    if (const int answer = state_(device, &flags, &is_active)) return why_not(answer);
    if (is_active == 0) return "no_context: the program uses CUDA, but has no context on the device";
    cuda_context context = nullptr;
    if (const int answer = retain_(&context, device)) return why_not(answer);
    int answer = push_(context);
    const char* why = answer == cuda_success ? f(device) : why_not(answer);
    if (answer == cuda_success) static_cast<void>(pop_(&context));
    static_cast<void>(release_(device));
    return why;
  }

  template <class Get, class Set>
  [[nodiscard]] const char* read(pool_figures& found, const cuda_pool_attributes& which, bool must_reset, Get get,
                                 Set set) {
    const auto one = [&](int attribute, figure& f) {
      std::uint64_t value = 0;
      const int answer = get(attribute, value);
      answer == cuda_success ? f.set(value) : void(f.why = why_not(answer));
      return answer;
    };
    const int answer = one(which.used, found.used);
    if (answer != cuda_success) return why_not(answer);
    static_cast<void>(one(which.used_peak, found.used_peak));
    static_cast<void>(one(which.reserved, found.reserved));
    static_cast<void>(one(which.reserved_peak, found.reserved_peak));
    if (!must_reset) return nullptr;
    for (const int attribute : {which.used_peak, which.reserved_peak}) {
      std::uint64_t zero = 0;  // the only value that is taken; the mark is then what is current
      if (const int refused = set(attribute, zero)) return why_not(refused);
    }
    return nullptr;
  }

  void* library_ = nullptr;
  bool is_forbidden_ = false;

  symbol<int(int*)> count_;
  symbol<int(cuda_device*, int)> get_;
  symbol<int(char*, int, cuda_device)> name_, address_;
  symbol<int(cuda_uuid*, cuda_device)> uuid_;
  symbol<int(int*, int, cuda_device)> attribute_;
  symbol<int(cuda_device, unsigned*, int*)> state_;
  symbol<int(cuda_context*, cuda_device)> retain_;
  symbol<int(cuda_device)> release_;
  symbol<int(cuda_context)> push_;
  symbol<int(cuda_context*)> pop_;
  symbol<int(std::size_t*, std::size_t*)> memory_;
  symbol<int(cuda_pool*, cuda_device)> get_pool_;
  symbol<int(cuda_pool, int, void*)> pool_get_, pool_set_;
  symbol<int(cuda_device, int, void*)> graph_get_, graph_set_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
