// SPDX-License-Identifier: MIT
// The contract: say(text) writes one line, whole, to the standard error. It allocates nothing and cannot fail the caller,
// also where the standard error is a closed pipe or a full file.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_signal.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <unistd.h>
#else
  #include <cstdio>
#endif

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// What would break a line.
[[nodiscard]] constexpr bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; }

/// "tidemark: " and the parts, cut at 1,000 bytes; each control character as '?'.
inline void say(std::string_view first, std::string_view second = {}, std::string_view third = {},
                std::string_view fourth = {}) noexcept {
  char line[1'024];
  std::size_t used = 0;
  for (const std::string_view part : {std::string_view("tidemark: "), first, second, third, fourth}) {
    const std::size_t room = sizeof line - 1 - used;
    const std::size_t n = part.size() < room ? part.size() : room;
    if (n > 0) std::memcpy(line + used, part.data(), n);
    used += n;
  }
  for (std::size_t i = 0; i < used; ++i) {
    if (is_control(line[i])) line[i] = '?';  // a name may hold any
  }
  line[used++] = '\n';
#if TIDEMARK_HAS_POSIX()
  const signal_shield shield;
  // Nothing is left to tell a failure to.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, used);
#else
  std::fwrite(line, 1, used, stderr);
#endif
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
