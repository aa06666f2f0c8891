// SPDX-License-Identifier: MIT
// Guards over the heap: a region where nothing may be allocated, and a limit beyond which allocations fail. They need a
// heap hook, and raise std::logic_error with the reason where they would have no effect: a guard never holds because
// nothing was seen. With TIDEMARK_OPT_DISABLE=1 they do nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/testing/detail/enforcement.hpp>
#include <tidemark/testing/detail/process_limits.hpp>
#include <tidemark/testing/extent.hpp>

namespace tidemark {
inline namespace v0 {
namespace testing {

/// What a region does about an allocation.
enum class reaction {
  record,       ///< counts it
  abort,        ///< says on the standard error what was allocated, and calls std::abort
  throw_error,  ///< throws `forbidden_allocation` from `operator new`; counts what may not throw (malloc, nothrow new)
};

/// An allocation that a region was told of.
struct forbidden_attempt {
  std::uint64_t bytes = 0;   ///< as asked for
  std::uint64_t number = 0;  ///< counted from 1, in this region
  bool may_throw = false;    ///< it is `operator new`, which passes on what the callback throws
};

/// Thrown where nothing may be allocated.
class forbidden_allocation : public std::bad_alloc {
 public:
  forbidden_allocation(std::uint64_t bytes, const location& region) noexcept : bytes_(bytes) {
    std::snprintf(what_, sizeof what_, "an allocation of %llu bytes where none may be made (region opened at %s:%u)",
                  static_cast<unsigned long long>(bytes), region.file_name(), region.line());
  }
  [[nodiscard]] const char* what() const noexcept override { return what_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  char what_[256];
  std::uint64_t bytes_;
};

inline namespace TIDEMARK_TAG {

/// While one is open on this thread, the thread must not allocate from the heap: what it does is recorded, and reacted
/// to. Freeing is no allocation; a realloc is one. Regions nest: each is told of everything within it.
/// In a sanitizer build the region is told after the allocation, so that `throw_error` records.
/// Threads: opened and closed on one thread, in any order. Throws: `std::logic_error` without a hook.
/// Cost: where nothing is allocated, none in between.
class [[nodiscard]] no_allocation_region final : private detail::checks::thread_guard {
 public:
  explicit no_allocation_region(reaction what_to_do = reaction::record, location where = location::current())
      : reaction_(what_to_do), where_(where) {
    start();
  }
  /// `told(const forbidden_attempt&)` is called before each allocation, inside `quiet`. What it throws passes through
  /// where
  /// `may_throw` says so, and is said on the standard error elsewhere.
  template <class F, class = std::enable_if_t<std::is_invocable_v<F&, const forbidden_attempt&>>>
  explicit no_allocation_region(F told, location where = location::current())
      : reaction_(reaction::record), where_(where) {
    {
      const quiet hidden;
      told_ = std::move(told);
    }
    start();
  }
  ~no_allocation_region() {
    const quiet hidden;
    close();
    told_ = nullptr;
  }

  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_; }
  [[nodiscard]] std::uint64_t allocated_bytes() const noexcept { return allocated_bytes_; }
  [[nodiscard]] std::uint64_t largest_bytes() const noexcept { return largest_bytes_; }
  [[nodiscard]] std::uint64_t first_bytes() const noexcept { return first_bytes_; }

 private:
  void start() {
#if !TIDEMARK_OPT_DISABLE
    detail::checks::require("no_allocation_region", detail::checks::why_thread_unseen());
    open();
#endif
  }

  bool admits(detail::allocation_request& r) override {
    if (r.into != nullptr || r.is_exempt || r.is_repeated) return true;
    if (allocations_++ == 0) first_bytes_ = r.bytes;
    allocated_bytes_ += r.bytes;
    if (r.bytes > largest_bytes_) largest_bytes_ = r.bytes;
    const bool may_throw = r.caller == detail::allocation_caller::throwing_new;
    const quiet hidden;  // the reaction is not the region's
    if (told_ != nullptr) {
      tell({r.bytes, allocations_, may_throw});
    } else if (reaction_ == reaction::abort) {
      char line[300];
      std::snprintf(
          line, sizeof line, "an allocation of %llu bytes where none may be made; the region was opened at %s:%u in %s",
          static_cast<unsigned long long>(r.bytes), where_.file_name(), where_.line(), where_.function_name());
      detail::os::say(line);
      std::abort();
    } else if (reaction_ == reaction::throw_error && may_throw) {
      throw_forbidden(r.bytes);
    }
    return true;
  }

  void tell(const forbidden_attempt& attempt) {
    if (attempt.may_throw) return told_(attempt);
    detail::contain_exceptions([&] { told_(attempt); },
                               [](const char* what) {
                                 detail::os::say("the callback of a no_allocation_region threw: ", what,
                                                 "; malloc and nothrow new must not, so the allocation goes on");
                               });
  }

  [[noreturn]] void throw_forbidden([[maybe_unused]] std::uint64_t bytes) const {
#if TIDEMARK_HAS_EXCEPTIONS()
    throw forbidden_allocation(bytes, where_);
#else
    detail::raise_bad_alloc();
#endif
  }

  reaction reaction_;
  location where_;
  std::function<void(const forbidden_attempt&)> told_;
  std::uint64_t allocations_ = 0;
  std::uint64_t allocated_bytes_ = 0;
  std::uint64_t largest_bytes_ = 0;
  std::uint64_t first_bytes_ = 0;
};

/// While one is open on this thread, the regions opened before it on this thread are told of nothing. A region inside
/// it is.
/// Threads: opened and closed on one thread.
class [[nodiscard]] allow_allocations final : private detail::checks::thread_guard {
 public:
  allow_allocations() noexcept {
#if !TIDEMARK_OPT_DISABLE
    open();
#endif
  }
  ~allow_allocations() = default;

 private:
  bool admits(detail::allocation_request& r) noexcept override {
    r.is_exempt = true;
    return true;
  }
};

/// While one is open, allocations that would take the heap more than so many bytes above what was live at its opening
/// fail:
/// `new` throws `std::bad_alloc` (after the new-handler, which may make room), `malloc` returns null with ENOMEM.
/// Exactly that many bytes may be reached. What is given back always passes, and so does a realloc that shrinks. Of
/// several, each holds: the tightest refuses first.
/// `extent::thread`: this thread's heap, exact. `extent::process`: every thread's; their allocations take turns, so
/// that together they never pass the limit either; what another thread frees at the same moment may be seen too late,
/// which refuses early. What another thread had begun to allocate before the opening passes. A fork child is under the
/// limits of the thread that forked, and no others. A domain has a limit of its own.
/// Under hook/malloc the memory of exception objects is heap too: where it is refused, the C++ runtime takes it from a
/// reserve.
/// Threads: a thread's limit is opened and closed on that thread; the process's anywhere.
/// Throws: `std::invalid_argument` for negative bytes and for another extent; `std::logic_error` without a hook, and
/// with a sanitizer's, which cannot refuse.
/// Cost: about 250 instructions more for each new and delete meanwhile; of the process, also a step per thread.
class [[nodiscard]] heap_limit final : private detail::checks::thread_guard {
 public:
  explicit heap_limit(std::int64_t bytes, extent over = extent::thread) {
    if (bytes < 0) detail::raise_invalid_argument("tidemark::testing::heap_limit: the limit is negative");
    if (over.what() != extent::kind::thread && over.what() != extent::kind::process) {
      detail::raise_invalid_argument(
          "tidemark::testing::heap_limit: takes extent::thread or extent::process; a domain has domain::limit()");
    }
#if !TIDEMARK_OPT_DISABLE
    detail::checks::require("heap_limit", detail::checks::why_no_refusal());
    if (over.what() == extent::kind::process) {
      const quiet hidden;
      all_ = detail::registry<detail::checks::process_limits>();
      if (all_ == nullptr) detail::raise_bad_alloc();
      all_->open(process_, bytes);
      return;
    }
    ceiling_ = detail::checks::ceiling_above(detail::current_slot()->account.live(), bytes);
    open();
#endif
  }
  ~heap_limit() {
    if (all_ != nullptr) all_->close(process_);
  }

  /// How many allocations it refused so far.
  [[nodiscard]] std::uint64_t refusals() const noexcept {
    return all_ != nullptr ? all_->refusals(process_) : refusals_;
  }

 private:
  bool admits(detail::allocation_request& r) noexcept override {
    if (r.into != nullptr) return true;  // the heap below it asks again
    const detail::slot* s = detail::current_slot();
    if (s != nullptr && detail::checks::has_room(s->account.live(), ceiling_, r.bytes, r.replaced_bytes)) return true;
    ++refusals_;
    return false;
  }

  std::int64_t ceiling_ = 0;
  std::uint64_t refusals_ = 0;
  detail::checks::process_limits* all_ = nullptr;
  detail::checks::process_limit process_;
};

}  // namespace TIDEMARK_TAG
}  // namespace testing
}  // namespace v0
}  // namespace tidemark
