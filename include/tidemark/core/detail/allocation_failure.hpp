// SPDX-License-Identifier: MIT
// An allocation fails: hooks and domains say so here, once for each, and whoever reports it has set the slot in the ledger.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

struct allocation_failure {
  std::uint64_t bytes;      // requested; the highest number where the request was larger than any
  std::string_view domain;  // whose limit refuses it; empty: the system has no memory
  std::int64_t live_bytes;  // of the domain
  std::int64_t limit_bytes;
};

inline void tell_failure(const allocation_failure& f) noexcept {
  auto* const report = ledger().on_failure.load(std::memory_order_acquire);  // pairs with report_on_out_of_memory()
  if (TIDEMARK_UNLIKELY(report != nullptr)) report(f);
}

/// Tells the failure of one allocation on the way out, by an exception too, unless it came right in the end.
class possible_failure {
 public:
  explicit possible_failure(std::uint64_t bytes) noexcept : bytes_(bytes) {}
  ~possible_failure() {
    if (TIDEMARK_UNLIKELY(has_failed_)) tell_failure({bytes_, {}, 0, 0});
  }
  possible_failure(const possible_failure&) = delete;
  possible_failure& operator=(const possible_failure&) = delete;

  void tried(const void* block) noexcept { has_failed_ = block == nullptr; }

 private:
  std::uint64_t bytes_;
  bool has_failed_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
