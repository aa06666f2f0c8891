// SPDX-License-Identifier: MIT
// Says what the programs beside it were built with, one "key: value" a line: instruction counts hold for one compiler
// and one C library only.
#include <cstdio>
#include <cstdlib>

#include <tidemark/config/platform.hpp>

#if defined(__GLIBC__)
  #include <gnu/libc-version.h>
#endif

int main() {
#if defined(__clang__)
  std::printf("compiler: clang %d.%d.%d\n", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  std::printf("compiler: g++ %d.%d.%d\n", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  std::printf("compiler: unknown\n");
#endif
#if defined(__GLIBC__)
  std::printf("libc: glibc %s\n", gnu_get_libc_version());
#else
  std::printf("libc: unknown\n");
#endif
#if defined(__x86_64__)
  std::printf("machine: x86-64\n");
#else
  std::printf("machine: other\n");
#endif

  // Whatever makes other code of the same sources.
#if !defined(__OPTIMIZE__)
  std::printf("unusual: not optimized\n");
#endif
#if defined(_FORTIFY_SOURCE)
  std::printf("unusual: _FORTIFY_SOURCE\n");
#endif
#if TIDEMARK_HAS_ASAN() || TIDEMARK_HAS_TSAN() || TIDEMARK_HAS_MSAN()
  std::printf("unusual: a sanitizer\n");
#endif
#if !TIDEMARK_HAS_EXCEPTIONS()
  std::printf("unusual: no exceptions\n");
#endif
#if TIDEMARK_OPT_DISABLE
  std::printf("unusual: TIDEMARK_OPT_DISABLE\n");
#endif
}
