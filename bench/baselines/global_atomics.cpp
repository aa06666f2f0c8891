// SPDX-License-Identifier: MIT
// A naive counter: the allocator is asked for every block's size, rounded up as it is, and two global atomics keep count.
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "counters.hpp"

void* operator new(std::size_t n) {
  void* p = std::malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  bench::count_allocated(static_cast<std::int64_t>(malloc_usable_size(p)));
  return p;
}

void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  bench::count_freed(static_cast<std::int64_t>(malloc_usable_size(p)));
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { ::operator delete(p); }
