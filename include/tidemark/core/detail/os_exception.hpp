// SPDX-License-Identifier: MIT
// The contract: find_exception_makers() names the functions that allocate exception objects, null where they are not known; and
// is_called_by(makers) says whether one of the innermost frames of this thread is in one of them. No allocation; the first may
// wait for the dynamic linker's lock, the second takes the unwinder's.
#pragma once

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX() && defined(__GNUC__)
  #define TIDEMARK_DETAIL_HAS_UNWINDER() 1
  #include <cstdint>

  #include <dlfcn.h>
  #include <unwind.h>
// Source: Itanium C++ ABI, 2.4.2 "Allocating the Exception Object". <cxxabi.h> declares more than is needed.
extern "C" void* __cxa_allocate_exception(decltype(sizeof 0)) noexcept;
#else
  #define TIDEMARK_DETAIL_HAS_UNWINDER() 0
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

struct exception_makers {
  const void* of_objects = nullptr;
  const void* of_dependents = nullptr;  // of std::rethrow_exception()
};

#if TIDEMARK_DETAIL_HAS_UNWINDER()

/// Where the function that holds this address begins, as the unwinder names it.
[[nodiscard]] inline const void* function_at(const void* code) noexcept {
  // The unwinder looks in front of a return address.
  const auto after = reinterpret_cast<std::uintptr_t>(code) + 1;
  return _Unwind_FindEnclosingFunction(reinterpret_cast<void*>(after));
}

[[nodiscard]] inline exception_makers find_exception_makers() noexcept {
  // In a program at a fixed address a name alone is a stub of the program's.
  const void* object = dlsym(RTLD_DEFAULT, "__cxa_allocate_exception");
  const void* dependent = dlsym(RTLD_DEFAULT, "__cxa_allocate_dependent_exception");
  if (object == nullptr) object = reinterpret_cast<const void*>(&__cxa_allocate_exception);
  return {function_at(object), dependent == nullptr ? nullptr : function_at(dependent)};
}

[[nodiscard]] inline bool is_called_by(const exception_makers& makers) noexcept {
  struct search {
    exception_makers makers;
    int frames_left = 12;  // those between, even where nothing was inlined
    bool is_found = false;
  } wanted{makers};
  if (makers.of_objects == nullptr) return false;
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* p) {
        auto& s = *static_cast<search*>(p);
        const auto* function = reinterpret_cast<const void*>(_Unwind_GetRegionStart(frame));
        s.is_found = function != nullptr && (function == s.makers.of_objects || function == s.makers.of_dependents);
        return s.is_found || --s.frames_left == 0 ? _URC_END_OF_STACK : _URC_NO_REASON;
      },
      &wanted);
  return wanted.is_found;
}

#else

[[nodiscard]] inline exception_makers find_exception_makers() noexcept { return {}; }
[[nodiscard]] inline bool is_called_by(const exception_makers&) noexcept { return false; }

#endif

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#undef TIDEMARK_DETAIL_HAS_UNWINDER
