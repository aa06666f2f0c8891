// SPDX-License-Identifier: MIT
// What the parts of sys/host hand each other, on every system.
#pragma once

#include <cstdint>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// Units: bytes; -1 where the system does not say.
struct host_figures {
  std::int64_t total = -1;
  std::int64_t available = -1;
  std::int64_t swap_total = -1;
  std::int64_t swap_free = -1;

  [[nodiscard]] std::int64_t used() const noexcept { return total >= 0 && available >= 0 ? total - available : -1; }
  [[nodiscard]] std::int64_t swap_used() const noexcept {
    return swap_free >= 0 && swap_free <= swap_total ? swap_total - swap_free : -1;
  }
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
