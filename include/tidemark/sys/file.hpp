// SPDX-License-Identifier: MIT
// A file that lines are appended to, each with one write. Every failure is an answer, never a signal or an exception.
#pragma once

#include <atomic>
#include <cstddef>
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
  /// short, the next one begins on a line of its own; with `quoted`, a double quote that the cut left open is closed first.
  [[nodiscard]] int append(std::string_view line, bool quoted = false) noexcept {
    if (error_ != 0) return error_;
    if (descriptor_ < 0) return detail::os::write_stream(stream_, line);
    if (const int failed = flush()) return failed;
    std::size_t written = 0;
    const char* mend = mend_.exchange("", std::memory_order_relaxed);  // whoever writes next mends it
    const int failed = detail::os::write_line(descriptor_, mend, line, written);
    if (failed != 0) mend = mend_after(mend, line, written, quoted);
    if (failed != 0 && *mend != '\0') mend_.store(mend, std::memory_order_relaxed);  // pairs with the exchange
    return failed;
  }

  /// Appends `header`, a line, unless a path's file holds something already. Of several that begin the same file at once, also
  /// in other processes, one writes it. What the system cut short is completed by the next call. Returns 0 or an errno value.
  /// Threads: one at a time, before any `append`.
  [[nodiscard]] int begin(std::string_view header) noexcept {
    if (error_ != 0) return error_;
    if (descriptor_ < 0) return detail::os::write_stream(stream_, header);
    if (!owned_) return begin_here(header);
    const detail::os::file_lock alone(descriptor_);
    const bool is_mine = begun_ > 0 || detail::os::is_empty(descriptor_);
    return is_mine ? begin_here(header) : 0;
  }

  /// The system's words for an errno value. Allocates.
  [[nodiscard]] static std::string describe(int error) { return std::generic_category().message(error); }

 private:
  // A line cut within itself must be ended, one cut within its mending be mended further.
  [[nodiscard]] static const char* mend_after(const char* mend, std::string_view line, std::size_t written,
                                              bool quoted) noexcept {
    const std::size_t head = std::string_view(mend).size();
    if (written < head) return mend + written;
    const std::string_view part = line.substr(0, written - head);
    if (part.empty() || part.back() == '\n') return "";
    bool is_open = false;
    for (const char c : part) is_open ^= quoted && c == '"';
    return is_open ? "\"\n" : "\n";
  }
  [[nodiscard]] int flush() noexcept { return stream_ == nullptr ? 0 : detail::os::flush_stream(stream_); }
  [[nodiscard]] int begin_here(std::string_view header) noexcept {
    if (const int failed = flush()) return failed;
    std::size_t written = 0;
    const int failed = detail::os::write_line(descriptor_, "", header.substr(begun_), written);
    begun_ += written;
    return failed;
  }

  std::string name_ = "the stream";
  std::FILE* stream_ = nullptr;
  int descriptor_;
  int error_ = 0;
  bool owned_ = false;
  std::size_t begun_ = 0;  // how much of the header is out
  std::atomic<const char*> mend_{""};
};

}  // namespace v0
}  // namespace tidemark
