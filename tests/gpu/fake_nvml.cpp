// SPDX-License-Identifier: MIT
// A library that is called as NVML is. FAKE_FIRST_ABI: it has no symbol with a suffix. FAKE_EARLY_V3: as early drivers
// of the 535 branch, whose lists of processes have entries of 32 bytes, and without the older ones.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fake_drivers.hpp"

namespace {

fake_nvml_state& state() {
  static auto* const made = new fake_nvml_state;
  return *made;
}

fake_gpu* gpu_of(void* handle) {
  auto* const gpu = static_cast<fake_gpu*>(handle);
  state().calls.note();
  delete[] new char[1'000];  // as drivers do; it must be in no number
  return gpu;
}

int copy(const char* text, char* to, std::uint32_t size) {
  if (std::strlen(text) + 1 > size) return 7;
  std::strcpy(to, text);
  return 0;
}

constexpr std::uint64_t first_abi_reserved(const fake_gpu& g) { return g.used + g.reserved; }

template <class Entry, class Fill>
int list(fake_gpu& gpu, int kind, std::uint32_t* count, void* entries, Fill fill) {
  fake_nvml_state& s = state();
  ++s.list_calls;
  std::uint32_t present = 0;
  while (present < 4 && gpu.lists[kind][present].pid != 0) ++present;
  const std::uint32_t needed = s.needed_instead != 0 ? s.needed_instead : present;
  if (needed == 0) {
    *count = 0;
    return 0;
  }
  if (entries == nullptr || *count < needed || s.growth > 0) {
    if (entries != nullptr && s.growth > 0) --s.growth;
    *count = needed;
    return 7;
  }
  auto* const to = static_cast<unsigned char*>(entries);
  for (std::uint32_t i = 0; i < present; ++i) {
    Entry e{};
    fill(e, gpu.lists[kind][i]);
    std::memcpy(to + i * sizeof(Entry), &e, sizeof e);
  }
  *count = s.count_instead != 0 ? s.count_instead : present;
  return 0;
}

struct entry_16 {
  std::uint32_t pid;
  std::uint64_t used;
};
struct entry_24 {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t instance[2];
};
struct entry_32 {
  std::uint32_t pid;
  std::uint64_t used;
  std::uint32_t instance[2];
  std::uint64_t is_protected;
};
static_assert(sizeof(entry_16) == 16 && sizeof(entry_24) == 24 && sizeof(entry_32) == 32, "as the drivers write them");

template <class Entry>
int list_kind(void* device, int kind, std::uint32_t* count, void* entries) {
  return list<Entry>(*gpu_of(device), kind, count, entries, [](Entry& e, const fake_process& p) {
    e.pid = p.pid;
    e.used = p.used;
  });
}

}  // namespace

extern "C" {

fake_nvml_state* fake_nvml() { return &state(); }

int init_it() {
  fake_nvml_state& s = state();
  s.calls.note();
  ++s.inits;
  s.init_gate.pass();
  return s.init_answer;
}
int count_them(std::uint32_t* count) {
  state().calls.note();
  *count = state().count;
  return 0;
}
int give_handle(std::uint32_t index, void** device) {
  fake_nvml_state& s = state();
  s.calls.note();
  if (index >= static_cast<std::uint32_t>(s.gpus) || s.gpu[index].parent >= 0) return 2;
  if (s.gpu[index].handle_answer != 0) return s.gpu[index].handle_answer;
  *device = &s.gpu[index];
  return 0;
}

const char* nvmlErrorString(int answer) { return answer == 999 ? "Unknown Error" : "(some text)"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  fake_nvml_state& s = state();
  s.calls.note();
  for (int i = 0; i < s.gpus; ++i) {
    if (std::strcmp(s.gpu[i].uuid, uuid) != 0) continue;
    if (s.gpu[i].handle_answer != 0) return s.gpu[i].handle_answer;
    *device = &s.gpu[i];
    return 0;
  }
  return 6;
}
int nvmlDeviceGetUUID(void* device, char* text, std::uint32_t size) { return copy(gpu_of(device)->uuid, text, size); }
int nvmlDeviceGetName(void* device, char* text, std::uint32_t size) { return copy(gpu_of(device)->name, text, size); }

struct pci_info {
  char legacy[16];
  std::uint32_t numbers[5];
  char address[32];
};
static_assert(sizeof(pci_info) == 68 && offsetof(pci_info, address) == 36, "as the driver writes it");
int give_pci(void* device, pci_info* to) {
  std::memset(to, 0x5A, sizeof *to);
  return copy(gpu_of(device)->address, to->address, sizeof to->address);
}

struct memory_24 {
  std::uint64_t total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, memory_24* to) {
  const fake_gpu& g = *gpu_of(device);
  ++state().memory_calls;
  state().memory_gate.pass();
  if (g.memory_answer != 0) return g.memory_answer;
  *to = {g.total, g.free, first_abi_reserved(g)};
  return 0;
}

#if defined(FAKE_FIRST_ABI)
int nvmlInit() { return init_it(); }
int nvmlDeviceGetCount(std::uint32_t* count) { return count_them(count); }
int nvmlDeviceGetHandleByIndex(std::uint32_t index, void** device) { return give_handle(index, device); }
int nvmlDeviceGetPciInfo_v2(void* device, pci_info* to) { return give_pci(device, to); }
int nvmlDeviceGetComputeRunningProcesses(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_16>(d, 0, n, to);
}
int nvmlDeviceGetGraphicsRunningProcesses(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_16>(d, 1, n, to);
}
#else
int nvmlInit_v2() { return init_it(); }
// The first ABI is there too, and must not be chosen.
int nvmlInit() { return 999; }
int nvmlDeviceGetCount(std::uint32_t*) { return 999; }
int nvmlDeviceGetHandleByIndex(std::uint32_t, void**) { return 999; }
int nvmlDeviceGetCount_v2(std::uint32_t* count) { return count_them(count); }
int nvmlDeviceGetHandleByIndex_v2(std::uint32_t index, void** device) { return give_handle(index, device); }
int nvmlDeviceGetPciInfo_v3(void* device, pci_info* to) { return give_pci(device, to); }

struct memory_40 {
  std::uint32_t version;
  std::uint64_t total, reserved, free, used;
};
static_assert(sizeof(memory_40) == 40, "as the driver reads it");
int nvmlDeviceGetMemoryInfo_v2(void* device, memory_40* to) {
  if (to->version != 0x02000028) return 25;
  const fake_gpu& g = *gpu_of(device);
  if (g.memory_v2_answer != 0) return g.memory_v2_answer;
  ++state().memory_calls;
  state().memory_gate.pass();
  if (g.memory_answer != 0) return g.memory_answer;
  *to = {to->version, g.total, g.reserved, g.free, g.used};
  return 0;
}

int nvmlDeviceGetMigMode(void* device, std::uint32_t* current, std::uint32_t* pending) {
  *current = *pending = gpu_of(device)->is_divided ? 1 : 0;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, std::uint32_t* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, std::uint32_t index, void** instance) {
  fake_nvml_state& s = state();
  std::uint32_t at = 0;
  for (int i = 0; i < s.gpus; ++i) {
    if (s.gpu[i].parent < 0 || &s.gpu[s.gpu[i].parent] != device) continue;
    if (at++ != index) continue;
    *instance = &s.gpu[i];
    return 0;
  }
  return 6;
}

int nvmlDeviceGetConfComputeMemSizeInfo(void*, void*) { return 3; }
  #if defined(FAKE_EARLY_V3)
int nvmlDeviceGetComputeRunningProcesses_v3(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_32>(d, 0, n, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_32>(d, 1, n, to);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_32>(d, 2, n, to);
}
  #else
int nvmlDeviceGetComputeRunningProcesses_v2(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_24>(d, 0, n, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_24>(d, 1, n, to);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void* d, std::uint32_t* n, void* to) {
  return list_kind<entry_24>(d, 2, n, to);
}
// Others' sizes, and never to be chosen where there is `_v2`.
int nvmlDeviceGetComputeRunningProcesses_v3(void*, std::uint32_t*, void*) { return 999; }
int nvmlDeviceGetComputeRunningProcesses(void*, std::uint32_t*, void*) { return 999; }

struct detail_list {
  std::uint32_t version, mode, count;
  entry_32* entries;
};
static_assert(sizeof(detail_list) == 24 && offsetof(detail_list, entries) == 16, "as the driver reads it");
int nvmlDeviceGetRunningProcessDetailList(void* device, detail_list* l) {
  fake_nvml_state& s = state();
  if (l->version != 0x01000018 || !s.has_details) return 25;
  if (l->mode > 3 || (l->mode == 3 && !s.has_all_mode)) return 2;
  fake_gpu joined = *gpu_of(device);
  if (l->mode == 3) {
    std::uint32_t used = 0;
    fake_process all[4] = {};
    for (const auto& kind : joined.lists) {
      for (const fake_process& p : kind) {
        if (p.pid != 0 && used < 4) all[used++] = p;
      }
    }
    std::memcpy(joined.lists[0], all, sizeof all);
  }
  return list<entry_32>(joined, l->mode == 3 ? 0 : static_cast<int>(l->mode), &l->count, l->entries,
                        [](entry_32& e, const fake_process& p) {
                          e.pid = p.pid;
                          e.used = p.used;
                        });
}
  #endif
#endif

}  // extern "C"
