// SPDX-License-Identifier: MIT
// What tools/gpu_check runs: the GPU queries on this machine's devices, and on one of NVIDIA's against known
// allocations, which are made through the CUDA driver, loaded at run time. Lines of "key value"; the first word of a
// check is "ok" or "WRONG".
#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/meter.hpp>
#include <tidemark/gpu/pool.hpp>
#include <tidemark/gpu/process.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

#include <tidemark/core/bytes.hpp>

namespace gpu = tidemark::gpu;
using namespace tidemark::literals;
using bytes = tidemark::reading<std::int64_t>;

namespace {

bool is_all_right = true;

void judge(bool is_right, const std::string& what) {
  std::printf("%s %s\n", is_right ? "ok   " : "WRONG", what.c_str());
  is_all_right = is_all_right && is_right;
}
std::string text_of(const bytes& b) {
  return b ? std::to_string(*b) + " bytes (" + tidemark::format_bytes(*b) + ")" : std::string(b.why());
}

/// Whether what changed is what was allocated; drivers give memory in pieces of 2 MiB, and others use the device too.
void judge_change(const char* what, const bytes& before, const bytes& after, std::int64_t expected) {
  if (!before || !after) {
    std::printf("note  %s: %s\n", what, text_of(before ? after : before).c_str());
    return;
  }
  const std::int64_t change = *after - *before;
  judge(std::llabs(change - expected) <= 64_MiB, std::string(what) + " changed by " + tidemark::format_bytes(change) +
                                                     ", allocated were " + tidemark::format_bytes(expected));
}

/// A function of the CUDA driver. The program ends where there is none.
template <class... Args>
int call(void* library, const char* name, Args... args) {
  void* const address = ::dlsym(library, name);
  if (address == nullptr) {
    std::printf("note  the CUDA driver has no %s\n", name);
    return -1;
  }
  int (*function)(Args...) = nullptr;
  std::memcpy(&function, &address, sizeof function);
  return function(args...);
}

void print(const gpu::device& d) {
  const gpu::device_memory m = gpu::memory(d);
  std::printf("device %s\n  name %s\n  pci %s\n  driver %s\n", d.uuid.c_str(), d.name.c_str(), d.pci_address.c_str(),
              std::string(d.driver).c_str());
  std::printf("  unified %s\n", d.unified ? (*d.unified ? "yes" : "no") : std::string(d.unified.why()).c_str());
  std::printf("  ordinal %s\n",
              d.cuda_ordinal ? std::to_string(*d.cuda_ordinal).c_str() : std::string(d.cuda_ordinal.why()).c_str());
  std::printf("  total %s\n  used %s\n  free %s\n  reserved %s\n  source %s\n", text_of(m.total_bytes).c_str(),
              text_of(m.used_bytes).c_str(), text_of(m.free_bytes).c_str(), text_of(m.reserved_bytes).c_str(),
              std::string(m.source).c_str());
  std::printf("  this process %s\n", text_of(gpu::process_memory(d)).c_str());
  if (m.total_bytes && m.reserved_bytes && m.used_bytes && m.free_bytes) {
    const std::int64_t sum = *m.reserved_bytes + *m.used_bytes + *m.free_bytes;
    judge(std::llabs(*m.total_bytes - sum) <= 1_MiB, "total is reserved, used and free together, within 1 MiB");
  }
}

/// Null, or why the device cannot be used.
const char* check_allocations(const gpu::device& d) {
  judge(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) == nullptr, "the queries have not loaded CUDA");
  void* const cuda = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (cuda == nullptr) return "libcuda.so.1 is not found";
  if (call(cuda, "cuInit", 0U) != 0) return "cuInit fails";
  const auto again = gpu::devices();
  int ordinal = -1;
  if (again) {
    for (const gpu::device& known : *again) {
      if (known.uuid == d.uuid) ordinal = known.cuda_ordinal.value_or(-1);
    }
  }
  if (ordinal < 0) return "CUDA does not show the device to this program";
  int device = 0;
  if (call(cuda, "cuDeviceGet", &device, ordinal) != 0) return "cuDeviceGet fails";
  static_cast<void>(gpu::memory(d));
  static_cast<void>(gpu::memory_pool(d));
  unsigned flags = 0;
  int is_active = 1;
  call(cuda, "cuDevicePrimaryCtxGetState", device, &flags, &is_active);
  judge(is_active == 0, "the queries have made no context");

