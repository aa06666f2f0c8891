// SPDX-License-Identifier: MIT
// The contract: memory that does not come from the heap being measured.
//   map_pages(bytes)      zeroed memory, null when there is none; untouched pages cost nothing
//   unmap_pages(p, bytes) gives it back
//   random_word()         64 bits that another program cannot guess
// Every function: no allocation through malloc, errno untouched.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <sys/mman.h>
  #if TIDEMARK_HAS_LINUX()
    #include <sys/syscall.h>
    #include <unistd.h>
  #endif
#else
  #include <cstdlib>
#endif

#include <tidemark/core/detail/os_clock.hpp>

#if TIDEMARK_HAS_POSIX()
// LeakSanitizer's own: what such a region points to is no leak. Null where no leak checker is linked.
extern "C" TIDEMARK_WEAK void __lsan_register_root_region(const void* begin, std::size_t bytes);
extern "C" TIDEMARK_WEAK void __lsan_unregister_root_region(const void* begin, std::size_t bytes);
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

#if TIDEMARK_HAS_POSIX()

[[nodiscard]] inline void* map_pages(std::size_t bytes) noexcept {
  const int saved = errno;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = saved;
  if (p == MAP_FAILED) return nullptr;
  if (&__lsan_register_root_region != nullptr) __lsan_register_root_region(p, bytes);
  return p;
}

inline void unmap_pages(void* p, std::size_t bytes) noexcept {
  if (&__lsan_unregister_root_region != nullptr) __lsan_unregister_root_region(p, bytes);
  munmap(p, bytes);
}

#else

[[nodiscard]] inline void* map_pages(std::size_t bytes) noexcept { return std::calloc(1, bytes); }
inline void unmap_pages(void* p, std::size_t) noexcept { std::free(p); }

#endif

[[nodiscard]] inline std::uint64_t random_word() noexcept {
  std::uint64_t word = 0;
#if TIDEMARK_HAS_LINUX()
  const int saved = errno;
  // 1 is GRND_NONBLOCK: early in a boot no waiting, the clock and the address below then serve alone.
  if (syscall(SYS_getrandom, &word, sizeof word, 1) != static_cast<long>(sizeof word)) word = 0;
  errno = saved;
#endif
  word ^= static_cast<std::uint64_t>(steady_ns()) * 0x9e3779b97f4a7c15U;
  return word ^ reinterpret_cast<std::uintptr_t>(&word);
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
