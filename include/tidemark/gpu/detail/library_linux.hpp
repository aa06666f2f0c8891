// SPDX-License-Identifier: MIT
// The contract of gpu/ about libraries that are found at run time, on Linux:
//   open_library(name, only_if_loaded)  a handle that is never given back, or null
//   find_symbol(library, name)          its address, or null
//   environment(name)                   what the environment says, or null; nothing in a program with raised rights
//   why_no_loader()                     null, or why no library can be loaded
// No link flag: before glibc 2.34 dlopen is in libdl, and a program without it has no drivers.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/settings.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstdlib>

  #include <dlfcn.h>
  #include <sys/auxv.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

static void* system_dlopen(const char*, int) __attribute__((weakref("dlopen")));
static void* system_dlsym(void*, const char*) __attribute__((weakref("dlsym")));

// Inlined always: what is weak in one shared object must not stand in for another's.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE const char* why_no_loader() noexcept {
  if (resolver_in_use() != nullptr || (system_dlopen != nullptr && system_dlsym != nullptr)) return nullptr;
  return "no_library: this program can load none: it is static, or needs -ldl with a C library as old as this";
}

[[nodiscard]] TIDEMARK_ALWAYS_INLINE void* open_library(const char* name, bool only_if_loaded) noexcept {
  if (const resolver* r = resolver_in_use()) return r->open(name, only_if_loaded);
  if (system_dlopen == nullptr) return nullptr;
  const int saved = errno;
  void* library = system_dlopen(name, RTLD_LAZY | RTLD_LOCAL | (only_if_loaded ? RTLD_NOLOAD : 0));
  errno = saved;
  return library;
}

[[nodiscard]] TIDEMARK_ALWAYS_INLINE void* find_symbol(void* library, const char* name) noexcept {
  if (const resolver* r = resolver_in_use()) return r->symbol(library, name);
  return system_dlsym == nullptr ? nullptr : system_dlsym(library, name);
}

[[nodiscard]] inline const char* environment(const char* name) noexcept {
  const resolver* const r = resolver_in_use();
  if (r != nullptr && r->environment != nullptr) return r->environment(name);
  return ::getauxval(AT_SECURE) != 0 ? nullptr : std::getenv(name);
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
