// SPDX-License-Identifier: MIT
// The contract of sys/file (see file_posix.hpp) where there is no POSIX: streams work, paths answer that they do not.
#pragma once

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdio>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline int open_to_append(const char*) noexcept { return -ENOSYS; }
inline void close_descriptor(int) noexcept {}
[[nodiscard]] inline int descriptor_of(std::FILE*) noexcept { return -1; }
[[nodiscard]] inline int flush_stream(std::FILE* stream) noexcept { return std::fflush(stream) == 0 ? 0 : EIO; }
[[nodiscard]] inline int write_stream(std::FILE* stream, std::string_view line) noexcept {
  return std::fwrite(line.data(), 1, line.size(), stream) == line.size() ? flush_stream(stream) : EIO;
}
[[nodiscard]] inline int write_line(int, std::string_view, std::string_view, std::size_t& written) noexcept {
  written = 0;
  return ENOSYS;
}
[[nodiscard]] inline bool is_empty(int) noexcept { return true; }
class file_lock {
 public:
  explicit file_lock(int) noexcept {}
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
