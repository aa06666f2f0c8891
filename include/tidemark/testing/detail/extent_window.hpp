// SPDX-License-Identifier: MIT
// A window over whatever extent a check names.
#pragma once

#include <optional>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/meter/process_heap.hpp>
#include <tidemark/scope/meter/task_heap.hpp>
#include <tidemark/scope/meter/thread_heap.hpp>
#include <tidemark/testing/extent.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {
inline namespace TIDEMARK_TAG {

/// One more window over a task that is open. Threads: opened, read and closed by any.
class task_window {
 public:
  explicit task_window(const task_token& token) noexcept : token_(token) {
    if (!token) return;
    node_ = take_node(ledger().free_windows);
    if (node_ == nullptr) return;
    if (ledger().process.open_in_task(*token.task, token.ticket, *node_, own_account())) return;
    give_node_back(ledger().free_windows, *node_);
    node_ = nullptr;
  }
  ~task_window() {
    if (node_ == nullptr) return;
    ledger().process.close_in_task(*token_.task, token_.ticket, *node_);
    give_node_back(ledger().free_windows, *node_);
  }
  task_window(const task_window&) = delete;
  task_window& operator=(const task_window&) = delete;

  [[nodiscard]] reading<window_usage> usage() const {
    using absent = reading<window_usage>;
    window_usage u;
    if (node_ == nullptr ||
        !ledger().process.read_in_task(*token_.task, token_.ticket, *node_, own_account(), ledger().settle_bytes, u)) {
      return absent::absent("the task is over, or never was: its scope must stay open until the check has ended");
    }
    if (ledger().process.misses_a_thread(*token_.task)) {
      return absent::absent("a thread that joined the task is not counted: it was ending, or memory ran out");
    }
    return u;
  }

 private:
  [[nodiscard]] static thread_account* own_account() noexcept {
    slot* s = current_slot();
    return s == nullptr ? nullptr : &s->account;
  }

  task_token token_;
  window_node* node_ = nullptr;
};

/// A window over a domain.
class domain_extent_window {
 public:
  explicit domain_extent_window(const domain& d) noexcept : all_(registry<domain_registry>()) {
    if (all_ != nullptr) window_ = all_->take_window();
    if (window_ != nullptr) d.node().open(*window_);
  }
  ~domain_extent_window() {
    if (window_ == nullptr) return;
    static_cast<void>(window_->node->close(*window_));
    all_->give_back(*window_);
  }
  domain_extent_window(const domain_extent_window&) = delete;
  domain_extent_window& operator=(const domain_extent_window&) = delete;

  [[nodiscard]] reading<window_usage> usage() const {
    if (window_ == nullptr) return reading<window_usage>::absent("no memory for a window over the domain");
    return window_->node->read(*window_);
  }

 private:
  domain_registry* all_;
  domain_window* window_ = nullptr;
};

/// Opened last before what is checked, and read first after it.
class extent_window {
 public:
  explicit extent_window(const testing::extent& over) {
    switch (over.what()) {
      case testing::extent::kind::thread:
        thread_.emplace();
        break;
      case testing::extent::kind::process:
        process_.emplace();
        break;
      case testing::extent::kind::task:
        task_.emplace(over.task());
        break;
      case testing::extent::kind::domain:
        domain_.emplace(*over.of_domain());
        break;
    }
  }

  [[nodiscard]] reading<window_usage> usage() const {
    if (thread_) return thread_->usage();
    if (process_) return process_->usage();
    if (task_) return task_->usage();
    return domain_->usage();
  }

 private:
  std::optional<meter::thread_heap::window> thread_;
  std::optional<meter::process_heap::window> process_;
  std::optional<task_window> task_;
  std::optional<domain_extent_window> domain_;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
