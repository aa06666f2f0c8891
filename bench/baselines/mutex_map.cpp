// SPDX-License-Identifier: MIT
// A naive counter: a hash map from block to requested size behind one mutex. Nothing is added to a block, every pointer
// is checked, and every event takes the lock.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace {

// The map's own nodes come from malloc, so that it does not call itself.
template <class T>
struct malloc_allocator {
  using value_type = T;
  malloc_allocator() = default;
  template <class U>
  malloc_allocator(const malloc_allocator<U>&) noexcept {}  // NOLINT: an allocator converts
  T* allocate(std::size_t n) {
    void* p = std::malloc(n * sizeof(T));
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t) noexcept { std::free(p); }
  template <class U>
  bool operator==(const malloc_allocator<U>&) const noexcept {
    return true;
  }
  template <class U>
  bool operator!=(const malloc_allocator<U>&) const noexcept {
    return false;
  }
};

using size_map = std::unordered_map<void*, std::size_t, std::hash<void*>, std::equal_to<void*>,
                                    malloc_allocator<std::pair<void* const, std::size_t>>>;

std::mutex lock;
std::int64_t live_bytes = 0;
std::int64_t peak_bytes = 0;

// Leaked: blocks are freed after static destruction too.
size_map& sizes() {
  alignas(size_map) static unsigned char place[sizeof(size_map)];
  static size_map& map = *new (place) size_map;
  return map;
}

}  // namespace

void* operator new(std::size_t n) {
  void* p = std::malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  const std::lock_guard<std::mutex> held(lock);
  sizes()[p] = n;
  live_bytes += static_cast<std::int64_t>(n);
  if (live_bytes > peak_bytes) peak_bytes = live_bytes;
  return p;
}

void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  {
    const std::lock_guard<std::mutex> held(lock);
    const auto found = sizes().find(p);
    if (found != sizes().end()) {
      live_bytes -= static_cast<std::int64_t>(found->second);
      sizes().erase(found);
    }
  }
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { ::operator delete(p); }
