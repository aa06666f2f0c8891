// SPDX-License-Identifier: MIT
// A file of the system's that is small enough to be read at once: for whoever may only make so many system calls.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cstddef>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// What one read gives of a file, line by line. Three system calls, or one where it cannot be opened; two more while a
/// standard stream is closed. A line without its newline is none: a number in it may go on.
template <std::size_t N = 4'096>
class small_file {
 public:
  explicit small_file(const system_path& path) noexcept {
    const system_file file(path);
    error_ = file.error();
    if (error_ != 0) return;
    const ssize_t n = file.read(text_, N);
    if (n < 0) error_ = static_cast<int>(-n);
    if (n > 0) rest_ = {text_, static_cast<std::size_t>(n)};
    is_full_ = rest_.size() == N;
  }
  small_file(const small_file&) = delete;
  small_file& operator=(const small_file&) = delete;

  /// Why there is nothing, as an errno value; 0 where there is.
  [[nodiscard]] int error() const noexcept { return error_; }

  [[nodiscard]] bool next(std::string_view& line) noexcept {
    const std::size_t size = rest_.find('\n');
    if (size == std::string_view::npos) return false;
    line = rest_.substr(0, size);
    rest_.remove_prefix(size + 1);
    return true;
  }

  /// After the last line: whether there was more than whole lines, or than one read gives.
  [[nodiscard]] bool is_cut() const noexcept { return is_full_ || !rest_.empty(); }

 private:
  int error_ = 0;
  bool is_full_ = false;
  std::string_view rest_;
  char text_[N];
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
