// SPDX-License-Identifier: MIT
// A place in the source: std::source_location's shape in C++17.
#pragma once

#include <cstdint>

namespace tidemark {
inline namespace v0 {

/// File, line and function of a call. As a default argument, `location::current()` names the caller.
class location {
 public:
  constexpr location() noexcept = default;

  // g++ and clang++ evaluate these builtins where the outermost default argument is used.
  [[nodiscard]] static constexpr location current(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                                  const char* function = __builtin_FUNCTION()) noexcept {
    location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = static_cast<std::uint32_t>(line);
    return here;
  }

  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  [[nodiscard]] constexpr const char* function_name() const noexcept { return function_; }
  [[nodiscard]] constexpr std::uint32_t line() const noexcept { return line_; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  std::uint32_t line_ = 0;
};

}  // namespace v0
}  // namespace tidemark
