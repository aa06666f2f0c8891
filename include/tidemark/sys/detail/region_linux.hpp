// SPDX-License-Identifier: MIT
// The contract of sys/region, on Linux:
//   look_at_region(begin, end, found)   null, or why nothing is known; `found` has a value or a reason for each figure
// `begin` is below `end`. Reasons live for ever. errno is untouched.
// Source: Documentation/filesystems/proc.rst (maps, smaps, numa_maps).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/order.hpp>
#include <tidemark/sys/detail/mappings_linux.hpp>
#include <tidemark/sys/detail/process_linux.hpp>
#include <tidemark/sys/detail/region_figures.hpp>
#include <tidemark/sys/detail/region_pages_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <algorithm>
  #include <cerrno>
  #include <cstdint>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

class region_look {
 public:
  region_look(std::uint64_t begin, std::uint64_t end, region_figures& found) noexcept
      : begin_(begin), end_(end), found_(found), pages_(found) {}

  [[nodiscard]] const char* run() {
    if (const char* why = read_maps()) return why;
    if (found_.kind == mapping_kind::file && found_.why_no_file == nullptr) find_code();
    finish_pages();
    found_.page_size.bytes = static_cast<std::int64_t>(pages_.page_bytes());
    if (may_have_larger_pages_ || !pages_.knows_huge()) read_sizes();
    return nullptr;
  }

 private:
  [[nodiscard]] const char* read_maps() {
    const system_file file(process_file(this_process_id, "maps"));
    std::uint64_t seen_to = begin_;
    const int failed = for_each_mapping_while(file, [&](const mapping_entry& m) {
      if (m.end <= seen_to) return true;
      if (m.begin > seen_to) return false;
      add(m, seen_to, lesser(m.end, end_));
      seen_to = lesser(m.end, end_);
      return seen_to < end_;
    });
    if (failed != 0) return why_no_mappings(this_process_id, failed);
    if (seen_to == begin_) return "nothing is mapped where the region begins";
    return seen_to < end_ ? "a part of the region is not mapped" : nullptr;
  }

