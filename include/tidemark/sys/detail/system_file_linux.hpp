// SPDX-License-Identifier: MIT
// Reading /proc and /sys without allocating: paths, files and lines in buffers of the caller's. Under another root where a
// test gave one.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/sys/detail/open_posix.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <atomic>
  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <cstring>
  #include <string_view>
  #include <type_traits>

  #include <fcntl.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// Registry of the folder that /proc and /sys are looked for in.
class TIDEMARK_EXPORT system_root {
 public:
  static constexpr std::uint64_t key = registry_key("system root");

  [[nodiscard]] const char* path() const noexcept {
    return path_.load(std::memory_order_acquire);
  }                                                                                          // pairs with move_to()
  void move_to(const char* path) noexcept { path_.store(path, std::memory_order_release); }  // pairs with path()
  void on_fork(fork_moment) noexcept {}

 private:
  std::atomic<const char*> path_{""};
};

/// From now on /proc and /sys are those in this folder; "" is the system's. For tests. `path` lives on.
inline void use_system_root(const char* path) noexcept {
  if (system_root* root = registry<system_root>()) root->move_to(path);
}

/// A path below the root, put together of texts and numbers.
class system_path {
 public:
  template <class... Parts>
  explicit system_path(const Parts&... parts) noexcept {
    if (const system_root* root = find_registry<system_root>()) add(root->path());
    (add(parts), ...);
  }

  void add(std::string_view text) noexcept {
    is_whole_ = is_whole_ && text.size() < sizeof text_ - used_ && text.find('\0') == std::string_view::npos;
    if (!is_whole_) return;
    if (!text.empty()) std::memcpy(text_ + used_, text.data(), text.size());
    used_ += text.size();
    text_[used_] = '\0';
  }
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  void add(Integer number) noexcept {
    char digits[24];
    std::size_t at = sizeof digits;
    auto rest = number > 0 ? static_cast<std::uint64_t>(number) : std::uint64_t{0};
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    add(std::string_view(digits + at, sizeof digits - at));
  }

  /// Empty, which names nothing, where it did not fit.
  [[nodiscard]] const char* c_str() const noexcept { return is_whole_ ? text_ : ""; }

 private:
  char text_[1'024] = "";
  std::size_t used_ = 0;
  bool is_whole_ = true;
};

/// A file of the system's while it is open, to be read.
class system_file {
 public:
  explicit system_file(const system_path& path) noexcept : file_(path.c_str(), O_RDONLY) {}

  /// Why it is not open, as an errno value; 0 where it is.
  [[nodiscard]] int error() const noexcept { return file_.error(); }

  /// How many bytes came, 0 at the end, or a negative errno value.
  [[nodiscard]] ssize_t read(char* to, std::size_t room) const noexcept {
    for (;;) {
      const ssize_t n = ::read(file_.descriptor(), to, room);
      if (n >= 0) return n;
      if (errno != EINTR) return -errno;
    }
  }

  /// As much as there is and fits, with a zero behind it, in `text`. Returns 0 or an errno value.
  template <std::size_t N>
  [[nodiscard]] int read_all(char (&buffer)[N], std::string_view& text) const noexcept {
    text = {};
    if (error() != 0) return error();
    std::size_t used = 0;
    while (used < N - 1) {
      const ssize_t n = read(buffer + used, N - 1 - used);
      if (n < 0) return static_cast<int>(-n);
      if (n == 0) break;
      used += static_cast<std::size_t>(n);
    }
    buffer[used] = '\0';
    text = {buffer, used};
    return 0;
  }

 private:
  opened_file file_;
};

/// The lines of a file, one after the other. What is longer than the buffer is cut, and its rest left out.
template <std::size_t N = 4'096>
class line_reader {
 public:
  explicit line_reader(const system_file& file) noexcept : file_(file), error_(file.error()) {}
  line_reader(const line_reader&) = delete;
  line_reader& operator=(const line_reader&) = delete;

  /// The next line without its newline, valid until the next call. False: there is none, or `error()`.
  [[nodiscard]] bool next(std::string_view& line) noexcept {
    for (;;) {
      const char* const from = buffer_ + begin_;
      const auto* end = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
      if (end != nullptr) {
        line = {from, static_cast<std::size_t>(end - from)};
        begin_ += line.size() + 1;
        if (!is_skipping_) return true;
        is_skipping_ = false;
        continue;
      }
      if (is_skipping_) {
        begin_ = end_ = 0;
      } else if (end_ - begin_ == N) {
        line = {from, N};
        begin_ = end_ = 0;
        is_skipping_ = true;
        return true;
      }
      if (!fill()) break;
    }
    if (is_skipping_ || begin_ == end_) return false;
    is_cut_ = true;
    line = {buffer_ + begin_, end_ - begin_};
    begin_ = end_;
    return true;
  }

  /// Why there are no more lines, as an errno value; 0 at the end of the file.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// The last line had no newline.
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }

 private:
  [[nodiscard]] bool fill() noexcept {
    if (error_ != 0 || is_over_) return false;
    if (begin_ > 0) std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const ssize_t n = file_.read(buffer_ + end_, N - end_);
    if (n < 0) error_ = static_cast<int>(-n);
    if (n <= 0) is_over_ = true;
    if (n > 0) end_ += static_cast<std::size_t>(n);
    return n > 0;
  }

  const system_file& file_;
  int error_;
  bool is_over_ = false;
  bool is_cut_ = false;
  bool is_skipping_ = false;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  char buffer_[N];
};

// ---- numbers in texts ----

inline void skip_blanks(std::string_view& text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

/// Takes a number in this base off the front, blanks before it too. False: there is none, or no 64 bits hold it.
[[nodiscard]] inline bool take_number(std::string_view& text, std::uint64_t& number, unsigned base = 10) noexcept {
  skip_blanks(text);
  const auto digit = [base](char c) noexcept -> unsigned {
    const unsigned d = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                       : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                       : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                                              : 99;
    return d < base ? d : 99;
  };
  std::uint64_t n = 0;
  std::size_t used = 0;
  for (; used < text.size(); ++used) {
    const unsigned d = digit(text[used]);
    if (d == 99) break;
    if (n > ~std::uint64_t{0} / base) return false;
    n *= base;
    if (n + d < n) return false;
    n += d;
  }
  if (used == 0) return false;
  text.remove_prefix(used);
  number = n;
  return true;
}

/// Takes `prefix` off the front. False: the text begins otherwise.
[[nodiscard]] inline bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// The word up to the next blank, taken off the front with the blanks before it.
inline std::string_view take_word(std::string_view& text) noexcept {
  skip_blanks(text);
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

/// "Rss:   12 kB" with the key "Rss:": whether it is that line and whole, and its number in bytes.
[[nodiscard]] inline bool take_kibibytes(std::string_view line, std::string_view key, std::int64_t& bytes) noexcept {
  std::uint64_t kibibytes = 0;
  if (!take_prefix(line, key) || !take_number(line, kibibytes) || line != " kB") return false;
  if (kibibytes > (~std::uint64_t{0} >> 1) / 1'024) return false;
  bytes = static_cast<std::int64_t>(kibibytes) * 1'024;
  return true;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
