// SPDX-License-Identifier: MIT
// What the files of a memory cgroup say. Three system calls a file at the most, no allocation, errno untouched.
// Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, Documentation/accounting/psi.rst.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/small_file_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>
#include <tidemark/sys/limit_reading.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstdint>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline constexpr std::int64_t no_limit = static_cast<std::int64_t>(~std::uint64_t{0} >> 1);
inline constexpr std::int64_t unread = -1;
inline constexpr int not_asked = -1;

[[nodiscard]] constexpr bool is_limit(std::int64_t value) noexcept { return value >= 0 && value != no_limit; }

/// A number in a file.
struct file_figure {
  std::int64_t value = unread;
  int error = not_asked;  // 0, an errno value, or EBADMSG where the file holds anything else
};

/// "4096" or "max", or version 1's number for none, which depends on the page size. Sets `value` only to what it knows.
[[nodiscard]] inline bool take_limit(std::string_view text, std::int64_t& value) noexcept {
  std::uint64_t number = 0;
  if (text == "max") {
    value = no_limit;
  } else if (take_number(text, number) && text.empty()) {
    value = number >= std::uint64_t{1} << 62 ? no_limit : static_cast<std::int64_t>(number);
  } else {
    return false;
  }
  return true;
}

/// The number of a file that holds no other, or that of the line "key number".
[[nodiscard]] inline file_figure read_figure(const system_path& path, std::string_view key = {}) noexcept {
  file_figure found;
  small_file<> file(path);
  std::string_view line;
  found.error = file.error();
  if (found.error != 0) return found;
  while (file.next(line)) {
    if (take_prefix(line, key) && take_limit(line, found.value)) return found;
    if (key.empty()) break;
  }
  found.error = EBADMSG;
  return found;
}

// ---- pressure ----

/// "12.34". No locale decides what a point is.
[[nodiscard]] inline bool take_percent(std::string_view& text, double& percent) noexcept {
  std::uint64_t whole = 0;
  if (!take_number(text, whole) || whole > 100) return false;
  percent = static_cast<double>(whole);
  if (!take_prefix(text, ".")) return true;
  for (double place = 0.1; !text.empty() && text.front() >= '0' && text.front() <= '9'; place /= 10) {
    percent += place * (text.front() - '0');
    text.remove_prefix(1);
  }
  return true;
}

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"
[[nodiscard]] inline bool take_pressure(std::string_view line, std::string_view key, memory_pressure& p) noexcept {
  return take_prefix(line, key) && take_prefix(line, " avg10=") && take_percent(line, p.average_10_s) &&
         take_prefix(line, " avg60=") && take_percent(line, p.average_60_s) && take_prefix(line, " avg300=") &&
         take_percent(line, p.average_300_s) && take_prefix(line, " ");
}

struct pressure_figures {
  int error = not_asked;  // 0, an errno value, or EBADMSG where the file holds anything else
  memory_pressure some{};
  memory_pressure full{};
};

[[nodiscard]] inline pressure_figures read_pressure(const system_path& path) noexcept {
  pressure_figures found;
  small_file<> file(path);
  found.error = file.error();
  if (found.error != 0) return found;
  bool has_some = false;
  bool has_full = false;
  std::string_view line;
  while (file.next(line)) {
    has_some = has_some || take_pressure(line, "some", found.some);
    has_full = has_full || take_pressure(line, "full", found.full);
  }
  if (!has_some || !has_full) found.error = EBADMSG;
  return found;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
