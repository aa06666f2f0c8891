// SPDX-License-Identifier: MIT
// A file that lines are appended to, each with one write. Every failure is an answer, never a signal or an exception.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <tidemark/sys/detail/file_posix.hpp>
#else
  #include <tidemark/sys/detail/file_stdio.hpp>
#endif

namespace tidemark {
inline namespace v0 {

/// A path opened for appending, or a `FILE*` that stays the caller's.
/// Threads: `append` from any; lines do not mix, in a pipe those of up to PIPE_BUF bytes (4,096 on Linux; pipe(7)).
class append_file {
 public:
  /// Makes the file if need be. A failure is told by `error()` and by every `append`.
  explicit append_file(std::string path)
      : name_("'" + path + "'"), descriptor_(detail::os::open_to_append(path.c_str())) {
    if (descriptor_ < 0) {
      error_ = -descriptor_;
    } else {
      owned_ = true;
    }
  }
  /// Lines go through the stream's descriptor after what the stream holds; a stream without one is written and flushed.
  explicit append_file(std::FILE* stream) noexcept
      : stream_(stream), descriptor_(stream == nullptr ? -1 : detail::os::descriptor_of(stream)) {
    if (stream == nullptr) error_ = static_cast<int>(std::errc::bad_file_descriptor);
  }
  append_file(const append_file&) = delete;
  append_file& operator=(const append_file&) = delete;
  ~append_file() {
    if (owned_) detail::os::close_descriptor(descriptor_);
  }

  /// How messages call it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Why it cannot be written at all, as an errno value; 0 where it can.
  [[nodiscard]] int error() const noexcept { return error_; }

  /// Appends `line`, which ends in a newline, with one write. Returns 0 or an errno value. After a line that the system cut
  /// short, the next one begins on a line of its own.
  [[nodiscard]] int append(std::string_view line) noexcept {
    if (error_ != 0) return error_;
    if (descriptor_ < 0) return detail::os::write_stream(stream_, line);
    if (stream_ != nullptr) {
      if (const int failed = detail::os::flush_stream(stream_)) return failed;
    }
    std::size_t written = 0;
    const bool torn = torn_.exchange(false, std::memory_order_relaxed);  // whoever writes next mends it
    const int failed = detail::os::write_line(descriptor_, torn, line, written);
    if (failed != 0 && (torn || written > 0)) torn_.store(true, std::memory_order_relaxed);  // pairs with the exchange
    return failed;
  }

  /// The system's words for an errno value. Allocates.
  [[nodiscard]] static std::string describe(int error) { return std::generic_category().message(error); }

 private:
  std::string name_ = "the stream";
  std::FILE* stream_ = nullptr;
  int descriptor_;
  int error_ = 0;
  bool owned_ = false;
  std::atomic<bool> torn_{false};
};

}  // namespace v0
}  // namespace tidemark
