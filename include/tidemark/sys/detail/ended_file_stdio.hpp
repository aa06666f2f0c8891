// SPDX-License-Identifier: MIT
// The contract of ended_file_posix.hpp where there is no POSIX: answered with ENOSYS.
#pragma once

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class ended_file {
 public:
  [[nodiscard]] int open(const char*) noexcept { return ENOSYS; }
  [[nodiscard]] int append(std::string_view, std::size_t) noexcept { return ENOSYS; }
  void close() noexcept {}
  void abandon() noexcept {}
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
