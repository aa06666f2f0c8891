// SPDX-License-Identifier: MIT
// The numbers are those of the vendor's headers (nvml.h of API 13, cuda.h of 13), compiled on x86-64.
#include <tidemark/gpu/detail/abi.hpp>

#include <cstddef>

#include "test.hpp"

using namespace tidemark::detail::driver;

static_assert(sizeof(nvml_device) == 8 && sizeof(int) == 4);
static_assert(sizeof(nvml_memory) == 24 && offsetof(nvml_memory, free) == 8 && offsetof(nvml_memory, used) == 16);
static_assert(sizeof(nvml_memory_v2) == 40 && offsetof(nvml_memory_v2, version) == 0);
static_assert(offsetof(nvml_memory_v2, total) == 8 && offsetof(nvml_memory_v2, reserved) == 16);
static_assert(offsetof(nvml_memory_v2, free) == 24 && offsetof(nvml_memory_v2, used) == 32);
static_assert(sizeof(nvml_process_v1) == 16 && offsetof(nvml_process_v1, used) == 8);
static_assert(sizeof(nvml_process_v2) == 24 && offsetof(nvml_process_v2, used) == 8);
static_assert(offsetof(nvml_process_v2, gpu_instance) == 16 && offsetof(nvml_process_v2, compute_instance) == 20);
static_assert(sizeof(nvml_process_v3_early) == 32 && offsetof(nvml_process_v3_early, used) == 8);
static_assert(offsetof(nvml_process_v3_early, used_protected) == 24);
static_assert(sizeof(nvml_process_detail) == 32 && offsetof(nvml_process_detail, used) == 8);
static_assert(offsetof(nvml_process_detail, used_protected) == 24);
static_assert(sizeof(nvml_process_detail_list) == 24 && offsetof(nvml_process_detail_list, entries) == 16);
static_assert(sizeof(nvml_pci) == 68 && offsetof(nvml_pci, address) == 36);
static_assert(sizeof(cuda_uuid) == 16);

TEST_CASE("a version word is the size and, in its highest byte, the number of the version") {
  CHECK(nvml_memory_v2_version == (sizeof(nvml_memory_v2) | 2U << 24));
  CHECK(nvml_process_detail_list_version == (sizeof(nvml_process_detail_list) | 1U << 24));
}
