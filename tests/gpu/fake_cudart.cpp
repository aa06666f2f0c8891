// SPDX-License-Identifier: MIT
#include "fake_cudart.hpp"

#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace {

enum class kind { device, stream, managed, host };

struct live_block {
  std::size_t bytes;
  kind made_as;
};

struct state {
  std::mutex mutex;
  fake_cudart::behaviour now;
  std::map<void*, live_block> live;
  std::vector<fake_cudart::call> calls;
  int wrong_frees = 0;
};

state& all() {
  static state s;
  return s;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t answer(cudaError_t what) {
  if (what != cudaSuccess) last_error = what;
  return what;
}

void note(const fake_cudart::call& c) {
  if (!all().now.keeps_calls) return;
  const std::lock_guard<std::mutex> held(all().mutex);
  all().calls.push_back(c);
}

cudaError_t allocate(const char* function, kind as, void** block, std::size_t bytes, cudaStream_t stream) {
  fake_cudart::call c{function, nullptr, bytes, stream};
  const fake_cudart::behaviour& now = all().now;
  if (now.on_call) now.on_call(c);
  if (now.allocation_answer == cudaSuccess) {
    c.block = now.allocate ? now.allocate(bytes) : ::operator new (bytes, std::align_val_t{256});
  }
  note(c);
  *block = c.block;
  if (c.block == nullptr) {
    return answer(now.allocation_answer != cudaSuccess ? now.allocation_answer : cudaErrorMemoryAllocation);
  }
  const std::lock_guard<std::mutex> held(all().mutex);
  all().live[c.block] = {bytes, as};
  return cudaSuccess;
}

cudaError_t free_block(const char* function, bool (*is_own)(kind), void* block, cudaStream_t stream) {
  fake_cudart::call c{function, block, 0, stream};
  {
    const std::lock_guard<std::mutex> held(all().mutex);
    const auto known = all().live.find(block);
    if (known == all().live.end() || !is_own(known->second.made_as)) {
      ++all().wrong_frees;
      return answer(cudaErrorInvalidValue);
    }
    c.bytes = known->second.bytes;
  }
  const fake_cudart::behaviour& now = all().now;
  if (now.on_call) now.on_call(c);
  {
    const std::lock_guard<std::mutex> held(all().mutex);
    all().live.erase(block);
  }
  now.free ? now.free(block, c.bytes) : ::operator delete (block, std::align_val_t{256});
  note(c);
  return answer(now.free_answer);
}

}  // namespace

namespace fake_cudart {

behaviour& behave() { return all().now; }

void reset() {
  all().now = {};
  all().calls.clear();
  all().wrong_frees = 0;
  current_device = 0;
  last_error = cudaSuccess;
}

std::vector<call> calls() {
  const std::lock_guard<std::mutex> held(all().mutex);
  return all().calls;
}

std::size_t live_blocks() {
  const std::lock_guard<std::mutex> held(all().mutex);
  return all().live.size();
}

std::size_t live_bytes() {
  const std::lock_guard<std::mutex> held(all().mutex);
  std::size_t sum = 0;
  for (const auto& [block, b] : all().live) sum += b.bytes;
  return sum;
}

int wrong_frees() { return all().wrong_frees; }

cudaUUID_t uuid_of(int ordinal) {
  cudaUUID_t uuid{};
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(i == 0 ? ordinal : 0xa0 + i);
  return uuid;
}

}  // namespace fake_cudart

// The header declares them, some under other names: macros of its own choose the version.
cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  return allocate("cudaMalloc", kind::device, block, bytes, nullptr);
}
cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  return allocate("cudaMallocAsync", kind::stream, block, bytes, stream);
}
cudaError_t cudaMallocManaged(void** block, std::size_t bytes, unsigned flags) {
  if (flags != cudaMemAttachGlobal) return answer(cudaErrorInvalidValue);
  return allocate("cudaMallocManaged", kind::managed, block, bytes, nullptr);
}
cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  return allocate("cudaMallocHost", kind::host, block, bytes, nullptr);
}

cudaError_t cudaFree(void* block) {
  return free_block(
      "cudaFree", [](kind k) { return k == kind::device || k == kind::managed; }, block, nullptr);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  return free_block(
      "cudaFreeAsync", [](kind k) { return k == kind::stream; }, block, stream);
}
cudaError_t cudaFreeHost(void* block) {
  return free_block(
      "cudaFreeHost", [](kind k) { return k == kind::host; }, block, nullptr);
}

cudaError_t cudaGetDevice(int* ordinal) {
  if (all().now.device_answer != cudaSuccess) return answer(all().now.device_answer);
  *ordinal = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= all().now.devices) return answer(cudaErrorInvalidDevice);
  current_device = ordinal;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  if (all().now.properties_answer != cudaSuccess) return answer(all().now.properties_answer);
  if (ordinal < 0 || ordinal >= all().now.devices) return answer(cudaErrorInvalidDevice);
  *properties = {};
  properties->uuid = fake_cudart::uuid_of(ordinal);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess                   ? "cudaSuccess"
         : error == cudaErrorMemoryAllocation   ? "cudaErrorMemoryAllocation"
         : error == cudaErrorNoDevice           ? "cudaErrorNoDevice"
         : error == cudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver"
                                                : "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                   ? "no error"
         : error == cudaErrorMemoryAllocation   ? "out of memory"
         : error == cudaErrorNoDevice           ? "no CUDA-capable device is detected"
         : error == cudaErrorInsufficientDriver ? "CUDA driver version is insufficient for CUDA runtime version"
                                                : "unknown error";
}
