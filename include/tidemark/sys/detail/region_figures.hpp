// SPDX-License-Identifier: MIT
// What the parts of sys/region hand each other, on every system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/process_figures.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// What a NUMA node holds of a region.
struct numa_share {
  int node;
  std::int64_t pages;  ///< of the system's own size, also where larger ones are in use
};

/// A sum of bytes, or why there is none.
struct region_sum {
  std::int64_t bytes = 0;
  const char* why = nullptr;
};

struct region_figures {
  region_sum resident;
  const char* resident_source = "";
  region_sum zero;
  region_sum huge;
  region_sum page_size;
  std::vector<numa_share> nodes;
  const char* why_no_nodes = nullptr;
  mapping_kind kind = mapping_kind::anonymous;
  const char* why_no_kind = nullptr;
  std::string file;  // as the kernel writes it
  const char* why_no_file = nullptr;

  void add_pages(int node, std::int64_t pages) {
    for (numa_share& share : nodes) {
      if (share.node == node) {
        share.pages += pages;
        return;
      }
    }
    nodes.push_back({node, pages});
  }
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
