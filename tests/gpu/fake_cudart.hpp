// SPDX-License-Identifier: MIT A CUDA runtime without a GPU, which counts by itself, says what it was asked, and fails
// as a test wants it to. It is as strict as the real one is said to be: a block goes back by the function that belongs
// to it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace fake_cudart {

/// One allocation or one free that was asked for, also in vain.
struct call {
  std::string function;
  void* block;        // null: it was refused
  std::size_t bytes;  // of a free: what the block had been allocated with
  cudaStream_t stream;
};

/// How it behaves. Set by one thread, while no other calls.
struct behaviour {
  int devices = 2;
  cudaError_t device_answer = cudaSuccess;      // of cudaGetDevice
  cudaError_t properties_answer = cudaSuccess;  // of cudaGetDeviceProperties
  cudaError_t allocation_answer = cudaSuccess;  // of what allocates
  cudaError_t free_answer = cudaSuccess;        // of what frees; the block is gone nonetheless
  bool keeps_calls = true;
  std::function<void(const call&)> on_call;    // before it allocates or frees
  std::function<void*(std::size_t)> allocate;  // aligned to 256; null: out of memory
  std::function<void(void*, std::size_t)> free;
};

[[nodiscard]] behaviour& behave();

/// As at first; what is live stays.
void reset();

[[nodiscard]] std::vector<call> calls();
[[nodiscard]] std::size_t live_blocks();
[[nodiscard]] std::size_t live_bytes();
/// How often a block came back by a function that is not its own, or that was never allocated.
[[nodiscard]] int wrong_frees();

/// A device's UUID: 16 bytes, the first of which is its ordinal.
[[nodiscard]] cudaUUID_t uuid_of(int ordinal);

}  // namespace fake_cudart
