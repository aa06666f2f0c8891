// SPDX-License-Identifier: MIT
// The contract: what the core asks of the dynamic linker.
//   keep_loaded(address)  the shared object that holds that function or object is never unloaded from here on
// For what the library leaves behind in lists of the process: functions that run at a thread's end or at a fork.
#pragma once

#include <cerrno>

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_LINUX() && defined(__GNUC__)
  #include <dlfcn.h>
  #include <sys/auxv.h>
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

#if TIDEMARK_HAS_LINUX() && defined(__GNUC__)

// Weak: before glibc 2.34 they are in libdl, and a program without it has no shared object to unload.
static int weak_dladdr(const void*, Dl_info*) __attribute__((weakref("dladdr")));
static void* weak_dlopen(const char*, int) __attribute__((weakref("dlopen")));

inline void keep_loaded(const void* address) noexcept {
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

#else

inline void keep_loaded(const void*) noexcept {}

#endif

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
