// SPDX-License-Identifier: MIT
// What sys/limit tells: which limit ends a program's growth first, how much room is left below it, who waits for memory
// already, and how often the kernel has killed for it.
#pragma once

#include <cstdint>
#include <string_view>

#include <tidemark/core/reading.hpp>

namespace tidemark {
inline namespace v0 {

/// What ends a program's growth first.
enum class limit_source {
  none,         ///< nothing is known that does
  cgroup_v2,    ///< memory.max of a control group, or of one above it
  cgroup_v1,    ///< memory.limit_in_bytes of one
  rlimit_as,    ///< RLIMIT_AS: all that is mapped, touched or not
  rlimit_data,  ///< RLIMIT_DATA: private writable mappings
  host,         ///< the memory of the machine
};

/// The name of the enumerator.
[[nodiscard]] constexpr std::string_view name_of(limit_source source) noexcept {
  switch (source) {
    case limit_source::cgroup_v2:
      return "cgroup_v2";
    case limit_source::cgroup_v1:
      return "cgroup_v1";
    case limit_source::rlimit_as:
      return "rlimit_as";
    case limit_source::rlimit_data:
      return "rlimit_data";
    case limit_source::host:
      return "host";
    case limit_source::none:
      break;
  }
  return "none";
}

/// The part of the last 10, 60 and 300 seconds in which tasks waited for memory. Units: percent.
struct memory_pressure {
  double average_10_s, average_60_s, average_300_s;
};

/// The nearest limit: of all that are known, the one with the least headroom. Units: bytes, but `oom_kills`.
struct memory_limit_reading {
  using bytes = reading<std::int64_t>;
  using pressure = reading<memory_pressure>;

  bytes limit_bytes = bytes::absent("not read");
  /// By all that the limit holds for; a cgroup's without its inactive file cache, which goes first.
  bytes used_bytes = bytes::absent("not read");
  bytes headroom_bytes = bytes::absent("not read");  ///< negative where a limit was lowered below what is used
  limit_source source = limit_source::none;
  std::string_view cgroup;  ///< the folder of the cgroup whose limit it is; empty for others; kept for ever
  /// The least memory.high on the way up, above which the kernel slows a program down: no limit.
  bytes high_bytes = bytes::absent("not read");
  /// Processes of the innermost memory cgroup that the kernel killed for memory, since it was made.
  bytes oom_kills = bytes::absent("not read");
  pressure some_pressure = pressure::absent("not read");  ///< at least one task waited
  pressure full_pressure = pressure::absent("not read");  ///< all of them did
  bool is_pressure_of_cgroup = false;                     ///< of the process's own cgroup; otherwise of the machine
  std::string_view not_seen;  ///< why another limit may be nearer; empty where every source was read; kept for ever
};

}  // namespace v0
}  // namespace tidemark