  void* context = nullptr;
  if (call(cuda, "cuDevicePrimaryCtxRetain", &context, device) != 0) return "no context can be made";
  if (call(cuda, "cuCtxSetCurrent", context) != 0) return "cuCtxSetCurrent fails";
  tidemark::meter::device<0>::window window;
  const gpu::device_memory before = gpu::memory(d);
  const bytes own_before = gpu::process_memory(d);
  std::uint64_t block = 0;
  if (call(cuda, "cuMemAlloc_v2", &block, static_cast<std::size_t>(1_GiB)) != 0) return "1 GiB cannot be allocated";
  // Not the answer of the last millisecond.
  tidemark::detail::driver::memory_figures f;
  static_cast<void>(tidemark::detail::driver::read_memory(tidemark::detail::driver::query_of(d), true, f));
  judge_change("used", before.used_bytes, f.used.told(), 1_GiB);
  judge_change("free", before.free_bytes, f.free.told(), -1_GiB);
  judge_change("this process", own_before, gpu::process_memory(d), 1_GiB);
  std::printf("holding\n");
  std::fflush(stdout);
  static_cast<void>(std::getchar());  // tools/gpu_check asks nvidia-smi meanwhile
  call(cuda, "cuMemFree_v2", block);
  if (ordinal == 0) {
    const auto u = window.close();
    if (u)
      judge(u->peak_bytes - u->entry_bytes >= 1_GiB - 64_MiB, "the window's peak has the allocation that was sampled");
  }

  void* stream = nullptr;
  if (call(cuda, "cuStreamCreate", &stream, 0U) != 0) return "no stream can be made";
  std::uint64_t pooled = 0;
  const gpu::pool_memory empty = gpu::memory_pool(d);
  if (call(cuda, "cuMemAllocAsync", &pooled, static_cast<std::size_t>(256_MiB), stream) != 0)
    return "no pool to allocate from";
  call(cuda, "cuStreamSynchronize", stream);
  judge_change("used of the pool", empty.used_bytes, gpu::memory_pool(d).used_bytes, 256_MiB);
  call(cuda, "cuMemFreeAsync", pooled, stream);
  call(cuda, "cuStreamSynchronize", stream);
  const gpu::pool_memory after = gpu::reset_pool_peak(d);
  judge(after.used_peak_bytes.value_or(-1) >= 256_MiB,
        "the pool's high mark has what was freed: " + text_of(after.used_peak_bytes));
  const gpu::pool_memory reset = gpu::memory_pool(d);
  judge(reset.used_peak_bytes && reset.used_bytes && *reset.used_peak_bytes == *reset.used_bytes,
        "after a reset the high mark is what is used: " + text_of(reset.used_peak_bytes));
  return nullptr;
}

}  // namespace

int main() {
  const auto all = gpu::devices();
  if (!all || all->empty()) {
    std::printf("no device: %s\n", all ? "the driver lists none" : std::string(all.why()).c_str());
    return 0;
  }
  for (const gpu::device& d : *all) print(d);
  for (const gpu::device& d : *all) {
    if (d.driver != "nvidia" || d.is_mig_parent) continue;
    std::printf("checked %s\n", d.uuid.c_str());
    if (const char* why = check_allocations(d)) std::printf("note  %s\n", why);
    break;
  }
  return is_all_right ? 0 : 1;
}
