// SPDX-License-Identifier: MIT
// A function of a driver's library, found by name at run time.
#pragma once

#include <cstring>

#include <tidemark/config/platform.hpp>
#include <tidemark/gpu/detail/library_linux.hpp>
#include <tidemark/gpu/detail/library_unknown.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// A function of a library that is found by name.
template <class Signature>
class symbol;
template <class... Args>
class symbol<int(Args...)> {
 public:
  /// The first of these that the library has.
  template <class... Names>
  void find(void* library, const Names*... names) noexcept {
    function_ = nullptr;
    (find_one(library, names), ...);
  }
  explicit operator bool() const noexcept { return function_ != nullptr; }
  int operator()(Args... args) const { return function_(args...); }

 private:
  void find_one(void* library, const char* name) noexcept {
    if (function_ != nullptr) return;
    void* const address = find_symbol(library, name);
    static_assert(sizeof address == sizeof function_, "POSIX: an object's pointer holds a function's");
    std::memcpy(&function_, &address, sizeof address);
  }
  int (*function_)(Args...) = nullptr;
};

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
