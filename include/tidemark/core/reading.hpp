// SPDX-License-Identifier: MIT
// A reading is a value or the reason why there is none. Unknown is never 0.
#pragma once

#include <optional>  // lighter than a hand-written union: 0.3k lines on top of <string>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/core/detail/raise.hpp>

namespace tidemark {
inline namespace v0 {

/// A value, or the reason a person understands why it cannot be had.
/// Threads: as safe as a `T`. Allocates: only where the reason is a composed `std::string`.
template <class T>
class reading {
 public:
  reading(const T& value) : value_(value) {}
  reading(T&& value) : value_(std::move(value)) {}

  /// A reading without a value. A literal is kept by its address and costs nothing.
  template <std::size_t N>
  [[nodiscard]] static reading absent(const char (&literal)[N]) noexcept {
    return absent_because(literal);
  }
  /// The same for a reason put together at run time, which is copied.
  [[nodiscard]] static reading absent(std::string reason) {
    reading r;
    r.composed_ = std::move(reason);
    return r;
  }
  template <std::size_t N>
  [[nodiscard]] static reading absent(char (&buffer)[N]) {
    return absent(std::string(buffer));
  }
  [[nodiscard]] static reading absent(std::string_view reason) { return absent(std::string(reason)); }
  /// The same for a text that lives as long as the program does.
  [[nodiscard]] static reading absent_because(const char* text) noexcept {
    reading r;
    r.literal_ = text;
    return r;
  }

  explicit operator bool() const noexcept { return value_.has_value(); }
  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }

  /// The value. Throws: `std::logic_error` with `why()` where there is none.
  [[nodiscard]] const T& value() const& {
    require();
    return *value_;
  }
  [[nodiscard]] T value() && {
    require();
    return std::move(*value_);
  }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T operator*() && { return std::move(*this).value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }
  [[nodiscard]] T value_or(T other) const { return value_ ? *value_ : std::move(other); }

  /// The reason why there is no value; empty where there is one.
  [[nodiscard]] std::string_view why() const noexcept {
    return literal_ != nullptr ? std::string_view(literal_) : std::string_view(composed_);
  }

 private:
  reading() = default;
  void require() const {
    if (!value_) detail::raise_logic_error(literal_ != nullptr ? literal_ : composed_.c_str());
  }

  std::optional<T> value_;
  const char* literal_ = nullptr;
  std::string composed_;
};

}  // namespace v0
}  // namespace tidemark
