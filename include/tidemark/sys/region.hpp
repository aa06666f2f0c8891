// SPDX-License-Identifier: MIT
// What the operating system knows of a piece of this process's memory: a tensor, a cache, a file of weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/sys/detail/region_figures.hpp>
#include <tidemark/sys/detail/region_linux.hpp>
#include <tidemark/sys/detail/region_unknown.hpp>
#include <tidemark/sys/mappings.hpp>

namespace tidemark {
inline namespace v0 {

using detail::os::numa_share;

/// A region of memory now. Units: bytes of the region, never more than it has.
struct region_reading {
  using bytes = reading<std::int64_t>;

  bytes resident_bytes = bytes::absent("not read");  ///< in pages that this process has mapped in
  /// "pagemap"; "mincore" where that cannot be read, for anonymous memory alone, and it counts pages on their way to
  /// or from swap too; empty where nothing says.
  std::string_view resident_source;
  /// Of the resident ones, read but never written: they share one page of zeros, which the resident set leaves out.
  bytes zero_page_bytes = bytes::absent("not read");
  bytes huge_page_bytes = bytes::absent("not read");  ///< of the resident ones, in transparent huge pages or hugetlbfs
  /// Which NUMA node holds how many of the pages, in the order of the nodes. Pages of zeros are on none.
  reading<std::vector<numa_share>> numa_nodes = reading<std::vector<numa_share>>::absent("not read");
  bytes page_size_bytes = bytes::absent("not read");  ///< larger than the system's own in hugetlbfs alone
  bytes alignment = bytes::absent("not read");        ///< the largest power of two that divides the address
  reading<mapping_kind> kind = reading<mapping_kind>::absent("not read");
  reading<std::string> file = reading<std::string>::absent("not read");  ///< the one that is mapped there
};

namespace detail {

[[nodiscard]] inline reading<std::int64_t> reading_of(const os::region_sum& sum) noexcept {
  using bytes = reading<std::int64_t>;
  return sum.why == nullptr ? bytes(sum.bytes) : bytes::absent_because(sum.why);
}

template <class T>
[[nodiscard]] reading<T> value_unless(const char* why, T value) {
  return why == nullptr ? reading<T>(std::move(value)) : reading<T>::absent_because(why);
}

/// Null, or why these addresses are no region.
[[nodiscard]] inline const char* why_no_region(std::uintptr_t begin, std::size_t size) noexcept {
  if (begin == 0) return "a null pointer: there is no region";
  if (size == 0) return "a region of no bytes";
  return begin + size < begin ? "the region reaches beyond the last address" : nullptr;
}

}  // namespace detail

/// The `n` bytes at `p`, which need not be readable. Where a part is not mapped, every figure but the alignment is
/// absent. Pages that come and go meanwhile may be counted or not. Throws: `std::bad_alloc`. What it allocates is in
/// no number.
/// Cost: three system calls for each 2 MiB; 70 ms for a GiB of small pages that are touched (measured, Linux 6.18). A
/// walk over all pages of the process as in `mappings()` only for a file that may be in hugetlbfs, and before Linux
/// 6.7.
/// Source: /proc/self/pagemap, maps, smaps, numa_maps; move_pages(2), which a container may have to permit;
/// mincore(2).
[[nodiscard]] inline region_reading describe_region(const void* p, std::size_t n) {
  const quiet hidden;
  region_reading r;
  const auto begin = reinterpret_cast<std::uintptr_t>(p);
  r.alignment = p == nullptr ? reading<std::int64_t>::absent("a null pointer: there is no region")
                             : reading<std::int64_t>(static_cast<std::int64_t>(begin & (~begin + 1)));
  detail::os::region_figures f;
  const char* why = detail::why_no_region(begin, n);
  if (why == nullptr) why = detail::os::look_at_region(begin, begin + n, f);
  if (why != nullptr) {
    f.resident.why = f.zero.why = f.huge.why = f.page_size.why = why;
    f.why_no_nodes = f.why_no_kind = f.why_no_file = why;
  }
  r.resident_bytes = detail::reading_of(f.resident);
  if (r.resident_bytes) r.resident_source = f.resident_source;
  r.zero_page_bytes = detail::reading_of(f.zero);
  r.huge_page_bytes = detail::reading_of(f.huge);
  r.page_size_bytes = detail::reading_of(f.page_size);
  r.numa_nodes = detail::value_unless(f.why_no_nodes, std::move(f.nodes));
  r.kind = detail::value_unless(f.why_no_kind, f.kind);
  r.file = detail::value_unless(f.why_no_file, detail::plain_name(f.file));
  return r;
}

}  // namespace v0
}  // namespace tidemark
