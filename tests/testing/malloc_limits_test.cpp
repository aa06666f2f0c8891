// SPDX-License-Identifier: MIT
// The same where malloc is seen too, and the C family under a limit and in a region.
#include <tidemark/hook/malloc.hpp>

#include "limits.hpp"

#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR()
TEST_CASE("a limit makes every C function fail with ENOMEM, and lets what shrinks through") {
  void* old = std::malloc(1'000);
  const t::heap_limit limit(100);
  const auto fails = [](void* p) {
    escape(p);
    const bool has_failed = p == nullptr && errno == ENOMEM;
    std::free(p);
    errno = 0;
    return has_failed;
  };
  errno = 0;
  CHECK(fails(std::malloc(101)));
  CHECK(fails(std::calloc(1, 101)));
  CHECK(fails(::aligned_alloc(64, 128)));
  CHECK(fails(::memalign(64, 101)));
  CHECK(fails(::valloc(101)));
  void* out = nullptr;
  CHECK(::posix_memalign(&out, 64, 101) == ENOMEM);
  CHECK(fails(std::realloc(nullptr, 101)));
  void* p = std::malloc(100);
  CHECK(p != nullptr);
  CHECK(std::realloc(old, 1'001) == nullptr);  // the old block is as it was
  errno = 0;
  old = std::realloc(old, 500);
  CHECK(old != nullptr);
  old = std::realloc(old, 1'000);
  CHECK(old != nullptr);
  CHECK(std::realloc(old, 1'001) == nullptr);
  std::free(p);
  old = std::realloc(old, 1'100);
  CHECK(old != nullptr);
  std::free(old);
}

TEST_CASE("a region is told of the C family") {
  std::uint64_t count = 0;
  void* p = std::malloc(10);
  {
    const t::no_allocation_region region;
    p = std::realloc(p, 20);
    escape(p);
    std::free(p);
    escape(p = std::calloc(2, 30));
    std::free(p);
    escape(p = ::aligned_alloc(64, 64));
    std::free(p);
    count = region.allocations();
  }
  CHECK(count == 3);
}
#endif
