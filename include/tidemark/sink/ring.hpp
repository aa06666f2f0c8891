// SPDX-License-Identifier: MIT
// The last records, kept in memory for the program itself to look at.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {

/// Keeps the last `capacity` scope records, in the order of their arrival. Threads: any.
class ring_sink final : public sink {
 public:
  /// Throws: `std::bad_alloc`.
  explicit ring_sink(std::size_t capacity) {
    const quiet hidden;
    kept_.resize(capacity);
  }

  void on_scope(const scope_record& r) override {
    if (kept_.empty()) return;
    auto record = std::make_shared<const scope_record>(r);
    {
      const detail::spin_guard held(lock_);
      kept_[arrived_++ % kept_.size()].swap(record);
    }
    // What was swapped out dies here, outside the lock.
  }

  /// The kept records, oldest first. Throws: `std::bad_alloc`. The copy is never in your numbers.
  [[nodiscard]] std::vector<scope_record> scopes() const {
    const quiet hidden;
    std::vector<std::shared_ptr<const scope_record>> found(kept_.size());
    std::size_t first = 0;
    {
      const detail::spin_guard held(lock_);
      for (std::size_t i = 0; i < found.size(); ++i) found[i] = kept_[i];
      first = arrived_;
    }
    std::vector<scope_record> records;
    records.reserve(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (const auto& r = found[(first + i) % found.size()]) records.push_back(*r);
    }
    return records;
  }

 private:
  mutable detail::leaf_lock lock_;
  std::vector<std::shared_ptr<const scope_record>> kept_;
  std::size_t arrived_ = 0;
};

}  // namespace v0
}  // namespace tidemark
