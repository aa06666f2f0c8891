// SPDX-License-Identifier: MIT
// Replaces the 8 `operator new` and the 12 `operator delete` of the program with counted ones over malloc and free.
// Include it in exactly one .cpp file. A second inclusion, or another hook header, does not link.
//
// Sees: new, delete, and what is built on them. Does not see: malloc and its family, mmap, other allocators' own calls.
// Cost: about 60 instructions per new and delete together, and 16 bytes per block; bench/README.md has the table.
// Under AddressSanitizer, ThreadSanitizer and MemorySanitizer it listens to the sanitizer instead, and sees malloc too.
// docs/semantics.md says what is counted, docs/hooks.md which hook is for which program.
#pragma once

#ifdef TIDEMARK_HOOK_INCLUDED
  #error "this file includes two of tidemark's hook headers: one file of a program includes one of them"
#endif
#define TIDEMARK_HOOK_INCLUDED 1

#include <cstdlib>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/detail/start.hpp>

#if TIDEMARK_OPT_DISABLE
  #include <tidemark/hook/detail/disabled.hpp>
#elif TIDEMARK_OPT_SANITIZER_HOOKS && TIDEMARK_HAS_SANITIZER_ALLOCATOR()
  #include <tidemark/hook/detail/sanitizer.hpp>
#else

  #include <tidemark/hook/detail/operators.hpp>
  #include <tidemark/hook/detail/paths.hpp>

  #if defined(__has_include)
    #if __has_include(<malloc.h>)
      #include <malloc.h>
    #endif
  #endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

bool find_allocator() noexcept {
  publish({&std::malloc, &std::free, &::posix_memalign, &::malloc_usable_size, nullptr, nullptr});
  return true;
}

TIDEMARK_CONSTINIT common_paths common(paths<false, false>);

inline hook_start start() noexcept {
  static_cast<void>(has_allocator());
  const bool ask_sizes = choose_paths<false>();
  return started(hook_kind::global_new, "", ask_sizes);
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    &tidemark::detail::own_ledger, TIDEMARK_OPT_SETTLE_BYTES, tidemark::detail::hook::start,
    tidemark::detail::hook::first_size_query, tidemark::detail::hook::guard_all<false>};

#endif
