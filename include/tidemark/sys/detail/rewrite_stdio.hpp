// SPDX-License-Identifier: MIT
// The contract of rewrite_posix.hpp where there is no POSIX: files are read; to rewrite one is answered with ENOSYS.
#pragma once

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <cstdio>
  #include <string>
  #include <string_view>
  #include <utility>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

[[nodiscard]] inline std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of("/\\");
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

[[nodiscard]] inline int read_whole(const std::string& path, std::size_t most, std::string& text) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return errno != 0 ? errno : EIO;
  text.clear();
  char part[16'384];
  int failed = 0;
  while (failed == 0) {
    const std::size_t n = std::fread(part, 1, sizeof part, file);
    if (n == 0) break;
    if (text.size() + n > most) failed = EFBIG;
    text.append(part, n);
  }
  if (failed == 0 && std::ferror(file) != 0) failed = EIO;
  std::fclose(file);
  return failed;
}

[[nodiscard]] inline int behind_links(std::string path, std::string& target) {
  target = std::move(path);
  return 0;
}

class folder_lock {
 public:
  explicit folder_lock(const std::string&, std::int64_t = 0) noexcept {}
  [[nodiscard]] int error() const noexcept { return ENOSYS; }
};

[[nodiscard]] inline int replace_whole(const std::string&, std::string_view) { return ENOSYS; }

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
