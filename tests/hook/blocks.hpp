// SPDX-License-Identifier: MIT
// What the hook's tests do with a block, so that no compiler looks through it: hide it, fill it, get one past the hook.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <tidemark/core/ledger.hpp>

namespace hooked {

/// The same pointer, of which the compiler knows nothing: neither where it came from nor how large the block is.
template <class T>
T* launder(T* p) {
  asm volatile("" : "+r"(p) : : "memory");
  return p;
}

/// A size that the compiler cannot see.
inline std::size_t hidden(std::size_t n) {
  asm volatile("" : "+r"(n));
  return n;
}

// Past the hook, as code with a way of its own to the allocator does it.
#if TIDEMARK_OPT_SANITIZER_HOOKS && TIDEMARK_HAS_SANITIZER_ALLOCATOR()
inline void* foreign_malloc(std::size_t n) { return launder(std::malloc(n)); }
inline void foreign_free(void* p) { std::free(launder(p)); }
#else
inline void* foreign_malloc(std::size_t n) { return launder(tidemark::detail::hook::below.malloc(n)); }
inline void foreign_free(void* p) { tidemark::detail::hook::below.free(launder(p)); }
#endif

inline void fill_all(void* p, std::size_t n, int byte) {
  std::memset(launder(p), byte, n);
  tidemark::escape(p);
}

inline bool is_all_filled(const void* p, std::size_t n, int byte) {
  const auto* bytes = static_cast<const unsigned char*>(launder(p));
  return n == 0 || (bytes[0] == byte && std::memcmp(bytes, bytes + 1, n - 1) == 0);
}

// Of a very large block only the two ends: a page takes the system longer than all else here. One test fills all of it.
inline constexpr std::size_t filled_whole = 1'048'576;
inline constexpr std::size_t end_bytes = 10'000;

inline void fill(void* p, std::size_t n, int byte) {
  if (n <= filled_whole) return fill_all(p, n, byte);
  fill_all(p, end_bytes, byte);
  fill_all(static_cast<unsigned char*>(p) + n - end_bytes, end_bytes, byte);
}

/// Whether what `fill` wrote is still there.
inline bool is_filled(const void* p, std::size_t n, int byte) {
  if (n <= filled_whole) return is_all_filled(p, n, byte);
  return is_all_filled(p, end_bytes, byte) &&
         is_all_filled(static_cast<const unsigned char*>(p) + n - end_bytes, end_bytes, byte);
}

inline bool is_aligned(const void* p, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}

}  // namespace hooked
