// SPDX-License-Identifier: MIT
// Who holds what at the moment when an allocation fails, on the standard error, before the exception is thrown.
//
//   tidemark::report_on_out_of_memory();   // at the start of main
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/allocation_failure.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/monitor/detail/largest.hpp>
#include <tidemark/sys/limit.hpp>
#include <tidemark/sys/process.hpp>

namespace tidemark {
inline namespace v0 {

struct out_of_memory_options {
  std::int64_t most_reports = 16;  ///< further failures are not reported; a program may try again and again
};

namespace detail {

/// A line of text put together where nothing may be allocated. What does not fit is cut.
class fixed_line {
 public:
  fixed_line& operator<<(std::string_view text) noexcept {
    const std::size_t room = sizeof text_ - used_;
    const std::size_t n = text.size() < room ? text.size() : room;
    if (n > 0) std::memcpy(text_ + used_, text.data(), n);
    used_ += n;
    return *this;
  }
  fixed_line& operator<<(std::int64_t bytes) noexcept { return *this << byte_text(bytes).view(); }
  fixed_line& operator<<(const reading<std::int64_t>& bytes) noexcept {
    return bytes.has_value() ? *this << *bytes : *this << "unknown (" << bytes.why() << ")";
  }
  [[nodiscard]] std::string_view view() const noexcept { return {text_, used_}; }

 private:
  char text_[900];
  std::size_t used_ = 0;
};

/// The names from the outermost scope in; of a deep path the innermost 32.
inline void append_path(fixed_line& line, const path_node& innermost) noexcept {
  const path_node* nodes[32];
  std::size_t count = 0;
  const path_node* node = &innermost;
  for (; node != nullptr && count < 32; node = node->parent) nodes[count++] = node;
  if (node != nullptr) line << ".../";
  while (count > 0) {
    line << nodes[--count]->name;
    if (count > 0) line << "/";
  }
}

/// Registry of the reports that are still to be made.
class TIDEMARK_EXPORT failure_reports {
 public:
  static constexpr std::uint64_t key = registry_key("failure reports");

  std::atomic<std::int64_t> left{0};

  // A fork does not wait for a report, which takes the locks that the fork holds. In the child nobody makes it any more.
  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::after_in_child) writer_.store(nullptr, std::memory_order_relaxed);  // the only thread
  }

  /// The reports of several threads come one after the other. Whatever fails while one is made is no failure of its own.
  template <class F>
  void with_turn(F f) noexcept {
    const void* const me = os::thread_mark();
    for (const void* writer = nullptr;
         !writer_.compare_exchange_weak(writer, me, std::memory_order_acquire);  // pairs with the store below
         writer = nullptr) {
      if (writer == me) return;
      os::pause_ns(50'000);
    }
    f();
    writer_.store(nullptr, std::memory_order_release);  // pairs with the exchange
  }

 private:
  std::atomic<const void*> writer_{nullptr};  // the thread whose turn it is
};

inline void write_report(const allocation_failure& f) noexcept {
  {
    fixed_line line;
    line << (f.domain.empty() ? "out of memory: " : "over a limit: ");
    if (f.bytes > static_cast<std::uint64_t>(INT64_MAX)) {
      line << "more than any memory holds";
    } else {
      line << static_cast<std::int64_t>(f.bytes);
    }
    line << " requested";
    if (f.domain.empty()) {
      line << ", and the allocator has none";
    } else {
      line << " from domain \"" << f.domain << "\", " << f.live_bytes << " in use";
      if (f.limit_bytes >= 0) line << " of " << f.limit_bytes;
    }
    os::say(line.view());
  }
  {
    fixed_line line;
    line << "  heap: ";
    if (ledger().hook == hook_kind::none) {
      line << "unknown (" << ledger().hook_reason << ")";
    } else {
      settle_own();
      const usage u = ledger().process.lifetime(ledger().settle_bytes);
      line << u.live_bytes << " live, peak " << u.peak_bytes;
    }
    os::say(line.view());
  }
  {
    fixed_line line;
    const process_memory_reading m = process_memory();
    const memory_limit_reading limit = memory_limit();
    line << "  resident: " << m.resident_bytes << ", mapped " << m.virtual_bytes;
    line << "; nearest limit: " << name_of(limit.source) << ", " << limit.used_bytes << " of " << limit.limit_bytes;
    os::say(line.view());
  }
  largest<domain_node*, 8> domains;
  auto* const all = find_registry<domain_registry>();
  for (domain_node* d = all == nullptr ? nullptr : all->newest(); d != nullptr; d = d->older) {
    domains.add(d->current().live_bytes, d);
  }
  for (const auto& d : domains) {
    fixed_line line;
    line << "  domain \"" << d.what->name << "\": " << d.bytes << " live";
    if (d.what->limit() >= 0) line << " of " << d.what->limit();
    os::say(line.view());
  }
  largest<const path_node*, 8> paths;
  if (const path_tree* tree = find_registry<path_tree>()) {
    for_each_path(tree->root(), [&](const path_node& n) {
      if (n.id != root_path_id) paths.add(own_bytes(n), &n);
    });
    paths.add(own_bytes(tree->other()), &tree->other());
  }
  for (const auto& p : paths) {
    fixed_line line;
    line << "  scope ";
    append_path(line, *p.what);
    line << ": " << p.bytes << " live";
    os::say(line.view());
  }
}

inline void report_failure(const allocation_failure& f) noexcept {
  const quiet hidden;
  auto* const reports = find_registry<failure_reports>();
  reports->with_turn([&] {
    const std::int64_t left =
        reports->left.load(std::memory_order_relaxed);  // by whoever has the turn, or to be set again
    if (left <= 0) return;
    reports->left.store(left - 1, std::memory_order_relaxed);
    write_report(f);
    if (left == 1) os::say("  further failures are not reported");
  });
}

}  // namespace detail

inline namespace TIDEMARK_TAG {

/// From now on each allocation that fails is reported on the standard error before its caller learns of it: what was asked
/// for, the heap, the resident set and the nearest limit, the domains and the scope paths that hold most. Reported are what a heap hook cannot allocate
/// (after the new-handlers; not what a test's fault injection refuses), and each `over_budget` of a domain. Without a hook only the latter;
/// a sanitizer tells its hook of no failure.
/// Threads: any; a second call sets how many reports are left. Allocates: nothing while it reports. A thread whose allocation
/// fails needs 48 KiB of stack (measured, -O2): not for programs with smaller ones.
/// Cost: some 65 system calls for each report (measured, cgroup v1), and one addition per scope path and slot. Does nothing
/// with TIDEMARK_OPT_DISABLE.
inline void report_on_out_of_memory([[maybe_unused]] out_of_memory_options options = {}) noexcept {
#if !TIDEMARK_OPT_DISABLE
  detail::os::keep_this_loaded();
  auto* const reports = detail::registry<detail::failure_reports>();
  if (reports == nullptr)
    return detail::os::say("failed allocations are not reported: no memory for the library's own state");
  reports->left.store(options.most_reports, std::memory_order_relaxed);                  // a hint
  detail::ledger().on_failure.store(detail::report_failure, std::memory_order_release);  // pairs with tell_failure()
#endif
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
