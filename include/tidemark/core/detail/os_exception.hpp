// SPDX-License-Identifier: MIT
// The contract: exception_maker() names the function that allocates exception objects, null where it is not known; and
// is_called_by(function) says whether one of the innermost frames of this thread is in that function. No allocation; the first
// may wait for the dynamic linker's lock, the second takes the unwinder's.
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

#if TIDEMARK_DETAIL_HAS_UNWINDER()

/// Where the function that holds this address begins, as the unwinder names it.
[[nodiscard]] inline const void* function_at(const void* code) noexcept {
  // The unwinder looks in front of a return address.
  const auto after = reinterpret_cast<std::uintptr_t>(code) + 1;
  return _Unwind_FindEnclosingFunction(reinterpret_cast<void*>(after));
}

[[nodiscard]] inline const void* exception_maker() noexcept {
  // In a program at a fixed address the name alone is a stub of the program's.
  const void* found = dlsym(RTLD_DEFAULT, "__cxa_allocate_exception");
  return function_at(found != nullptr ? found : reinterpret_cast<const void*>(&__cxa_allocate_exception));
}

[[nodiscard]] inline bool is_called_by(const void* function) noexcept {
  struct search {
    const void* function;
    int frames_left = 12;  // those between, even where nothing was inlined
    bool is_found = false;
  } wanted{function};
  if (function == nullptr) return false;
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* p) {
        auto& s = *static_cast<search*>(p);
        s.is_found = reinterpret_cast<const void*>(_Unwind_GetRegionStart(frame)) == s.function;
        return s.is_found || --s.frames_left == 0 ? _URC_END_OF_STACK : _URC_NO_REASON;
      },
      &wanted);
  return wanted.is_found;
}

#else

[[nodiscard]] inline const void* exception_maker() noexcept { return nullptr; }
[[nodiscard]] inline bool is_called_by(const void*) noexcept { return false; }

#endif

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#undef TIDEMARK_DETAIL_HAS_UNWINDER
