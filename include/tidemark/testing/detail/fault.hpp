// SPDX-License-Identifier: MIT
// The keeper that lets chosen allocations fail, and what is said if the program does not live through it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/detail/os_exception.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/extent.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace checks {

/// Registry of what std::terminate calls after a keeper has said what it did.
struct TIDEMARK_EXPORT terminate_chain {
  static constexpr std::uint64_t key = registry_key("terminate chain");

  std::atomic<std::terminate_handler> next{nullptr};
  std::atomic<bool> is_telling{false};

  void on_fork(fork_moment) noexcept {}
};

inline namespace TIDEMARK_TAG {

[[noreturn]] inline void tell_and_terminate() noexcept {
  terminate_chain* chain = find_registry<terminate_chain>();
  // A handler that was set meanwhile may call this one, and be called by it.
  if (chain != nullptr && !chain->is_telling.exchange(true)) {
    for (gate_keeper* k = this_thread().keepers; k != nullptr; k = k->outer) k->on_terminate();
    if (const std::terminate_handler next = chain->next.load()) next();
  }
  std::abort();
}

inline void tell_at_terminate() noexcept {
  terminate_chain* chain = registry<terminate_chain>();
  if (chain == nullptr || std::get_terminate() == tell_and_terminate) return;
  os::keep_this_loaded();
  chain->next.store(std::set_terminate(tell_and_terminate));
}

class fault final : private thread_guard {
 public:
  fault() = default;

  /// Over a domain, or this thread's heap.
  void open(std::uint64_t nth, std::uint64_t count, const testing::extent& over) {
    for (const gate_keeper* k = this_thread().keepers; k != nullptr; k = k->outer) {
      if (!k->injects_failures()) continue;
      const quiet hidden;
      raise_logic_error(
          "tidemark::testing::fail_allocation: another one is open on this thread, and one allocation cannot be "
          "counted by "
          "both: end it first");
    }
    if (over.what() == testing::extent::kind::domain) {
      static_cast<void>(current_slot());
      require("fail_allocation", is_hidden() ? why_hidden : std::string_view());
      only_ = &over.of_domain()->node();
    } else if (over.what() == testing::extent::kind::thread) {
      require("fail_allocation", why_no_refusal());
    } else {
      raise_invalid_argument(
          "tidemark::testing::fail_allocation: takes extent::thread or a domain: several threads have no order to "
          "count in");
    }
    const quiet hidden;
    first_ = nth;
    count_ = count;
    if (only_ == nullptr) exception_makers_ = os::find_exception_makers();
    tell_at_terminate();
    thread_guard::open();
  }
  void close() noexcept { thread_guard::close(); }

  [[nodiscard]] std::uint64_t requests() const noexcept { return requests_; }
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
  [[nodiscard]] std::uint64_t failed_bytes() const noexcept { return failed_bytes_; }

 private:
  bool admits(allocation_request& r) noexcept override {
    // What is asked for below an allocation that was counted is that allocation.
    const int depth = this_thread().tracked_depth;
    if (depth > counted_depth_) return true;
    counted_depth_ = INT32_MAX;
    if (r.is_repeated || (r.is_inner && only_ == nullptr) || !is_concerned(r)) return true;
    if (r.into != nullptr) counted_depth_ = depth;
    if (r.caller == allocation_caller::c_family && os::is_called_by(exception_makers_)) return true;
    ++requests_;
    if (requests_ < first_ || requests_ - first_ >= count_) return true;
    if (failures_++ == 0) failed_bytes_ = r.bytes;
    return false;
  }

  [[nodiscard]] bool is_concerned(const allocation_request& r) const noexcept {
    if (r.caller == allocation_caller::told) return false;
    if (only_ == nullptr) return true;
    for (const domain_node* d = r.into; d != nullptr; d = d->parent()) {
      if (d == only_) return true;
    }
    return false;
  }

  [[nodiscard]] bool injects_failures() const noexcept override { return true; }

  void on_terminate() noexcept override {
    if (failures_ == 0) return;
    char line[200];
    std::snprintf(line, sizeof line,
                  "std::terminate was called after allocation %llu (%llu bytes) was made to fail: std::bad_alloc met a "
                  "function or a destructor that must not throw, or nothing caught it",
                  static_cast<unsigned long long>(first_), static_cast<unsigned long long>(failed_bytes_));
    os::say(line);
  }

  std::uint64_t first_ = 0;
  std::uint64_t count_ = 0;
  const domain_node* only_ = nullptr;  // null: the thread's heap
  os::exception_makers exception_makers_;
  int counted_depth_ = INT32_MAX;  // of tracked allocators around the one that was counted last
  std::uint64_t requests_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t failed_bytes_ = 0;
};

}  // namespace TIDEMARK_TAG
}  // namespace checks
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
