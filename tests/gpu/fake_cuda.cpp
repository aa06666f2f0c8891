// SPDX-License-Identifier: MIT
// A library that is called as the CUDA driver is. It counts what must never be called.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fake_drivers.hpp"

namespace {

fake_cuda_state& state() {
  static auto* const made = new fake_cuda_state;
  return *made;
}

thread_local int depth = 0;
thread_local int current = -1;

/// 0 where a call may go on.
int begin() {
  fake_cuda_state& s = state();
  s.calls.note();
  if (s.answer != 0) return s.answer;
  return s.is_initialised != 0 ? 0 : 3;
}
fake_cuda_gpu* gpu_of(int device) { return device >= 0 && device < state().gpus ? &state().gpu[device] : nullptr; }

}  // namespace

extern "C" {

fake_cuda_state* fake_cuda() { return &state(); }

int cuInit(unsigned) {
  ++state().inits;
  state().is_initialised = 1;
  return 0;
}
int cuCtxCreate_v2(void**, unsigned, int) {
  ++state().contexts_made;
  return 0;
}
int cuDeviceGetCount(int* count) {
  if (const int why = begin()) return why;
  *count = state().gpus;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  if (const int why = begin()) return why;
  if (gpu_of(ordinal) == nullptr) return 101;
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* text, int size, int device) {
  if (const int why = begin()) return why;
  std::snprintf(text, static_cast<std::size_t>(size), "Fake CUDA %d", device);
  return 0;
}
int cuDeviceGetUuid_v2(void* uuid, int device) {
  if (const int why = begin()) return why;
  std::memcpy(uuid, gpu_of(device)->uuid, 16);
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  if (const int why = begin()) return why;
  std::snprintf(text, static_cast<std::size_t>(size), "%s", gpu_of(device)->address);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const int why = begin()) return why;
  if (attribute == 18) *value = gpu_of(device)->is_integrated;
  if (attribute == 115) *value = gpu_of(device)->has_pools;
  return attribute == 18 || attribute == 115 ? 0 : 1;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* is_active) {
  if (const int why = begin()) return why;
  *flags = 0;
  *is_active = gpu_of(device)->is_active;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int why = begin()) return why;
  if (gpu_of(device)->is_active == 0) ++state().contexts_made;
  ++state().retains;
  *context = gpu_of(device);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  ++state().releases;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  ++state().pushes;
  ++depth;
  current = static_cast<int>(static_cast<fake_cuda_gpu*>(context) - state().gpu);
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  ++state().pops;
  --depth;
  *context = nullptr;
  return 0;
}
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  if (const int why = begin()) return why;
  if (depth != 1) return 201;
  *free = state().gpu[current].free;
  *total = state().gpu[current].total;
  return 0;
}
int cuDeviceGetMemPool(void** pool, int device) {
  if (const int why = begin()) return why;
  *pool = &gpu_of(device)->pool[gpu_of(device)->pool_number];
  return 0;
}
int cuMemPoolGetAttribute(void*, int attribute, void* value) {
  if (const int why = begin()) return why;
  if (depth != 1) return 201;
  if (attribute < 4 || attribute > 8) return 1;
  std::memcpy(value, &state().gpu[current].pool[attribute], 8);
  return 0;
}
int cuMemPoolSetAttribute(void*, int attribute, void* value) {
  if (const int why = begin()) return why;
  std::uint64_t wanted = 1;
  std::memcpy(&wanted, value, 8);
  if ((attribute != 6 && attribute != 8) || wanted != 0) return 1;
  ++state().sets;
  std::uint64_t* const pool = state().gpu[current].pool;
  pool[attribute] = pool[attribute - 1];
  return 0;
}
int cuDeviceGetGraphMemAttribute(int device, int attribute, void* value) {
  if (const int why = begin()) return why;
  if (attribute < 0 || attribute > 3) return 1;
  std::memcpy(value, &gpu_of(device)->graph[attribute], 8);
  return 0;
}
int cuDeviceSetGraphMemAttribute(int device, int attribute, void* value) {
  if (const int why = begin()) return why;
  std::uint64_t wanted = 1;
  std::memcpy(&wanted, value, 8);
  if ((attribute != 1 && attribute != 3) || wanted != 0) return 1;
  ++state().sets;
  std::uint64_t* const graph = gpu_of(device)->graph;
  graph[attribute] = graph[attribute - 1];
  return 0;
}

}  // extern "C"
