// SPDX-License-Identifier: MIT
// A naive counter: 16 bytes in front of every block keep its requested size, and two global atomics keep count. The
// user's pointer is not the allocator's, so a block that bypasses either operator crashes the program.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "counters.hpp"

namespace {

struct alignas(16) header {
  std::size_t size;
};

}  // namespace

void* operator new(std::size_t n) {
  auto* h = static_cast<header*>(std::malloc(sizeof(header) + n));
  if (h == nullptr) throw std::bad_alloc();
  h->size = n;
  bench::count_allocated(static_cast<std::int64_t>(n));
  return h + 1;
}

void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  header* h = static_cast<header*>(p) - 1;
  bench::count_freed(static_cast<std::int64_t>(h->size));
  std::free(h);
}
void operator delete(void* p, std::size_t) noexcept { ::operator delete(p); }
