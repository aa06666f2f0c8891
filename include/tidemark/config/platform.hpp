// SPDX-License-Identifier: MIT
// What the compiler and the target offer: detection as TIDEMARK_HAS_X(), attributes, and the namespace tag of this
// translation unit. Detection is function-like, so that a misspelling fails to compile.
#pragma once

#include <tidemark/config/config.hpp>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
  #define TIDEMARK_HAS_EXCEPTIONS() 1
#else
  #define TIDEMARK_HAS_EXCEPTIONS() 0
#endif

#if defined(__has_feature)
  #define TIDEMARK_DETAIL_FEATURE(x) __has_feature(x)
#else
  #define TIDEMARK_DETAIL_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || TIDEMARK_DETAIL_FEATURE(address_sanitizer)
  #define TIDEMARK_HAS_ASAN() 1
#else
  #define TIDEMARK_HAS_ASAN() 0
#endif

#if defined(__SANITIZE_THREAD__) || TIDEMARK_DETAIL_FEATURE(thread_sanitizer)
  #define TIDEMARK_HAS_TSAN() 1
#else
  #define TIDEMARK_HAS_TSAN() 0
#endif

#if TIDEMARK_DETAIL_FEATURE(memory_sanitizer)
  #define TIDEMARK_HAS_MSAN() 1
#else
  #define TIDEMARK_HAS_MSAN() 0
#endif

#undef TIDEMARK_DETAIL_FEATURE

// A sanitizer with an allocator of its own.
#define TIDEMARK_HAS_SANITIZER_ALLOCATOR() (TIDEMARK_HAS_ASAN() || TIDEMARK_HAS_TSAN() || TIDEMARK_HAS_MSAN())

#if defined(__clang__)
  #define TIDEMARK_HAS_CLANG() 1
#else
  #define TIDEMARK_HAS_CLANG() 0
#endif

#if defined(__linux__)
  #define TIDEMARK_HAS_LINUX() 1
#else
  #define TIDEMARK_HAS_LINUX() 0
#endif

#if defined(__unix__) || defined(__APPLE__)
  #define TIDEMARK_HAS_POSIX() 1
#else
  #define TIDEMARK_HAS_POSIX() 0
#endif

// One `add` to memory is a single instruction on x86-64, which neither compiler makes of a relaxed load, an addition and a
// relaxed store. The sanitizers that watch every access must see it, so they get the portable form.
#if defined(__x86_64__) && defined(__GNUC__) && !TIDEMARK_HAS_TSAN() && !TIDEMARK_HAS_MSAN()
  #define TIDEMARK_HAS_ADD_TO_MEMORY() 1
#else
  #define TIDEMARK_HAS_ADD_TO_MEMORY() 0
#endif

#if defined(__GNUC__)
  #define TIDEMARK_EXPORT __attribute__((visibility("default")))
  #define TIDEMARK_WEAK __attribute__((weak))
  #define TIDEMARK_ALWAYS_INLINE inline __attribute__((always_inline))
  #define TIDEMARK_NOINLINE __attribute__((noinline))
  #define TIDEMARK_COLD __attribute__((cold, noinline))
  #define TIDEMARK_LIKELY(x) __builtin_expect(static_cast<bool>(x), 1)
  #define TIDEMARK_UNLIKELY(x) __builtin_expect(static_cast<bool>(x), 0)
#else
  #define TIDEMARK_EXPORT
  #define TIDEMARK_WEAK
  #define TIDEMARK_ALWAYS_INLINE inline
  #define TIDEMARK_NOINLINE
  #define TIDEMARK_COLD
  #define TIDEMARK_LIKELY(x) (x)
  #define TIDEMARK_UNLIKELY(x) (x)
#endif

// What macros name their variables with.
#define TIDEMARK_DETAIL_JOIN_AGAIN(a, b) a##b
#define TIDEMARK_DETAIL_JOIN(a, b) TIDEMARK_DETAIL_JOIN_AGAIN(a, b)

// Fails to compile where a global would need a constructor at run time: hooks run before constructors do.
#if TIDEMARK_HAS_CLANG()
  #define TIDEMARK_CONSTINIT [[clang::require_constant_initialization]]
#elif defined(__GNUC__) && __GNUC__ >= 10
  #define TIDEMARK_CONSTINIT __constinit
#else
  #define TIDEMARK_CONSTINIT
#endif

// The tag of this translation unit's options: whatever depends on one is declared inside it.
#if TIDEMARK_OPT_DISABLE && TIDEMARK_HAS_EXCEPTIONS()
  #define TIDEMARK_TAG disabled
#elif TIDEMARK_OPT_DISABLE
  #define TIDEMARK_TAG disabled_without_exceptions
#elif TIDEMARK_HAS_EXCEPTIONS()
  #define TIDEMARK_TAG enabled
#else
  #define TIDEMARK_TAG enabled_without_exceptions
#endif

// The same for what depends on exceptions alone: program logic, which works alike with and without TIDEMARK_OPT_DISABLE.
#if TIDEMARK_HAS_EXCEPTIONS()
  #define TIDEMARK_ERROR_TAG throwing
#else
  #define TIDEMARK_ERROR_TAG aborting
#endif
