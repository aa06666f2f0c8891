// SPDX-License-Identifier: MIT
// The pages of a region on Linux, a few at a time: which are mapped in, which are huge, on which NUMA node each is.
// What a system call refuses is told by `knows_huge()`, `nodes_error()` or a reason. errno is as before once an
// object is gone.
// Source: Documentation/admin-guide/mm/pagemap.rst, move_pages(2), mincore(2).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/order.hpp>
#include <tidemark/sys/detail/open_posix.hpp>
#include <tidemark/sys/detail/region_figures.hpp>
#include <tidemark/sys/detail/status_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <algorithm>
  #include <cerrno>
  #include <cstddef>
  #include <cstdint>

  #include <fcntl.h>
  #include <sys/ioctl.h>
  #include <sys/mman.h>
  #include <sys/syscall.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// Memory that no file, and no other process but by a fork, has a part in.
[[nodiscard]] constexpr bool is_private(mapping_kind kind) noexcept {
  return kind == mapping_kind::anonymous || kind == mapping_kind::heap || kind == mapping_kind::stack;
}

class region_pages {
 public:
  explicit region_pages(region_figures& found) noexcept
      : found_(found), pagemap_(process_file(this_process_id, "pagemap").c_str(), O_RDONLY) {
    found_.resident_source = "pagemap";
  }

  [[nodiscard]] std::uint64_t page_bytes() const noexcept { return page_bytes_; }
  /// Whether the kernel has said of every page so far whether it is a huge one.
  [[nodiscard]] bool knows_huge() const noexcept { return can_scan_; }
  /// Why it has not said where each page is, and which is of zeros, as an errno value; 0 where it has.
  [[nodiscard]] int nodes_error() const noexcept { return nodes_error_; }

  /// Adds what a mapping of that kind has of the region.
  void add(std::uint64_t begin, std::uint64_t end, mapping_kind kind) {
    for (std::uint64_t at = begin; at < end && at >= begin;) {
      const std::uint64_t first = at / page_bytes_ * page_bytes_;
      const std::uint64_t left = (end - 1 - first) / page_bytes_ + 1;
      const std::size_t count = left < at_once ? static_cast<std::size_t>(left) : at_once;
      look(first, count, kind);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t page = first + i * page_bytes_;
        sum_up(pages_[i], lesser(page + page_bytes_, end) - greater(page, begin));
      }
      at = first + count * page_bytes_;
    }
  }

 private:
  static constexpr std::size_t at_once = 512;

  struct page_state {
    bool is_present = false;
    bool is_zero = false;  // the kernel's one page of zeros
    bool is_huge = false;
    int node = -1;
  };

  // Source: linux/fs.h since Linux 6.7, PAGEMAP_SCAN.
  struct scan_range {
    std::uint64_t begin, end, categories;
  };
  struct scan_request {
    std::uint64_t size, flags, begin, end, walked_to, ranges, range_count, page_limit, inverted, all_of, any_of,
        answered;
  };
  static constexpr std::uint64_t category_huge = std::uint64_t{1} << 6;  // transparent or of hugetlbfs

  void look(std::uint64_t first, std::size_t count, mapping_kind kind) noexcept {
    std::fill_n(pages_, count, page_state());
    if (!read_pagemap(first, count) && !read_mincore(first, count, kind)) return;
    if (nodes_error_ == 0) ask_nodes(first, count, kind);
    if (can_scan_) scan_huge(first, count);
  }

  [[nodiscard]] bool read_pagemap(std::uint64_t first, std::size_t count) noexcept {
    constexpr std::uint64_t is_present = std::uint64_t{1} << 63;
    std::uint64_t entries[at_once];
    const std::size_t size = count * sizeof entries[0];
    const auto at = static_cast<off_t>(first / page_bytes_ * sizeof entries[0]);
    if (pagemap_.error() != 0) return false;
    if (::pread(pagemap_.descriptor(), entries, size, at) != static_cast<ssize_t>(size)) return false;
    for (std::size_t i = 0; i < count; ++i) pages_[i].is_present = (entries[i] & is_present) != 0;
    return true;
  }

  /// Of a file it would say what is in memory for anybody.
  [[nodiscard]] bool read_mincore(std::uint64_t first, std::size_t count, mapping_kind kind) noexcept {
    found_.resident_source = "mincore";
    if (!is_private(kind)) {
      found_.resident.why =
          "/proc/self/pagemap cannot be read, and mincore() says of files and of shared memory only what is in memory "
          "for "
          "any process";
      return false;
    }
    unsigned char in_memory[at_once] = {};  // here and below: MemorySanitizer does not see the kernel write
    if (::mincore(address(first), count * page_bytes_, in_memory) != 0) {
      found_.resident.why = "/proc/self/pagemap cannot be read, and mincore() fails";
      return false;
    }
    for (std::size_t i = 0; i < count; ++i) pages_[i].is_present = (in_memory[i] & 1) != 0;
    return true;
  }

  void ask_nodes(std::uint64_t first, std::size_t count, mapping_kind kind) noexcept {
    void* addresses[at_once];
    int answers[at_once] = {};
    std::size_t asked = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (pages_[i].is_present) addresses[asked++] = address(first + i * page_bytes_);
    }
    if (asked == 0) return;
    if (::syscall(SYS_move_pages, 0, asked, addresses, nullptr, answers, 0) != 0) {
      nodes_error_ = errno;
      return;
    }
    std::size_t answered = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!pages_[i].is_present) continue;
      const int answer = answers[answered++];
      if (answer >= 0) pages_[i].node = answer;
      pages_[i].is_zero = answer == -EFAULT && is_private(kind);  // elsewhere it is a device's memory
    }
  }

  void scan_huge(std::uint64_t first, std::size_t count) noexcept {
    const std::uint64_t end = first + count * page_bytes_;
    scan_range ranges[16] = {};
    for (std::uint64_t at = first; at < end;) {
      scan_request request{};
      request.size = sizeof request;
      request.begin = at;
      request.end = end;
      request.ranges = reinterpret_cast<std::uintptr_t>(ranges);
      request.range_count = sizeof ranges / sizeof ranges[0];
      request.all_of = request.answered = category_huge;
      const int n = ::ioctl(pagemap_.descriptor(), _IOWR('f', 16, scan_request), &request);
      if (n < 0 || request.walked_to <= at) {
        can_scan_ = false;
        return;
      }
      for (int r = 0; r < n; ++r) {
        for (std::uint64_t page = ranges[r].begin; page < ranges[r].end; page += page_bytes_) {
          pages_[(page - first) / page_bytes_].is_huge = true;
        }
      }
      at = request.walked_to;
    }
  }

  void sum_up(const page_state& page, std::uint64_t size) {
    if (!page.is_present) return;
    const auto bytes = static_cast<std::int64_t>(size);
    found_.resident.bytes += bytes;
    if (page.is_zero) found_.zero.bytes += bytes;
    if (page.is_huge && !page.is_zero) found_.huge.bytes += bytes;
    if (page.node >= 0) found_.add_pages(page.node, 1);
  }

  [[nodiscard]] static void* address(std::uint64_t at) noexcept {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at));
  }

  region_figures& found_;
  opened_file pagemap_;
  std::uint64_t page_bytes_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  int nodes_error_ = 0;
  bool can_scan_ = true;
  page_state pages_[at_once];
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
