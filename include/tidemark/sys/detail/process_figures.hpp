// SPDX-License-Identifier: MIT
// What the parts of sys/process hand each other, on every system.
#pragma once

#include <cstdint>
#include <string_view>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline constexpr std::int64_t this_process_id = 0;

/// Units: bytes; -1 where the file does not say.
struct status_figures {
  std::int64_t resident = -1;
  std::int64_t mark = -1;  // of the resident set
  std::int64_t virtual_size = -1;
  std::int64_t locked = -1;
  std::int64_t data = -1;
  std::int64_t swap = -1;
  std::int64_t of_files = -1;  // resident
  std::int64_t of_shared_memory = -1;

  [[nodiscard]] bool is_whole() const noexcept {
    return resident >= 0 && mark >= 0 && virtual_size >= 0 && locked >= 0 && data >= 0 && swap >= 0;
  }
};

/// Units: bytes; -1 where it is not known.
struct full_figures {
  std::int64_t proportional = -1;
  std::int64_t unique = -1;
  std::int64_t huge = -1;
};

/// Pages that a process had to be given, since it began.
struct fault_figures {
  std::int64_t minor_faults = -1;  // without input or output
  std::int64_t major_faults = -1;
};

/// What a mapping is used for.
enum class mapping_kind {
  heap,           ///< the one that grows and shrinks with brk()
  anonymous,      ///< of the allocator, or of whoever maps pages
  stack,          ///< of a thread
  code,           ///< a file that is run, with its data: a program, a library
  file,           ///< any other
  shared_memory,  ///< memfd, System V, shared anonymous pages
  kernel,         ///< vdso and the like
};

/// Units: bytes.
struct mapping_figures {
  mapping_kind kind;
  std::string_view name;  // as the kernel writes it
  std::int64_t size, resident, proportional, unique, huge, swap;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
