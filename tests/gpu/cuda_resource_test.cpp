// SPDX-License-Identifier: MIT
#include <tidemark/gpu/cuda_resource.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "../alloc/conformance.hpp"
#include "fake_cudart.hpp"
#include "test.hpp"

using tidemark::domain;
using tidemark::domain_options;
using tidemark::usage;
using tidemark::gpu::cuda_async_resource;
using tidemark::gpu::cuda_bad_alloc;
using tidemark::gpu::cuda_managed_resource;
using tidemark::gpu::cuda_pinned_resource;
using tidemark::gpu::cuda_resource;

// What only a device can touch is nothing that a container of the host may take.
static_assert(!std::is_base_of_v<std::pmr::memory_resource, cuda_resource>);
static_assert(!std::is_base_of_v<std::pmr::memory_resource, cuda_async_resource>);
static_assert(std::is_base_of_v<std::pmr::memory_resource, cuda_managed_resource>);
static_assert(std::is_base_of_v<std::pmr::memory_resource, cuda_pinned_resource>);
static_assert(!std::is_default_constructible_v<cuda_pinned_resource>);
static_assert(noexcept(std::declval<cuda_resource&>().deallocate(nullptr, 0)));
static_assert(noexcept(std::declval<cuda_async_resource&>().deallocate(nullptr, 0)));
static_assert(noexcept(std::declval<cuda_async_resource&>().deallocate_async(nullptr, 0, nullptr)));
static_assert(std::is_base_of_v<std::bad_alloc, cuda_bad_alloc>);
static_assert(std::is_nothrow_copy_constructible_v<cuda_bad_alloc>);

namespace {

domain external(std::string name, std::int64_t limit_bytes = -1) {
  return domain(std::move(name), domain_options{limit_bytes, nullptr, true});
}

cudaStream_t stream_number(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

/// Fresh behaviour, and at the end nothing that CUDA holds or was wrongly given back.
class fake_runtime {
 public:
  fake_runtime() { fake_cudart::reset(); }
  ~fake_runtime() {
    CHECK(fake_cudart::live_blocks() == 0);
    CHECK(fake_cudart::wrong_frees() == 0);
    fake_cudart::reset();
  }
  fake_runtime(const fake_runtime&) = delete;
  fake_runtime& operator=(const fake_runtime&) = delete;

  fake_cudart::behaviour* operator->() const { return &fake_cudart::behave(); }
};

bool holds_what_cuda_holds(const domain& d) {
  const usage u = d.current();
  return u.live_bytes == static_cast<std::int64_t>(fake_cudart::live_bytes()) &&
         u.live_blocks == static_cast<std::int64_t>(fake_cudart::live_blocks());
}

struct functions_of {
  const char* allocates;
  const char* frees;
};
template <class R>
functions_of functions = {"cudaMalloc", "cudaFree"};
template <>
[[maybe_unused]] functions_of functions<cuda_async_resource> = {"cudaMallocAsync", "cudaFreeAsync"};
template <>
[[maybe_unused]] functions_of functions<cuda_managed_resource> = {"cudaMallocManaged", "cudaFree"};
template <>
[[maybe_unused]] functions_of functions<cuda_pinned_resource> = {"cudaMallocHost", "cudaFreeHost"};

}  // namespace

// ---- what every adaptor must do ----

namespace {

template <class R>
struct through {
  static constexpr std::size_t unit = 24;  // so that 1 byte is what CUDA is asked for in place of 0
  static constexpr std::size_t alignment = 256;

