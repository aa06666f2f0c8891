// SPDX-License-Identifier: MIT
// The binary interfaces of NVIDIA's management library (NVML) and of the CUDA driver, as far as memory is concerned:
// the vendor's headers are not needed. Source: nvml.h (API 13) and cuda.h (13); the sizes are measured on x86-64.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

// ---- NVML ----

using nvml_device = void*;

struct nvml_memory {
  std::uint64_t total, free, used;
};
struct nvml_memory_v2 {
  std::uint32_t version;
  std::uint64_t total, reserved, free, used;
};
struct nvml_process_v1 {
  std::uint32_t pid;
  std::uint64_t used;
};
struct nvml_process_v2 {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t gpu_instance, compute_instance;
};
/// What early drivers of the 535 branch write under a symbol whose entries have 24 bytes elsewhere.
struct nvml_process_v3_early {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t gpu_instance, compute_instance;
  std::uint64_t used_protected;
};
struct nvml_process_detail {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t gpu_instance, compute_instance;
  std::uint64_t used_protected;
};
struct nvml_process_detail_list {
  std::uint32_t version, mode, count;
  nvml_process_detail* entries;
};
struct nvml_pci {
  char legacy_address[16];
  std::uint32_t domain, bus, device, device_id, subsystem_id;
  char address[32];
};

inline constexpr std::uint32_t nvml_memory_v2_version = 0x0200'0028;
inline constexpr std::uint32_t nvml_process_detail_list_version = 0x0100'0018;
inline constexpr std::uint64_t nvml_not_available = ~std::uint64_t{0};
inline constexpr std::uint32_t nvml_mode_compute = 0;
inline constexpr std::uint32_t nvml_mode_graphics = 1;
inline constexpr std::uint32_t nvml_mode_mps = 2;
inline constexpr std::uint32_t nvml_mode_all = 3;

inline constexpr int nvml_success = 0;
inline constexpr int nvml_uninitialized = 1;
inline constexpr int nvml_invalid_argument = 2;
inline constexpr int nvml_not_supported = 3;
inline constexpr int nvml_no_permission = 4;
inline constexpr int nvml_not_found = 6;
inline constexpr int nvml_insufficient_size = 7;
inline constexpr int nvml_driver_not_loaded = 9;
inline constexpr int nvml_timeout = 10;
inline constexpr int nvml_library_not_found = 12;
inline constexpr int nvml_function_not_found = 13;
inline constexpr int nvml_gpu_is_lost = 15;
inline constexpr int nvml_reset_required = 16;
inline constexpr int nvml_operating_system = 17;
inline constexpr int nvml_version_mismatch = 18;
inline constexpr int nvml_argument_version_mismatch = 25;
inline constexpr int nvml_gpu_not_found = 28;

// ---- the CUDA driver ----

using cuda_device = int;
using cuda_context = void*;
using cuda_pool = void*;

struct cuda_uuid {
  unsigned char bytes[16];
};

inline constexpr int cuda_success = 0;
inline constexpr int cuda_not_initialised = 3;
inline constexpr int cuda_deinitialised = 4;
inline constexpr int cuda_stub_library = 34;
inline constexpr int cuda_no_device = 100;

inline constexpr int cuda_is_integrated = 18;
inline constexpr int cuda_supports_pools = 115;

/// Which of a pool's figures is which attribute, all of 64 bits.
struct cuda_pool_attributes {
  int reserved, reserved_peak, used, used_peak;
};
inline constexpr cuda_pool_attributes cuda_pool_figures{5, 6, 7, 8};
inline constexpr cuda_pool_attributes cuda_graph_figures{2, 3, 0, 1};

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
