// SPDX-License-Identifier: MIT
// Memory of the CUDA runtime, counted in a domain: cudaMalloc, cudaMallocAsync, cudaMallocManaged and cudaMallocHost.
//
//   tidemark::gpu::cuda_resource memory;                   // counts in gpu::domain_of the current device
//   void* weights = memory.allocate(64 << 20);
//   memory.deallocate(weights, 64 << 20);
//
// Needs the headers of the CUDA Toolkit, 11.2 or later, and links with its runtime; tidemark.hpp leaves it out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <new>
#include <string>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/gpu/detail/uuid.hpp>
#include <tidemark/gpu/device.hpp>

namespace tidemark {
inline namespace v0 {
namespace gpu {

/// Thrown where the CUDA runtime gives no memory. Nothing was allocated or counted, and CUDA's own last error is
/// cleared: it has been told.
class TIDEMARK_EXPORT cuda_bad_alloc : public std::bad_alloc {
 public:
  cuda_bad_alloc(const char* function, cudaError_t error) noexcept : error_(error) { tell(function); }
  cuda_bad_alloc(const char* function, cudaError_t error, std::int64_t requested, std::int64_t live) noexcept
      : error_(error) {
    const int used = tell(function);
    if (used < 0 || static_cast<std::size_t>(used) >= sizeof what_) return;
    const tidemark::detail::byte_text asked(requested);
    const tidemark::detail::byte_text held(live);
    std::snprintf(what_ + used, sizeof what_ - static_cast<std::size_t>(used),
                  "; %.*s requested, %.*s in use in the same domain", static_cast<int>(asked.view().size()),
                  asked.view().data(), static_cast<int>(held.view().size()), held.view().data());
  }

  /// One line, for a person.
  [[nodiscard]] const char* what() const noexcept override { return what_; }
  /// What the runtime answered.
  [[nodiscard]] cudaError_t error() const noexcept { return error_; }

 private:
  int tell(const char* function) noexcept {
    return std::snprintf(what_, sizeof what_, "%s: %s (%s)", function, cudaGetErrorString(error_),
                         cudaGetErrorName(error_));
  }

  cudaError_t error_;
  char what_[256] = {};
};

}  // namespace gpu

namespace detail {
namespace cuda {
inline namespace TIDEMARK_ERROR_TAG {

/// What every block of the runtime is aligned to. Source: CUDA C++ Programming Guide, "Device Memory Accesses".
inline constexpr std::size_t block_alignment = 256;

[[noreturn]] inline void raise_refused(const gpu::cuda_bad_alloc& error) {
  static_cast<void>(cudaGetLastError());  // or the program's next check of a kernel would find it
#if TIDEMARK_HAS_EXCEPTIONS()
  throw error;
#else
  os::say(error.what());
  raise_bad_alloc();
#endif
}

[[nodiscard]] inline int current_ordinal() {
  int ordinal = 0;
  const cudaError_t answer = cudaGetDevice(&ordinal);
  if (answer != cudaSuccess) raise_refused({"cudaGetDevice", answer});
  return ordinal;
}

/// As CUDA and NVML write it, "GPU-8-4-4-4-12".
[[nodiscard]] inline domain& domain_of_ordinal(int ordinal) {
  cudaDeviceProp properties{};
  const cudaError_t answer = cudaGetDeviceProperties(&properties, ordinal);
  if (answer != cudaSuccess) raise_refused({"cudaGetDeviceProperties", answer});
  const quiet hidden;
  gpu::device d;
  d.uuid = driver::gpu_uuid(properties.uuid.bytes);
  return gpu::domain_of(d);
}

/// Where a resource counts. The event order of every adaptor: room is reserved, the runtime allocates, the block is
/// counted; a free is counted before the runtime frees.
class resource_account {
 public:
  /// The current device's. Throws: `cuda_bad_alloc` where there is no device.
  resource_account() : ordinal_(current_ordinal()), node_(&domain_of_ordinal(ordinal_).node()) {}
  explicit resource_account(const domain& d) noexcept : node_(&d.node()) {}

  /// Throws: `std::logic_error` where what is allocated now would be another device's than the account says.
  void require_device() const {
    if (ordinal_ == any_device || ordinal_ == current_ordinal()) return;
    raise_logic_error(
        "tidemark::gpu: the resource counts for the device that was current when it was made, and another one is now; "
        "call cudaSetDevice, or give the resource a domain");
  }

  /// `call(void** block, std::size_t bytes)` answers with a cudaError_t.
  template <class Call>
  [[nodiscard]] void* allocate(const char* function, std::size_t bytes, std::size_t alignment, Call call) const {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > block_alignment) {
      raise_invalid_argument(
          "tidemark::gpu: CUDA aligns a block to 256 bytes; ask for a power of two up to that, or align inside a "
          "larger one");
    }
    if (std::uint64_t{bytes} > std::uint64_t{INT64_MAX}) raise_bad_alloc();
    const auto counted = static_cast<std::int64_t>(bytes);
    reservation room(*node_, counted);
    void* block = nullptr;
    // CUDA promises no block of 0 bytes, and each block has an address of its own.
    const cudaError_t answer = call(&block, bytes == 0 ? 1 : bytes);
    if (answer != cudaSuccess) raise_refused({function, answer, counted, node_->current().live_bytes});
    room.commit();
    return block;
  }

  /// `call()` frees. What it answers stays the runtime's last error, where the program finds it.
  template <class Call>
  void deallocate(std::size_t bytes, Call call) const noexcept {
    [[maybe_unused]] const os::no_cancellation whole;
    static_cast<void>(node_->try_freed(static_cast<std::int64_t>(bytes)));
    static_cast<void>(call());
  }

 private:
  static constexpr int any_device = -1;

  int ordinal_ = any_device;
  domain_node* node_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace cuda
}  // namespace detail

namespace gpu {
inline namespace TIDEMARK_ERROR_TAG {

/// Device memory of cudaMalloc, which the host cannot touch: no std::pmr::memory_resource, with its three functions.
/// Threads: any; a block may be freed by another than the one that made it. It must outlive what was allocated from it.
/// Where `cudaFree` fails, `deallocate` leaves that as CUDA's last error.
class cuda_resource {
 public:
  /// Feeds `domain_of` the device that is current now, and allocates only while that one is.
  /// Throws: `cuda_bad_alloc` where there is none, `std::bad_alloc`.
  cuda_resource() = default;
  /// Feeds `d`, on whatever device is current. Make it an external domain: device memory is no part of the heap.
  explicit cuda_resource(const domain& d) noexcept : account_(d) {}
  cuda_resource(const cuda_resource&) = delete;
  cuda_resource& operator=(const cuda_resource&) = delete;

  /// Throws: `over_budget`, `cuda_bad_alloc`; `std::invalid_argument` for an alignment above 256; `std::logic_error`
  /// where another device is current.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    account_.require_device();
    return account_.allocate("cudaMalloc", bytes, alignment,
                             [](void** block, std::size_t size) { return cudaMalloc(block, size); });
  }
  void deallocate(void* block, std::size_t bytes, std::size_t = alignof(std::max_align_t)) noexcept {
    account_.deallocate(bytes, [&] { return cudaFree(block); });
  }
  /// Whether both are the same one.
  [[nodiscard]] bool is_equal(const cuda_resource& other) const noexcept { return this == &other; }

 private:
  tidemark::detail::cuda::resource_account account_;
};

/// Device memory of cudaMallocAsync, in the order of a stream. A block is counted, and a free too, when it is asked
/// for: the stream gets there later. Otherwise as cuda_resource.
class cuda_async_resource {
 public:
  /// Feeds `domain_of` the device that is current now, of which `stream`, and any other that it is used with, must be
  /// one. The default streams are the current device's: with those it allocates only while that device is current.
  /// Throws: `cuda_bad_alloc` where there is none, `std::bad_alloc`.
  explicit cuda_async_resource(cudaStream_t stream = nullptr) : stream_(stream) {}
  explicit cuda_async_resource(const domain& d, cudaStream_t stream = nullptr) noexcept
      : account_(d), stream_(stream) {}
  cuda_async_resource(const cuda_async_resource&) = delete;
  cuda_async_resource& operator=(const cuda_async_resource&) = delete;

  /// On its own stream, and without waiting for it: work on another stream has to wait for this one first.
  /// Throws: as cuda_resource.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    return allocate_async(bytes, alignment, stream_);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    deallocate_async(block, bytes, alignment, stream_);
  }
  /// Throws: as cuda_resource.
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, cudaStream_t stream) {
    // Null, cudaStreamLegacy and cudaStreamPerThread are 0, 1 and 2.
    if (reinterpret_cast<std::uintptr_t>(stream) <= 2) account_.require_device();
    return account_.allocate("cudaMallocAsync", bytes, alignment,
                             [stream](void** block, std::size_t size) { return cudaMallocAsync(block, size, stream); });
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, cudaStream_t stream) {
    return allocate_async(bytes, alignof(std::max_align_t), stream);
  }
  void deallocate_async(void* block, std::size_t bytes, std::size_t, cudaStream_t stream) noexcept {
    account_.deallocate(bytes, [&] { return cudaFreeAsync(block, stream); });
  }
  void deallocate_async(void* block, std::size_t bytes, cudaStream_t stream) noexcept {
    deallocate_async(block, bytes, alignof(std::max_align_t), stream);
  }
  /// Whether both are the same one.
  [[nodiscard]] bool is_equal(const cuda_async_resource& other) const noexcept { return this == &other; }

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

 private:
  tidemark::detail::cuda::resource_account account_;
  cudaStream_t stream_;
};

/// Memory of cudaMallocManaged, which host and devices share: containers may live in it. What it counts is what was
/// asked for; its pages are wherever they were touched last. Threads, lifetime and errors as cuda_resource.
class cuda_managed_resource : public std::pmr::memory_resource {
 public:
  /// Feeds `domain_of` the device that is current now, whichever is current later.
  /// Throws: `cuda_bad_alloc` where there is none, `std::bad_alloc`.
  cuda_managed_resource() = default;
  /// Feeds `d`. Make it an external domain: managed memory is no part of the heap.
  explicit cuda_managed_resource(const domain& d) noexcept : account_(d) {}
  cuda_managed_resource(const cuda_managed_resource&) = delete;
  cuda_managed_resource& operator=(const cuda_managed_resource&) = delete;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return account_.allocate("cudaMallocManaged", bytes, alignment, [](void** block, std::size_t size) {
      return cudaMallocManaged(block, size, cudaMemAttachGlobal);
    });
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t) noexcept override {
    account_.deallocate(bytes, [&] { return cudaFree(block); });
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  tidemark::detail::cuda::resource_account account_;
};

/// Page-locked memory of the host, of cudaMallocHost: containers may live in it. No device's, so that it feeds a domain
/// that the program names; an external one, since it is no part of the heap. Threads, lifetime and errors as
/// cuda_resource.
class cuda_pinned_resource : public std::pmr::memory_resource {
 public:
  explicit cuda_pinned_resource(const domain& d) noexcept : account_(d) {}
  cuda_pinned_resource(const cuda_pinned_resource&) = delete;
  cuda_pinned_resource& operator=(const cuda_pinned_resource&) = delete;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return account_.allocate("cudaMallocHost", bytes, alignment,
                             [](void** block, std::size_t size) { return cudaMallocHost(block, size); });
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t) noexcept override {
    account_.deallocate(bytes, [&] { return cudaFreeHost(block); });
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  tidemark::detail::cuda::resource_account account_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace gpu
}  // namespace v0
}  // namespace tidemark
