// SPDX-License-Identifier: MIT
// A process and all below it, as a data loader with its workers: pages that they share after a fork count once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/sys/process.hpp>

namespace tidemark {
inline namespace v0 {

/// One process of a tree.
struct process_share {
  std::int64_t pid;
  std::int64_t parent;
  std::string name;  ///< as the kernel knows it: at most 15 bytes
  process_memory_full_reading memory;
};

struct process_tree_reading {
  /// What all of them hold, a shared page once; absent where one of them may not be read. A page that processes outside of
  /// the tree share too counts with the tree's part alone. Units: bytes.
  reading<std::int64_t> proportional_bytes = reading<std::int64_t>::absent("not read");
  std::vector<process_share> processes;  ///< the process itself first, a parent before its children
};

namespace detail {

/// The process and its descendants of one moment, with nothing read of them yet. Null, or why not.
[[nodiscard]] inline const char* list_tree(std::int64_t root, std::vector<process_share>& tree) {
  struct listed {
    std::int64_t pid, parent;
    std::string name;
  };
  std::vector<listed> all;
  const char* const why = os::for_each_process([&](std::int64_t pid, std::int64_t parent, std::string_view name) {
    all.push_back({pid, parent, std::string(name)});
  });
  if (why != nullptr) return why;
  const auto append = [&](auto belongs) {
    for (const listed& p : all) {
      if (belongs(p)) tree.push_back({p.pid, p.parent, p.name, {}});
    }
  };
  append([&](const listed& p) { return p.pid == root; });
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::int64_t parent = tree[i].pid;
    append([&](const listed& p) { return p.parent == parent && p.pid != root; });
  }
  return tree.empty() ? "no process has this number (any more)" : nullptr;
}

}  // namespace detail

/// The proportional set of a process and of all its descendants, and each of them. One that ends meanwhile is left out.
/// Threads: any. Throws: `std::bad_alloc`. The list is in no number. Cost: a look at every process of the system, and for each of
/// the tree what `process_memory_full()` costs. Source: /proc/PID/stat and smaps_rollup.
[[nodiscard]] inline process_tree_reading process_tree_memory(std::int64_t pid = this_process) {
  using bytes = reading<std::int64_t>;
  const quiet hidden;
  process_tree_reading r;
  const std::int64_t root = detail::os::process_number(pid);
  std::vector<process_share> tree;
  if (const char* why = detail::list_tree(root, tree)) {
    r.proportional_bytes = bytes::absent_because(why);
    return r;
  }
  std::int64_t sum = 0;
  std::string missing;
  for (process_share& p : tree) {
    p.memory = process_memory_full(p.pid == root ? pid : p.pid);
    if (!p.memory.proportional_bytes) {
      if (!detail::os::is_alive(p.pid)) continue;
      if (missing.empty()) {
        missing = "process " + std::to_string(p.pid) + " (" + p.name + ") cannot be counted: ";
        missing += p.memory.proportional_bytes.why();
      }
    } else {
      sum += *p.memory.proportional_bytes;
    }
    r.processes.push_back(std::move(p));
  }
  r.proportional_bytes = missing.empty() ? bytes(sum) : bytes::absent(missing);
  return r;
}

}  // namespace v0
}  // namespace tidemark