  void add(const mapping_entry& m, std::uint64_t from, std::uint64_t to) {
    const mapping_kind kind = kind_of(m, true);
    const bool has_path = m.name_size > 0 && m.name_text[0] == '/';
    const std::string_view path = has_path ? m.name() : std::string_view();
    if (from == begin_) {
      found_.kind = kind;
      found_.file = path;
      if (!has_path) found_.why_no_file = "no file is mapped there";
    } else {
      const bool is_same = found_.file == path;
      if (!is_same) found_.why_no_file = "the region is in more than one mapping, and not all are of one file";
      if (is_same && has_path && kind == mapping_kind::code) {
        found_.kind = kind;
      } else if (kind != found_.kind && !(is_same && has_path)) {
        found_.why_no_kind = "the region is in mappings of more than one kind";
      }
    }
    const bool reaches_out = m.end > end_ && m.end - end_ >= pages_.page_bytes();
    is_whole_ = is_whole_ && m.begin >= begin_ / pages_.page_bytes() * pages_.page_bytes() && !reaches_out;
    // The pages of hugetlbfs have 64 KiB or more on systems of 64 bits, and always a name.
    may_have_larger_pages_ = may_have_larger_pages_ || (has_path && (m.begin | m.end) % 0x1'0000 == 0);
    ++mappings_;
    pages_.add(from, to, kind);
  }

  /// The data of a program lie in mappings of their own: others of the same file say that it is run.
  void find_code() {
    const system_file file(process_file(this_process_id, "maps"));
    const int failed = for_each_mapping_while(file, [&](const mapping_entry& m) {
      if (m.is_executable && m.name() == found_.file) found_.kind = mapping_kind::code;
      return found_.kind != mapping_kind::code;
    });
    if (failed != 0) found_.why_no_kind = why_no_mappings(this_process_id, failed);
  }

  void finish_pages() {
    if (found_.resident.why != nullptr) {
      found_.zero.why = found_.huge.why = found_.why_no_nodes = found_.resident.why;
      return;
    }
    if (pages_.nodes_error() != 0) {
      found_.zero.why = pages_.nodes_error() == ENOSYS
                            ? "move_pages() tells pages of zeros from others, and this kernel lacks it"
                            : "move_pages() tells pages of zeros from others, and is not permitted here";
      found_.nodes.clear();
      found_.why_no_nodes = is_whole_
                                ? read_numa_maps()
                                : "move_pages() is not to be had here (a container needs CAP_SYS_NICE for it), and "
                                  "numa_maps counts whole mappings, of which the region is a part";
      if (found_.why_no_nodes != nullptr) found_.nodes.clear();
    }
    std::sort(found_.nodes.begin(), found_.nodes.end(),
              [](const numa_share& a, const numa_share& b) { return a.node < b.node; });
  }

  /// "7f00 default anon=3 N0=1 N1=2 kernelpagesize_kB=4" for each mapping. Null, or why it does not count.
  [[nodiscard]] const char* read_numa_maps() {
    const system_file file(process_file(this_process_id, "numa_maps"));
    if (file.error() != 0) return "neither move_pages() nor /proc/self/numa_maps says where the pages are";
    line_reader<> lines(file);
    std::string_view line;
    std::int64_t counted = 0;
    while (lines.next(line)) {
      std::uint64_t begin = 0;
      if (lines.is_cut() || !take_number(line, begin, 16) || !take_prefix(line, " ")) {
        return "/proc/self/numa_maps ends early, or is no list of mappings";
      }
      if (begin >= end_) break;
      if (begin < begin_ / pages_.page_bytes() * pages_.page_bytes()) continue;
      ++counted;
      constexpr std::string_view size_key = "kernelpagesize_kB=";
      std::string_view size = line.substr(lesser(line.rfind(size_key), line.size()));
      std::uint64_t kibibytes = 0;
      if (!take_prefix(size, size_key) || !take_number(size, kibibytes) || kibibytes > 0x1'0000'0000) {
        return "/proc/self/numa_maps lacks the size of pages";
      }
      add_nodes(line, static_cast<std::int64_t>(kibibytes * 1'024 / pages_.page_bytes()));
    }
    if (lines.error() != 0) return "/proc/self/numa_maps cannot be read";
    return counted == mappings_ ? nullptr : "/proc/self/numa_maps does not list every mapping of the region";
  }

  void add_nodes(std::string_view line, std::int64_t pages_in_one) {
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      std::uint64_t node = 0;
      std::uint64_t count = 0;
      if (!take_prefix(word, "N") || !take_number(word, node) || !take_prefix(word, "=") || !take_number(word, count)) {
        continue;
      }
      if (node > 0xffff || count > (std::uint64_t{1} << 40)) continue;
      found_.add_pages(static_cast<int>(node), static_cast<std::int64_t>(count) * pages_in_one);
    }
  }

  /// What only the longer list says, for which the kernel walks the pages of all mappings before.
  void read_sizes() {
    const system_file file(process_file(this_process_id, "smaps"));
    const bool needs_huge = !pages_.knows_huge();
    if (needs_huge) found_.huge = {};
    std::int64_t page_size = -1;
    std::int64_t counted = 0;
    const int failed = for_each_mapping_while(file, [&](const mapping_entry& m) {
      if (m.end <= begin_) return true;
      if (m.begin >= end_) return false;
      ++counted;
      if (m.page_size < 0) found_.page_size.why = "this kernel does not say the size of a mapping's pages";
      if (page_size >= 0 && m.page_size != page_size) {
        found_.page_size.why = "the region is in mappings with pages of different sizes";
      }
      page_size = m.page_size;
      if (needs_huge) add_huge(m);
      return true;
    });
    if (failed != 0 || counted != mappings_) {
      found_.page_size.why = "/proc/self/smaps, which tells the size of pages, cannot be read or is not whole";
      if (needs_huge) found_.huge.why = "neither pagemap nor smaps in /proc/self says which pages are huge";
    }
    found_.page_size.bytes = page_size;
  }

  void add_huge(const mapping_entry& m) {
    const std::uint64_t within = lesser(m.end, end_) - greater(m.begin, begin_);
    if (m.huge < 0) {
      found_.huge.why = "this kernel does not say which pages are huge";
    } else if (m.huge == m.size() || within == m.end - m.begin) {
      found_.huge.bytes += lesser(m.huge, static_cast<std::int64_t>(within));
    } else if (m.huge > 0) {
      found_.huge.why =
          "before Linux 6.7 the kernel counts the huge pages of whole mappings, of which the region is a part";
    }
  }

  std::uint64_t begin_;
  std::uint64_t end_;
  region_figures& found_;
  region_pages pages_;
  std::int64_t mappings_ = 0;
  bool is_whole_ = true;
  bool may_have_larger_pages_ = false;
};

[[nodiscard]] inline const char* look_at_region(std::uint64_t begin, std::uint64_t end, region_figures& found) {
  return region_look(begin, end, found).run();
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
