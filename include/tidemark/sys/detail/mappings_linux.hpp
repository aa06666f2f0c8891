// SPDX-License-Identifier: MIT
// The mappings of a process, one after the other, as the kernel lists them. No allocation of its own.
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

/// One mapping. Units: bytes; -1 where the file does not say.
struct mapping_entry {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool is_executable = false;
  char name_text[4'096];  // as the kernel writes it: "\012" is a newline
  std::size_t name_size = 0;

  std::int64_t resident = -1;
  std::int64_t proportional = -1;
  std::int64_t unique = -1;  // private pages, clean and dirty
  // Anonymous, of files and of shared memory; and those of hugetlbfs, which `resident` leaves out.
  std::int64_t huge = -1;
  std::int64_t swap = -1;
  std::int64_t locked = -1;  // the last that the kernel writes
  std::int64_t page_size = -1;

  [[nodiscard]] bool has_figures() const noexcept {
    return resident >= 0 && proportional >= 0 && unique >= 0 && huge >= 0 && swap >= 0 && locked >= 0;
  }
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(end - begin); }
  [[nodiscard]] std::string_view name() const noexcept { return {name_text, name_size}; }
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
  m.is_executable = permissions[2] == 'x';
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
  add("Rss:", m.resident);
  add("Pss:", m.proportional);
  add("Private_Clean:", m.unique);
  add("Private_Dirty:", m.unique);
  add("Private_Hugetlb:", m.unique);
  add("AnonHugePages:", m.huge);
  add("ShmemPmdMapped:", m.huge);
  add("FilePmdMapped:", m.huge);
  add("Shared_Hugetlb:", m.huge);
  add("Private_Hugetlb:", m.huge);
  add("Swap:", m.swap);
  add("Locked:", m.locked);
  add("KernelPageSize:", m.page_size);
}

/// Calls `f(const mapping_entry&)` for each mapping of a `maps` file, which has no figures, or of an `smaps` file, until it
/// returns false: the kernel then walks no further. Returns 0, an errno value, or EBADMSG where the file is no such list.
template <class F>
[[nodiscard]] int for_each_mapping_while(const system_file& file, F f) {
  line_reader<4'096 + 128> lines(file);  // the longest name, and what stands before it
  mapping_entry m;
  mapping_entry next;
  bool has_mapping = false;
  std::string_view line;
  while (lines.next(line)) {
    if (lines.is_cut()) return EBADMSG;
    if (take_mapping(line, next)) {
      if (has_mapping && !f(static_cast<const mapping_entry&>(m))) return 0;
      m = next;
      has_mapping = true;
    } else if (!has_mapping) {
      return EBADMSG;
    } else {
      take_mapping_figure(line, m);
    }
  }
  if (lines.error() != 0) return lines.error();
  if (has_mapping) f(static_cast<const mapping_entry&>(m));
  return 0;
}

/// The same for all of an `smaps` file. EBADMSG also where it ends within a mapping or lacks figures: sums would be a part of
/// the truth.
template <class F>
[[nodiscard]] int for_each_mapping(const system_file& file, F f) {
  bool is_whole = true;
  const int failed = for_each_mapping_while(file, [&](const mapping_entry& m) {
    is_whole = m.has_figures();
    if (is_whole) f(m);
    return is_whole;
  });
  return is_whole ? failed : EBADMSG;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
