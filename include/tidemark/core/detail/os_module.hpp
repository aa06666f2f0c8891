// SPDX-License-Identifier: MIT
// The contract: what the core asks of the dynamic linker.
//   keep_loaded(address)  the shared object that holds that function or object is never unloaded from here on
//   in_one_object(a, b)   false only where two functions are in different shared objects
//   keep_this_loaded()    the same for the one that the caller is compiled into; one test after the first time
// For what the library leaves behind in the process: functions that run at a thread's end or at a fork, texts in records,
// sinks.
#pragma once

#include <atomic>
#include <cerrno>

#include <tidemark/config/platform.hpp>

// Code of a program's own, and all of a static one, is never unloaded.
#if TIDEMARK_HAS_LINUX() && defined(__GNUC__) && defined(__PIC__) && !defined(__PIE__)
  #define TIDEMARK_DETAIL_MAY_BE_UNLOADED 1
  #include <dlfcn.h>
  #include <sys/auxv.h>
#else
  #define TIDEMARK_DETAIL_MAY_BE_UNLOADED 0
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

// Inlined always: a program's empty one must not stand in for a plugin's.

#if TIDEMARK_DETAIL_MAY_BE_UNLOADED

// Weak: before glibc 2.34 they are in libdl, and a program without it has no shared object to unload.
static int weak_dladdr(const void*, Dl_info*) __attribute__((weakref("dladdr")));
static void* weak_dlopen(const char*, int) __attribute__((weakref("dlopen")));

TIDEMARK_ALWAYS_INLINE void keep_loaded(const void* address) noexcept {
  if (weak_dladdr == nullptr || weak_dlopen == nullptr) return;
  Dl_info holder{};
  Dl_info program{};
  if (weak_dladdr(address, &holder) == 0 || holder.dli_fname == nullptr) return;
  const auto entry = reinterpret_cast<const void*>(getauxval(AT_ENTRY));
  if (weak_dladdr(entry, &program) != 0 && program.dli_fbase == holder.dli_fbase) return;
  const int saved = errno;
  static_cast<void>(weak_dlopen(holder.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
  errno = saved;
}

TIDEMARK_ALWAYS_INLINE bool in_one_object(const void* a, const void* b) noexcept {
  Dl_info holder_of_a{};
  Dl_info holder_of_b{};
  return weak_dladdr == nullptr || weak_dladdr(a, &holder_of_a) == 0 || weak_dladdr(b, &holder_of_b) == 0 ||
         holder_of_a.dli_fbase == holder_of_b.dli_fbase;
}

/// One in each shared object, whatever it exports; its address is in no other.
__attribute__((visibility("hidden"))) inline std::atomic<bool> is_this_kept{false};

TIDEMARK_ALWAYS_INLINE void keep_this_loaded() noexcept {
  if (TIDEMARK_LIKELY(is_this_kept.load(std::memory_order_relaxed))) return;  // twice does no harm
  keep_loaded(&is_this_kept);
  is_this_kept.store(true, std::memory_order_relaxed);
}

#else

TIDEMARK_ALWAYS_INLINE void keep_loaded(const void*) noexcept {}
TIDEMARK_ALWAYS_INLINE void keep_this_loaded() noexcept {}
TIDEMARK_ALWAYS_INLINE bool in_one_object(const void*, const void*) noexcept { return true; }

#endif

#undef TIDEMARK_DETAIL_MAY_BE_UNLOADED

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
