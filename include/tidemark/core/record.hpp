// SPDX-License-Identifier: MIT
// What sinks are given: plain data, complete and self-contained. Who makes a record and who writes it never meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/core/location.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {

/// What one meter of a scope read.
struct meter_reading {
  std::string_view meter;  ///< its name, kept for ever
  reading<window_usage> usage;
  std::string_view unit = "bytes";  ///< what `usage` counts
};

/// One scope, from its opening to its end.
struct scope_record {
  std::string name;                ///< as given; beyond 255 bytes shortened
  std::string path;                ///< "train step/forward"
  location where;                  ///< where the scope was opened
  std::uint64_t thread = 0;        ///< the system's id
  int depth = 0;                   ///< 0 is outermost
  std::int64_t start_ns = 0;       ///< steady clock
  std::int64_t duration_ns = 0;    ///< steady clock
  bool left_by_exception = false;  ///< it ended while an exception unwound it
  reading<std::int64_t> owned_bytes = reading<std::int64_t>::absent("not asked");  ///< still owned by the path
  std::vector<meter_reading> meters;  ///< in the order of the scope's meters

  /// The reading of that meter, or null.
  [[nodiscard]] const meter_reading* find(std::string_view meter) const noexcept {
    for (const meter_reading& m : meters) {
      if (m.meter == meter) return &m;
    }
    return nullptr;
  }
};

/// A domain, in a sample.
struct domain_sample {
  std::string_view name;  ///< kept for ever
  usage current;
  std::int64_t limit_bytes = -1;  ///< -1: none
  bool is_external = false;       ///< not part of the heap
};

/// A device, in a sample.
struct device_sample {
  std::string_view uuid, name;                    ///< kept for ever
  reading<std::int64_t> total_bytes, used_bytes;  ///< of all processes
  reading<std::int64_t> process_bytes;            ///< of this one
  std::string_view source;                        ///< who said so: "nvml", "cuda", "sysfs"; kept for ever
  std::int64_t time_ns = 0;                       ///< when, by the sample's clock: devices are asked less often
};

/// The state of the process at one moment. Threads: complete when a sink sees it.
struct sample_record {
  std::int64_t time_ns = 0;  ///< steady clock
  reading<usage> heap = reading<usage>::absent("not sampled");
  reading<std::int64_t> resident_bytes = reading<std::int64_t>::absent("not sampled");
  reading<std::int64_t> limit_bytes = reading<std::int64_t>::absent("not sampled");       ///< the limit nearest by
  reading<std::int64_t> limit_used_bytes = reading<std::int64_t>::absent("not sampled");  ///< what counts towards it
  std::string_view limit_source;  ///< "cgroup_v2", "host"; kept for ever
  std::vector<domain_sample> domains;
  std::vector<device_sample> devices;
  std::string_view why_no_devices;  ///< where there are none; kept for ever, null-terminated
};

/// A value crossed a threshold, or came back.
struct alert_record {
  std::string name;
  std::int64_t value_bytes = 0;
  std::int64_t threshold_bytes = 0;
  bool cleared = false;      ///< it came back
  std::int64_t time_ns = 0;  ///< steady clock
};

struct snapshot;

}  // namespace v0
}  // namespace tidemark
