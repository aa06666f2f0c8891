// SPDX-License-Identifier: MIT
// Those who give memory back when a limit is near. They are sinks of samples in a list of their own: a program with caches and
// no other sink makes no records of its scopes.
#pragma once

#include <atomic>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

class TIDEMARK_EXPORT pressure_registry : public sink_registry {
 public:
  static constexpr std::uint64_t key = registry_key("pressure");

  /// By all of them, in answer to the sample that is being delivered.
  std::atomic<std::int64_t> given_back_bytes{0};
};

inline namespace TIDEMARK_TAG {

inline void relieve_pressure(const sample_record& s) noexcept {
  pressure_registry* const list = find_registry<pressure_registry>();
  if (list == nullptr || list->is_empty()) return;
  list->given_back_bytes.store(0, std::memory_order_relaxed);  // counter only
  call_sinks(list, [&](sink& target) { target.on_sample(s); });
}

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
