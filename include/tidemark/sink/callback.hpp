// SPDX-License-Identifier: MIT
// Hands each record to a function of the user's.
#pragma once

#include <functional>
#include <utility>

#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>

namespace tidemark {
inline namespace v0 {

/// Calls `f` with each scope record, on the thread that closed the scope. What `f` allocates is never counted.
/// Threads: `f` may be called by several at once.
class callback_sink final : public sink {
 public:
  explicit callback_sink(std::function<void(const scope_record&)> f) : f_(std::move(f)) {}

  void on_scope(const scope_record& r) override { f_(r); }

 private:
  std::function<void(const scope_record&)> f_;
};

}  // namespace v0
}  // namespace tidemark
