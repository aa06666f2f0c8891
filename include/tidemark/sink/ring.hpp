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
namespace detail {

/// The last `capacity` records of a kind. Threads: any.
template <class Record>
class record_ring {
 public:
  explicit record_ring(std::size_t capacity) {
    const quiet hidden;
    kept_.resize(capacity);
  }

  void add(const Record& r) {
    if (kept_.empty()) return;
    auto record = std::make_shared<const Record>(r);
    {
      const spin_guard held(lock_);
      kept_[arrived_++ % kept_.size()].swap(record);
    }
    // What was swapped out dies here, outside the lock.
  }

  /// Oldest first.
  [[nodiscard]] std::vector<Record> records() const {
    const quiet hidden;
    std::vector<std::shared_ptr<const Record>> found(kept_.size());
    std::size_t first = 0;
    {
      const spin_guard held(lock_);
      for (std::size_t i = 0; i < found.size(); ++i) found[i] = kept_[i];
      first = arrived_;
    }
    std::vector<Record> copies;
    copies.reserve(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (const auto& r = found[(first + i) % found.size()]) copies.push_back(*r);
    }
    return copies;
  }

 private:
  mutable leaf_lock lock_;
  std::vector<std::shared_ptr<const Record>> kept_;
  std::size_t arrived_ = 0;
};

}  // namespace detail

/// Keeps the last `capacity` records of each kind, in the order of their arrival. Threads: any.
class ring_sink final : public sink {
 public:
  /// Throws: `std::bad_alloc`.
  explicit ring_sink(std::size_t capacity) : scopes_(capacity), samples_(capacity), alerts_(capacity) {}

  void on_scope(const scope_record& r) override { scopes_.add(r); }
  void on_sample(const sample_record& r) override { samples_.add(r); }
  void on_alert(const alert_record& r) override { alerts_.add(r); }

  /// The kept records, oldest first. Throws: `std::bad_alloc`. The copy is never in your numbers.
  [[nodiscard]] std::vector<scope_record> scopes() const { return scopes_.records(); }
  [[nodiscard]] std::vector<sample_record> samples() const { return samples_.records(); }
  [[nodiscard]] std::vector<alert_record> alerts() const { return alerts_.records(); }

 private:
  detail::record_ring<scope_record> scopes_;
  detail::record_ring<sample_record> samples_;
  detail::record_ring<alert_record> alerts_;
};

}  // namespace v0
}  // namespace tidemark
