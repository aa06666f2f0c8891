// SPDX-License-Identifier: MIT
// DEFINES what every hook header defines whatever its mode. How a hook starts, and how it finds out that events reach it.
#pragma once

#include <new>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <dlfcn.h>
#endif

// One strong symbol in every mode: including a hook twice is a link error that names its cause.
extern "C" {
TIDEMARK_EXPORT extern const char tidemark_only_one_cpp_may_include_a_hook_header;
const char tidemark_only_one_cpp_may_include_a_hook_header = 1;
}

// The ledger is prepared while the program has one thread, by the first event or here, whichever comes first: preparing it
// asks the dynamic linker, whose lock another thread could hold.
extern "C" __attribute__((constructor)) inline void tidemark_prepare_hook() {
  static_cast<void>(tidemark::detail::current_slot());
}

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// An event came through the hook's own functions on a thread whose word says that events pass.
TIDEMARK_CONSTINIT inline bool was_reached = false;

/// Set at the start where the hook cannot work: every event passes uncounted.
TIDEMARK_CONSTINIT inline bool passes_all = false;

[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool passes() noexcept { return own_thread.word == word_passing || passes_all; }

/// Whether `operator new` comes to this hook. A tool may intercept it, and another object may define it too.
[[nodiscard]] inline bool is_reached() noexcept {
  was_reached = false;
  void* probe = ::operator new(1, std::nothrow);
  asm volatile("" : "+r"(probe) : : "memory");  // without it the pair may be deleted
  ::operator delete(probe);
  return was_reached;
}

/// Why it does not.
[[nodiscard]] inline const char* why_not_reached() noexcept {
#if TIDEMARK_HAS_POSIX()
  Dl_info here{};
  Dl_info there{};
  void* (*const in_use)(std::size_t) = &::operator new;
  if (dladdr(&was_reached, &here) != 0 && dladdr(reinterpret_cast<void*>(in_use), &there) != 0 &&
      here.dli_fbase != there.dli_fbase) {
    return "the heap hook is linked, but another object comes before it and defines operator new: the hook "
           "belongs in the program itself, or in a library that is preloaded first";
  }
#endif
  return "the heap hook is linked, but operator new does not reach it: a tool intercepts it "
         "(for valgrind memcheck add --soname-synonyms=somalloc=nouserintercepts)";
}

/// What a hook's start says at its end, once its functions are in place.
[[nodiscard]] inline hook_start started(hook_kind kind, const char* limits, bool ask_sizes) noexcept {
  if (!is_reached()) return {hook_kind::none, why_not_reached(), false};
  return {kind, limits, ask_sizes};
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
