// SPDX-License-Identifier: MIT
// The domains and devices of a sample under names that are each there once: a series of figures has no other identity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Domains that share a name, added up.
struct named_domain {
  std::string name;
  std::int64_t live_bytes;
  reading<std::int64_t> peak_bytes;   ///< absent where several share it: their peaks may lie at different times
  reading<std::int64_t> limit_bytes;  ///< absent where one of them has none
};

/// A device under its uuid, or its name and place where the driver tells none. A second one of a name gets a number.
struct named_device {
  std::string name;
  const device_sample* of;
};

template <class Named>
[[nodiscard]] Named* find_named(std::vector<Named>& all, std::string_view name) noexcept {
  for (Named& n : all) {
    if (n.name == name) return &n;
  }
  return nullptr;
}

/// How a name is written. Names that differ in bad bytes alone may become the same.
using name_writer = std::string (*)(std::string_view);

[[nodiscard]] inline std::vector<named_domain> domains_by_name(const std::vector<domain_sample>& domains,
                                                               name_writer written = printable) {
  std::vector<named_domain> all;
  for (const domain_sample& d : domains) {
    std::string name = written(d.name);
    const auto limit = d.limit_bytes < 0 ? reading<std::int64_t>::absent("no limit") : d.limit_bytes;
    if (named_domain* same = find_named(all, name)) {
      same->live_bytes += d.current.live_bytes;
      same->peak_bytes = reading<std::int64_t>::absent("several domains share the name");
      if (same->limit_bytes) same->limit_bytes = limit ? *same->limit_bytes + *limit : limit;
    } else {
      all.push_back({std::move(name), d.current.live_bytes, d.current.peak_bytes, limit});
    }
  }
  return all;
}

[[nodiscard]] inline std::vector<named_device> devices_by_name(const std::vector<device_sample>& devices,
                                                               name_writer written = printable) {
  std::vector<named_device> all;
  for (const device_sample& d : devices) {
    const std::string name = written(d.uuid.empty() ? d.name : d.uuid);
    std::string told = name;
    for (int n = 2; find_named(all, told) != nullptr; ++n) told = name + " (" + std::to_string(n) + ")";
    all.push_back({told, &d});
  }
  return all;
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
