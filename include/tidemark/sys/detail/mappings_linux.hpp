// SPDX-License-Identifier: MIT
// The mappings of a process, one after the other, as the kernel lists them. No allocation.
// Source: Documentation/filesystems/proc.rst (maps, smaps, smaps_rollup).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <cstring>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// One mapping. Units: bytes; -1 where the file does not say, as all of it in `maps`.
struct mapping_entry {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  char permissions[4] = {};  // "rwxp"
  std::uint64_t inode = 0;
  char name_text[4'096];  // as the kernel writes it: "\012" is a newline
  std::size_t name_size = 0;

  std::int64_t page_size = -1;
  std::int64_t resident = -1;
  std::int64_t proportional = -1;
  std::int64_t unique = -1;  // private pages, clean and dirty
  std::int64_t anonymous = -1;
  std::int64_t huge =
      -1;  // anonymous, of files and of shared memory; and those of hugetlbfs, which `resident` leaves out
  std::int64_t swap = -1;
  std::int64_t locked = -1;

  [[nodiscard]] bool has_figures() const noexcept {
    return resident >= 0 && proportional >= 0 && unique >= 0 && huge >= 0 && swap >= 0;
  }
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(end - begin); }
  [[nodiscard]] std::string_view name() const noexcept { return {name_text, name_size}; }
  [[nodiscard]] bool is_executable() const noexcept { return permissions[2] == 'x'; }
  [[nodiscard]] bool is_shared() const noexcept { return permissions[3] == 's'; }
};

/// "55d0-55e0 r-xp 00001000 fe:00 1234   /usr/bin/cat": whether the line begins a mapping.
[[nodiscard]] inline bool take_mapping(std::string_view line, mapping_entry& m) noexcept {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t inode = 0;
  if (!take_number(line, begin, 16) || !take_prefix(line, "-") || !take_number(line, end, 16) || end < begin) {
    return false;
  }
  const std::string_view permissions = take_word(line);
  take_word(line);  // offset
  take_word(line);  // device
  if (permissions.size() != 4 || !take_number(line, inode)) return false;
  skip_blanks(line);
  m = mapping_entry();
  m.begin = begin;
  m.end = end;
  m.inode = inode;
  std::memcpy(m.permissions, permissions.data(), sizeof m.permissions);
  m.name_size = line.size() < sizeof m.name_text ? line.size() : sizeof m.name_text;
  if (m.name_size > 0) std::memcpy(m.name_text, line.data(), m.name_size);
  return true;
}

/// A line of figures below a mapping.
inline void take_mapping_figure(std::string_view line, mapping_entry& m) noexcept {
  const auto add = [line](std::string_view key, std::int64_t& sum) {
    std::int64_t bytes = 0;
    if (take_kibibytes(line, key, bytes)) sum = (sum < 0 ? 0 : sum) + bytes;
  };
  add("KernelPageSize:", m.page_size);
  add("Rss:", m.resident);
  add("Pss:", m.proportional);
  add("Private_Clean:", m.unique);
  add("Private_Dirty:", m.unique);
  add("Private_Hugetlb:", m.unique);
  add("Anonymous:", m.anonymous);
  add("AnonHugePages:", m.huge);
  add("ShmemPmdMapped:", m.huge);
  add("FilePmdMapped:", m.huge);
  add("Shared_Hugetlb:", m.huge);
  add("Private_Hugetlb:", m.huge);
  add("Swap:", m.swap);
  add("Locked:", m.locked);
}

/// Calls `f(const mapping_entry&)` for each mapping of a `maps` or `smaps` file until it returns false. Returns 0, an errno
/// value, or EBADMSG where the file ends within a mapping or lacks figures: sums would be a part of the truth.
template <class F>
[[nodiscard]] int for_each_mapping(const system_file& file, bool with_figures, F f) {
  line_reader<> lines(file);
  mapping_entry m;
  mapping_entry next;
  bool has_mapping = false;
  bool is_ended = false;  // by VmFlags, the last of a mapping's figures
  const auto is_whole = [&] { return !with_figures || (is_ended && m.has_figures()); };
  std::string_view line;
  while (lines.next(line)) {
    if (lines.is_cut()) return EBADMSG;
    if (take_mapping(line, next)) {
      if (has_mapping && !is_whole()) return EBADMSG;
      if (has_mapping && !f(static_cast<const mapping_entry&>(m))) return 0;
      m = next;
      has_mapping = true;
      is_ended = false;
    } else if (has_mapping) {
      is_ended = is_ended || take_prefix(line, "VmFlags:");
      take_mapping_figure(line, m);
    } else {
      return EBADMSG;
    }
  }
  if (lines.error() != 0) return lines.error();
  if (!has_mapping) return 0;
  if (!is_whole()) return EBADMSG;
  static_cast<void>(f(static_cast<const mapping_entry&>(m)));
  return 0;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