  class blocks {
   public:
    blocks(const domain& d, test_heap& below) : resource_(d) { put_below(below); }
    void* allocate(std::size_t units) {
      // Where a multiplication overflows no caller asks.
      const std::size_t bytes = units > SIZE_MAX / unit ? SIZE_MAX : units * unit;
#if TIDEMARK_HAS_EXCEPTIONS()
      heap_was_out() = false;
      try {
        return resource_.allocate(bytes, alignment);
      } catch (const cuda_bad_alloc&) {
        if (heap_was_out()) throw heap_is_out();  // what the suite calls it
        throw;
      }
#else
      return resource_.allocate(bytes, alignment);
#endif
    }
    void deallocate(void* p, std::size_t units) { resource_.deallocate(p, units * unit, alignment); }

   private:
    /// By the first of several threads.
    static void put_below(test_heap& below) {
      static std::mutex mutex;
      static const test_heap* known = nullptr;
      const std::lock_guard<std::mutex> held(mutex);
      if (known == &below && fake_cudart::behave().allocate) return;
      known = &below;
      fake_cudart::reset();
      fake_cudart::behave().keeps_calls = false;
      fake_cudart::behave().allocate = [&below](std::size_t bytes) { return allocate_from(below, as_asked(bytes)); };
      fake_cudart::behave().free = [&below](void* p, std::size_t bytes) {
        below.deallocate(p, as_asked(bytes), alignment);
      };
    }
    [[nodiscard]] static std::size_t as_asked(std::size_t bytes) { return bytes == 1 ? 0 : bytes; }
    [[nodiscard]] static bool& heap_was_out() {
      thread_local bool was_out = false;
      return was_out;
    }
    [[nodiscard]] static void* allocate_from(test_heap& below, std::size_t bytes) {
#if TIDEMARK_HAS_EXCEPTIONS()
      try {
        return below.allocate(bytes, alignment);
      } catch (const heap_is_out&) {
        heap_was_out() = true;
      } catch (const std::bad_alloc&) {
      }
      return nullptr;
#else
      return below.allocate(bytes, alignment);
#endif
    }

