// SPDX-License-Identifier: MIT
// Raises the errors of the standard that the library throws, and contains those of others, in code compiled with or without
// exceptions. libstdc++ exports the throwing functions, so the body is one and the same in both modes; without a handler the
// program ends with the message.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

#include <tidemark/config/platform.hpp>

#if !defined(_GLIBCXX_RELEASE) && !TIDEMARK_HAS_EXCEPTIONS()
  #include <cstdio>
  #include <cstdlib>
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
inline namespace TIDEMARK_ERROR_TAG {

#if defined(_GLIBCXX_RELEASE)
[[noreturn]] inline void raise_logic_error(const char* what) { std::__throw_logic_error(what); }
[[noreturn]] inline void raise_invalid_argument(const char* what) { std::__throw_invalid_argument(what); }
[[noreturn]] inline void raise_bad_alloc() { std::__throw_bad_alloc(); }
  #if _GLIBCXX_RELEASE >= 11
[[noreturn]] inline void raise_bad_array_new_length() { std::__throw_bad_array_new_length(); }
  #else
[[noreturn]] inline void raise_bad_array_new_length() { std::__throw_bad_alloc(); }
  #endif
#elif TIDEMARK_HAS_EXCEPTIONS()
[[noreturn]] inline void raise_logic_error(const char* what) { throw std::logic_error(what); }
[[noreturn]] inline void raise_invalid_argument(const char* what) { throw std::invalid_argument(what); }
[[noreturn]] inline void raise_bad_alloc() { throw std::bad_alloc(); }
[[noreturn]] inline void raise_bad_array_new_length() { throw std::bad_array_new_length(); }
#else
[[noreturn]] inline void raise_logic_error(const char* what) {
  std::fprintf(stderr, "tidemark: %s\n", what);
  std::abort();
}
[[noreturn]] inline void raise_invalid_argument(const char* what) { raise_logic_error(what); }
[[noreturn]] inline void raise_bad_alloc() { raise_logic_error("out of memory"); }
[[noreturn]] inline void raise_bad_array_new_length() {
  raise_logic_error("out of memory: more than an array can hold");
}
#endif

/// Runs `f` and keeps what it throws from the caller: `on_error(const char* what)` is told instead. Returns whether `f` ended.
template <class F, class OnError>
bool contain_exceptions(F f, OnError on_error) noexcept {
#if TIDEMARK_HAS_EXCEPTIONS()
  try {
    f();
    return true;
  } catch (const std::exception& e) {
    const char* what = e.what();
    on_error(what != nullptr ? what : "an exception without a text");
  } catch (...) {
    on_error("an exception that is no std::exception");
  }
  return false;
#else
  static_cast<void>(on_error);
  f();
  return true;
#endif
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