    R resource_;
  };
};

using device_blocks = through<cuda_resource>;
using stream_blocks = through<cuda_async_resource>;
using managed_blocks = through<cuda_managed_resource>;
using pinned_blocks = through<cuda_pinned_resource>;

}  // namespace

ADAPTOR_CONFORMS(device_blocks);
ADAPTOR_CONFORMS(stream_blocks);
ADAPTOR_CONFORMS(managed_blocks);
ADAPTOR_CONFORMS(pinned_blocks);

// ---- what CUDA is asked ----

TEST_CASE_TEMPLATE("a resource asks its own function of CUDA for as many bytes, and gives the block back to its own", R,
                   cuda_resource, cuda_async_resource, cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  const domain d = external("asked");
  R r(d);
  void* p = r.allocate(1'000);
  void* q = r.allocate(64, 64);
  CHECK(holds_what_cuda_holds(d));
  CHECK(d.current().live_bytes == 1'064);
  r.deallocate(p, 1'000);
  CHECK(holds_what_cuda_holds(d));
  r.deallocate(q, 64, 64);
  const auto calls = fake_cudart::calls();
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].function == functions<R>.allocates);
  CHECK(calls[0].bytes == 1'000);
  CHECK(calls[0].block == p);
  CHECK(calls[1].function == functions<R>.allocates);
  CHECK(calls[1].bytes == 64);
  CHECK(calls[2].function == functions<R>.frees);
  CHECK(calls[2].block == p);
  CHECK(calls[3].function == functions<R>.frees);
  CHECK(calls[3].block == q);
}

TEST_CASE_TEMPLATE("a block of 0 bytes is a block, with an address of its own", R, cuda_resource, cuda_async_resource,
                   cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  const domain d = external("empty", 0);
  R r(d);
  void* p = r.allocate(0);
  void* q = r.allocate(0);
  CHECK(p != nullptr);
  CHECK(q != nullptr);
  CHECK(p != q);
  CHECK(d.current().live_bytes == 0);
  CHECK(d.current().live_blocks == 2);
  CHECK(fake_cudart::calls()[0].bytes == 1);
  r.deallocate(p, 0);
  r.deallocate(q, 0);
  CHECK(d.current().live_blocks == 0);
}

TEST_CASE("a resource of streams asks for the stream that it is told, or else for its own") {
  const fake_runtime cuda;
  const domain d = external("streams");
  cudaStream_t mine = stream_number(0x1000);
  cudaStream_t other = stream_number(0x2000);
  cuda_async_resource r(d, mine);
  CHECK(r.stream() == mine);
  void* a = r.allocate(10);
  void* b = r.allocate_async(20, other);
  void* c = r.allocate_async(30, 128, other);
  CHECK(holds_what_cuda_holds(d));
  CHECK(d.current().live_bytes == 60);
  r.deallocate_async(a, 10, other);
  r.deallocate(b, 20);
  r.deallocate_async(c, 30, 128, nullptr);
  CHECK(d.current().live_bytes == 0);
  std::vector<cudaStream_t> streams;
  for (const auto& call : fake_cudart::calls()) streams.push_back(call.stream);
  CHECK(streams == std::vector<cudaStream_t>{mine, other, other, other, mine, nullptr});
}

TEST_CASE_TEMPLATE("a block may be freed by another thread", R, cuda_resource, cuda_async_resource,
                   cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  const domain d = external("threads");
  R r(d);
  void* p = r.allocate(500);
  std::thread([&] { r.deallocate(p, 500); }).join();
  CHECK(d.current().live_bytes == 0);
  CHECK(d.current().deallocations == 1);
}

TEST_CASE_TEMPLATE("a free that CUDA refuses is counted, and its error is left where CUDA keeps the last one", R,
                   cuda_resource, cuda_async_resource, cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  const domain d = external("refused free");
  R r(d);
  void* p = r.allocate(500);
  cuda->free_answer = cudaErrorCudartUnloading;
  r.deallocate(p, 500);
  CHECK(d.current().live_bytes == 0);
  CHECK(d.current().deallocations == 1);
  CHECK(cudaGetLastError() == cudaErrorCudartUnloading);
}

TEST_CASE_TEMPLATE("a resource is equal to itself alone", R, cuda_resource, cuda_async_resource, cuda_managed_resource,
                   cuda_pinned_resource) {
  const domain d = external("equal");
  const R a(d);
  const R b(d);
  CHECK(a.is_equal(a));
  CHECK(!a.is_equal(b));
}

TEST_CASE("a container may live in managed and in pinned memory") {
  const fake_runtime cuda;
  const domain managed = external("managed");
  const domain pinned = external("pinned");
  cuda_managed_resource in_managed(managed);
  cuda_pinned_resource in_pinned(pinned);
  {
    std::pmr::vector<std::int64_t> v(&in_managed);
    v.reserve(100);
    for (std::int64_t i = 0; i < 100; ++i) v.push_back(i);
    CHECK(managed.current().live_bytes == 800);
    const std::pmr::vector<std::int64_t> copy(v, &in_pinned);
    CHECK(copy == v);
    CHECK(pinned.current().live_bytes == 800);
    CHECK(fake_cudart::live_bytes() == 1'600);
  }
  CHECK(managed.current().live_bytes == 0);
  CHECK(pinned.current().live_bytes == 0);
  CHECK(!in_managed.is_equal(in_pinned));
}

// ---- whose account ----

namespace {

domain& account_of(int ordinal) {
  tidemark::gpu::device d;
  // As nvidia-smi would write what fake_cudart::uuid_of says.
  d.uuid = "GPU-0" + std::to_string(ordinal) + "a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";
  return tidemark::gpu::domain_of(d);
}

}  // namespace

TEST_CASE_TEMPLATE("a resource without a domain feeds that of the device which is current when it is made", R,
                   cuda_resource, cuda_async_resource, cuda_managed_resource) {
  const fake_runtime cuda;
  R first;
  cudaSetDevice(1);
  R second;
  void* q = second.allocate(200);
  cudaSetDevice(0);
  void* p = first.allocate(100);
  CHECK(account_of(0).is_external());
  CHECK(account_of(0).current().live_bytes == 100);
  CHECK(account_of(1).current().live_bytes == 200);
  first.deallocate(p, 100);
  second.deallocate(q, 200);  // whichever is current
  CHECK(account_of(0).current().live_bytes == 0);
  CHECK(account_of(1).current().live_bytes == 0);
}

TEST_CASE("where a stream or managed memory says whose it is, another device may be current") {
  const fake_runtime cuda;
  cuda_async_resource of_stream(stream_number(0x1000));
  cuda_managed_resource managed;
  cudaSetDevice(1);
  void* p = of_stream.allocate(10);
  void* q = managed.allocate(20);
  CHECK(account_of(0).current().live_bytes == 30);
  of_stream.deallocate(p, 10);
  managed.deallocate(q, 20);
}

TEST_CASE_TEMPLATE("a resource that feeds a domain allocates on whatever device is current", R, cuda_resource,
                   cuda_async_resource, cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  cuda->device_answer = cudaErrorNoDevice;  // it does not even ask
  const domain d = external("any device");
  R r(d);
  void* p = r.allocate(10);
  cudaSetDevice(1);
  void* q = r.allocate(10);
  CHECK(d.current().live_bytes == 20);
  r.deallocate(p, 10);
  r.deallocate(q, 10);
  CHECK(cudaGetLastError() == cudaSuccess);
}

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE("on another device than its own, a resource of device memory allocates nothing and says why") {
  const fake_runtime cuda;
  cuda_resource r;
  cuda_async_resource s;
  cudaSetDevice(1);
  const usage before = account_of(0).current();
  const auto must_be_refused = [](const std::function<void*()>& allocate) {
    try {
      static_cast<void>(allocate());
      CHECK(false);
    } catch (const std::logic_error& e) {
      CHECK(std::string(e.what()).find("cudaSetDevice") != std::string::npos);
    }
  };
  must_be_refused([&] { return r.allocate(1); });
  must_be_refused([&] { return s.allocate(1); });
  for (std::uintptr_t stream = 0; stream <= 2; ++stream) {
    must_be_refused([&] { return s.allocate_async(1, stream_number(stream)); });
  }
  CHECK(fake_cudart::calls().empty());
  CHECK(is_same_usage(account_of(0).current(), before));
  cudaSetDevice(0);
  r.deallocate(r.allocate(1), 1);
}

TEST_CASE("without a device there is no resource of one, and the error is CUDA's") {
  const fake_runtime cuda;
  cuda->device_answer = cudaErrorInsufficientDriver;
  try {
    const cuda_resource r;
    CHECK(false);
  } catch (const cuda_bad_alloc& e) {
    CHECK(e.error() == cudaErrorInsufficientDriver);
    CHECK(std::string(e.what()) ==
          "cudaGetDevice: CUDA driver version is insufficient for CUDA runtime version (cudaErrorInsufficientDriver)");
  }
  CHECK(cudaGetLastError() == cudaSuccess);
  cuda->device_answer = cudaSuccess;
  cuda->properties_answer = cudaErrorNoDevice;
  CHECK_THROWS_AS(cuda_async_resource(), cuda_bad_alloc);
  CHECK_THROWS_AS(cuda_managed_resource(), cuda_bad_alloc);
}

// ---- refusals ----

TEST_CASE_TEMPLATE("where CUDA has no memory bad_alloc says so, nothing is counted, and CUDA's last error is cleared",
                   R, cuda_resource, cuda_async_resource, cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  for (const std::int64_t limit : {std::int64_t{-1}, std::int64_t{4'096}}) {
    CAPTURE(limit);
    const domain d = external("out", limit);
    R r(d);
    void* held = r.allocate(1'024);
    const usage before = d.current();
    cuda->allocation_answer = cudaErrorMemoryAllocation;
    for (int i = 0; i < 10; ++i) {
      try {
        static_cast<void>(r.allocate(3'072));
        CHECK(false);
      } catch (const cuda_bad_alloc& e) {
        CHECK(e.error() == cudaErrorMemoryAllocation);
        CHECK(std::string(e.what()) == std::string(functions<R>.allocates) +
                                           ": out of memory (cudaErrorMemoryAllocation); 3.0 KiB requested, 1.0 KiB "
                                           "in use in the same domain");
      }
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      CHECK(is_same_usage(d.current(), before));
    }
    cuda->allocation_answer = cudaSuccess;
    void* rest = r.allocate(3'072);  // no room was lost
    r.deallocate(rest, 3'072);
    r.deallocate(held, 1'024);
  }
}

TEST_CASE_TEMPLATE("what a limit refuses CUDA is not asked for", R, cuda_resource, cuda_async_resource,
                   cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  const domain d = external("limited", 1'000);
  R r(d);
  void* p = r.allocate(600);
  const usage before = d.current();
  try {
    static_cast<void>(r.allocate(401));
    CHECK(false);
  } catch (const tidemark::over_budget& e) {
    CHECK(e.requested_bytes() == 401);
    CHECK(e.live_bytes() == 600);
    CHECK(e.limit_bytes() == 1'000);
  }
  CHECK(fake_cudart::calls().size() == 1);
  CHECK(is_same_usage(d.current(), before));
  void* q = r.allocate(400);
  r.deallocate(q, 400);
  r.deallocate(p, 600);
}

TEST_CASE("more bytes than a number of bytes can say are neither reserved nor asked for") {
  const fake_runtime cuda;
  const domain d = external("huge", 100);
  cuda_resource r(d);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 50, SIZE_MAX / 2 + 1}) {
    CHECK_THROWS_AS(static_cast<void>(r.allocate(bytes)), std::bad_alloc);
  }
  CHECK(fake_cudart::calls().empty());
  CHECK(is_same_usage(d.current(), usage{}));
}

TEST_CASE("what a keeper of the gate refuses CUDA is not asked for") {
  struct refusing final : tidemark::detail::gate_keeper {
    bool admits(tidemark::detail::allocation_request& r) override { return r.into == nullptr; }
  };
  const fake_runtime cuda;
  const domain d = external("guarded");
  cuda_resource r(d);
  refusing keeper;
  tidemark::detail::open_gate_keeper(keeper);
  CHECK_THROWS_AS(static_cast<void>(r.allocate(10)), std::bad_alloc);
  CHECK(tidemark::detail::close_gate_keeper(keeper));
  CHECK(fake_cudart::calls().empty());
  CHECK(is_same_usage(d.current(), usage{}));
  r.deallocate(r.allocate(10), 10);
}

TEST_CASE_TEMPLATE("an alignment that CUDA does not give is refused with what it gives, before anything is counted", R,
                   cuda_resource, cuda_async_resource, cuda_managed_resource, cuda_pinned_resource) {
  const fake_runtime cuda;
  const domain d = external("aligned", 100);
  R r(d);
  for (const std::size_t alignment : {std::size_t{0}, std::size_t{3}, std::size_t{96}, std::size_t{512}, SIZE_MAX}) {
    CAPTURE(alignment);
    try {
      static_cast<void>(r.allocate(100, alignment));
      CHECK(false);
    } catch (const std::invalid_argument& e) {
      CHECK(std::string(e.what()).find("256") != std::string::npos);
    }
  }
  CHECK(fake_cudart::calls().empty());
  CHECK(is_same_usage(d.current(), usage{}));
  for (std::size_t alignment = 1; alignment <= 256; alignment *= 2) {
    void* p = r.allocate(100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    r.deallocate(p, 100, alignment);
  }
}

#endif
