// SPDX-License-Identifier: MIT
// Named accounts that a user feeds: "weights", "kv cache", "device 0". Exact, from any thread, with or without a heap hook,
// and with a limit where one is set.
//
//   tidemark::domain weights("weights", {64 << 20});   // at most 64 MiB
//   weights.allocated(pool_bytes);                     // by hand, for a pool, a device, a mapping
//   std::vector<float, tidemark::allocator<float>> w(n, 0.0F, weights);   // or by an allocator (alloc/)
//
// A domain that is fed by host memory is a part of the heap and not added to it; one that is `external` is not in the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/allocation_failure.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/gate_keeper.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {

/// Thrown where an allocation would take a domain over its limit. Nothing was allocated or counted.
class TIDEMARK_EXPORT over_budget : public std::bad_alloc {
 public:
  over_budget(std::string_view domain_name, std::int64_t requested, std::int64_t live, std::int64_t limit) noexcept
      : requested_bytes_(requested), live_bytes_(live), limit_bytes_(limit) {
    add("domain \"");
    add_name(domain_name);
    add("\" is over its limit: ");
    add(detail::byte_text(requested).view());
    add(" requested, ");
    add(detail::byte_text(live).view());
    if (limit >= 0) {
      add(" of ");
      add(detail::byte_text(limit).view());
    }
    add(" in use");
  }

  /// One line, for a person.
  [[nodiscard]] const char* what() const noexcept override { return what_; }
  [[nodiscard]] std::int64_t requested_bytes() const noexcept { return requested_bytes_; }
  /// What was live, and what others were about to allocate.
  [[nodiscard]] std::int64_t live_bytes() const noexcept { return live_bytes_; }
  /// -1: none; it would be more than a number can hold.
  [[nodiscard]] std::int64_t limit_bytes() const noexcept { return limit_bytes_; }

 private:
  void add_name(std::string_view name) noexcept {
    std::size_t keep = 60;
    if (name.size() > keep) {
      while (keep > 57 && (static_cast<unsigned char>(name[keep]) & 0xC0U) == 0x80) --keep;  // not inside a character
      name = name.substr(0, keep);
    }
    for (const char c : name) {
      const char shown = detail::os::is_control(c) ? '?' : c;
      add({&shown, 1});
    }
  }
  void add(std::string_view text) noexcept {
    const std::size_t room = sizeof what_ - 1 - used_;
    const std::size_t n = text.size() < room ? text.size() : room;
    std::memcpy(what_ + used_, text.data(), n);
    used_ += n;
  }

  std::int64_t requested_bytes_;
  std::int64_t live_bytes_;
  std::int64_t limit_bytes_;
  std::size_t used_ = 0;
  char what_[192] = {};
};

/// What a listener is told when a domain comes near its limit.
struct near_limit {
  std::string_view name;  ///< of the domain; kept for ever
  std::int64_t live_bytes;
  std::int64_t limit_bytes;
};

inline namespace TIDEMARK_ERROR_TAG {
class domain;

/// How a domain begins.
struct domain_options {
  std::int64_t limit_bytes = -1;  ///< the most that may be live; -1: no limit
  domain* parent = nullptr;       ///< what counts here counts there too, and its limit holds as well
  bool external = false;          ///< not part of the heap: device memory, mappings
};
}  // namespace TIDEMARK_ERROR_TAG

namespace detail {

[[nodiscard]] inline domain_node& default_domain_node() {
  domain_registry* all = registry<domain_registry>();
  domain_node* node = all == nullptr ? nullptr : all->default_node();
  if (node == nullptr) raise_bad_alloc();
  return *node;
}

inline namespace TIDEMARK_ERROR_TAG {

[[noreturn]] inline void raise_over_budget(const budget_refusal& refused, std::int64_t requested) {
  tell_failure({static_cast<std::uint64_t>(requested), refused.full->name, refused.live, refused.limit});
  const over_budget error(refused.full->name, requested, refused.live, refused.limit);
#if TIDEMARK_HAS_EXCEPTIONS()
  throw error;
#else
  os::say(error.what());
  raise_bad_alloc();  // of which over_budget is one; the throwing side of a program may catch it
#endif
}

/// Room for an allocation that may still fail: given back unless it is committed. Where there is no limit, nothing is kept.
/// The gate is asked first; what the upstream allocates meanwhile is the same allocation.
class reservation {
 public:
  /// Throws: `over_budget`; `std::bad_alloc` where the gate refuses.
  reservation(domain_node& node, std::int64_t bytes)
      : gate_({static_cast<std::uint64_t>(bytes), 0, &node, allocation_caller::tracked}),
        node_(node),
        bytes_(bytes),
        is_held_(node.is_limited()) {
    if (TIDEMARK_UNLIKELY(!gate_.is_open())) {
      is_held_ = false;
      raise_bad_alloc();
    }
    if (!is_held_) return;
    if (const budget_refusal refused = node.try_reserve(bytes)) raise_over_budget(refused, bytes);
  }
  ~reservation() {
    if (is_held_) node_.cancel(bytes_);
  }
  void commit() noexcept {
    is_held_ ? node_.commit(bytes_) : node_.count(bytes_);
    is_held_ = false;
    node_.tell_near();
  }
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;

 private:
  gate_passage gate_;
  domain_node& node_;
  std::int64_t bytes_;
  bool is_held_;
};

template <class F>
class near_limit_function final : public near_limit_listener {
 public:
  explicit near_limit_function(F f) : f_(std::move(f)) {}
  void call(const domain_node& node, std::int64_t live, std::int64_t limit) noexcept override {
    const quiet hidden;
    [[maybe_unused]] const os::no_cancellation whole;
    contain_exceptions(
        [&] {
          f_(near_limit{node.name, live, limit});
        },
        [&](const char* what) { os::say("what listens to domain ", node.name, " near its limit threw: ", what); });
  }

 private:
  F f_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace detail

inline namespace TIDEMARK_ERROR_TAG {

/// A handle to a named account. Copies are handles to the same one; it lives on after the last, for the containers that still
/// feed it. Program logic: it works in every build, also with TIDEMARK_OPT_DISABLE.
/// Threads: any, for every member but assignment. Cost: a lock per event, and one for each parent. About 300 bytes are kept
/// for ever: make domains for what is told apart, not for each request.
class domain {
 public:
  /// Throws: `std::invalid_argument` for a limit below -1, `std::bad_alloc`.
  explicit domain(std::string name, domain_options options = {})
      : name_(std::move(name)), node_(&make(name_, options)) {
    if (options.limit_bytes != -1) limit(options.limit_bytes);
  }
  domain(const domain& other) : name_(other.name_), node_(other.node_) { hold(); }
  domain& operator=(const domain& other) {
    if (this == &other) return *this;
    name_ = other.name_;
    other.hold();
    release();
    node_ = other.node_;
    return *this;
  }
  ~domain() { release(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool is_external() const noexcept { return node_->is_external; }

  /// What is live in it and in its children, the peak since it was made, and its counts. Exact.
  [[nodiscard]] usage current() const noexcept { return node_->current(); }

  /// The limit in bytes, -1 where there is none.
  [[nodiscard]] std::int64_t limit() const noexcept { return node_->limit(); }

  /// From now on at most `bytes` may be live; -1: any. Exactly that many are allowed.
  /// Throws: `std::invalid_argument`, with nothing changed, for less than -1 and for less than is live.
  void limit(std::int64_t bytes) {
    if (bytes < -1)
      detail::raise_invalid_argument("tidemark::domain::limit: a limit is 0 bytes or more, or -1 for none");
    if (!node_->try_limit(bytes)) {
      detail::raise_invalid_argument(
          "tidemark::domain::limit: more than that is live; free first, or set the limit to what is live");
    }
    node_->tell_near();
  }

  /// Counts one allocation of `bytes`. Throws: `over_budget`, `std::invalid_argument` for negative bytes; nothing has
  /// changed then.
  void allocated(std::int64_t bytes) {
    require_size(bytes);
    if (const detail::budget_refusal refused = node_->try_allocated(bytes)) detail::raise_over_budget(refused, bytes);
    node_->tell_near();
  }

  /// The same where a refusal is no error. Throws: `std::invalid_argument` for negative bytes.
  [[nodiscard]] bool try_allocated(std::int64_t bytes) {
    require_size(bytes);
    if (node_->try_allocated(bytes)) return false;
    node_->tell_near();
    return true;
  }

  /// Counts one deallocation of `bytes`. Throws: `std::invalid_argument`, with nothing changed, for negative bytes and for
  /// more than this domain was fed and still holds, its children's apart.
  void freed(std::int64_t bytes) {
    require_size(bytes);
    if (!node_->try_freed(bytes)) {
      detail::raise_invalid_argument("tidemark::domain::freed: the domain does not hold that many bytes of its own");
    }
  }

  /// Calls `f(const near_limit&)` once each time what is live rises to `fraction` of the limit, on the thread that took it
  /// there, outside every lock and inside `quiet`. What `f` throws is said on the standard error. One at a time: a second
  /// call replaces the first.
  /// Throws: `std::invalid_argument` for a fraction that is not above 0 and at most 1, `std::bad_alloc`.
  template <class F>
  void on_near_limit(double fraction, F f) {
    if (!(fraction > 0 && fraction <= 1)) {
      detail::raise_invalid_argument("tidemark::domain::on_near_limit: the fraction is above 0 and at most 1");
    }
    const quiet hidden;
    detail::os::keep_this_loaded();  // the function outlives the handle
    std::shared_ptr<detail::near_limit_listener> made = std::make_shared<detail::near_limit_function<F>>(std::move(f));
    const auto replaced = node_->listen(fraction, std::move(made));
    node_->tell_near();
  }

  /// Whether both are handles to the same account.
  [[nodiscard]] friend bool operator==(const domain& a, const domain& b) noexcept { return a.node_ == b.node_; }
  [[nodiscard]] friend bool operator!=(const domain& a, const domain& b) noexcept { return a.node_ != b.node_; }

  /// For adaptors: the account itself, which outlives every handle.
  [[nodiscard]] detail::domain_node& node() const noexcept { return *node_; }

 private:
  friend std::vector<domain> domains();
  friend domain default_domain();
  explicit domain(detail::domain_node& known) : name_(known.name), node_(&known) { hold(); }

  /// With the handle that the caller becomes.
  [[nodiscard]] static detail::domain_node& make(const std::string& name, const domain_options& options) {
    if (options.limit_bytes < -1) {
      detail::raise_invalid_argument("tidemark::domain: a limit is 0 bytes or more, or -1 for none");
    }
    const detail::short_name shortened(name);
    detail::domain_node* parent = options.parent == nullptr ? nullptr : options.parent->node_;
    const bool is_external = options.external || (parent != nullptr && parent->is_external);
    detail::domain_registry* all = detail::registry<detail::domain_registry>();
    std::string_view meter;
    {
      const quiet hidden;
      meter = detail::intern("domain:" + std::string(shortened.view()));
    }
    detail::domain_node* node =
        all == nullptr ? nullptr : all->make(detail::intern(shortened.view()), meter, parent, is_external);
    if (node == nullptr) detail::raise_bad_alloc();
    return *node;
  }

  static void require_size(std::int64_t bytes) {
    if (bytes < 0) detail::raise_invalid_argument("tidemark::domain: a number of bytes is not negative");
  }

  void hold() const noexcept { node_->handles.fetch_add(1, std::memory_order_release); }     // pairs with is_alive()
  void release() const noexcept { node_->handles.fetch_sub(1, std::memory_order_release); }  // pairs with is_alive()

  std::string name_;
  detail::domain_node* node_;
};

/// The domain of allocators that name none. Throws: `std::bad_alloc`.
[[nodiscard]] inline domain default_domain() { return domain(detail::default_domain_node()); }

/// Those that someone has a handle to, and those that still hold bytes; in the order of their making.
/// Throws: `std::bad_alloc`. The list and its names are in no number.
[[nodiscard]] inline std::vector<domain> domains() {
  const quiet hidden;
  std::vector<domain> alive;
  detail::domain_registry* all = detail::find_registry<detail::domain_registry>();
  for (detail::domain_node* d = all == nullptr ? nullptr : all->newest(); d != nullptr; d = d->older) {
    if (d->is_alive()) alive.push_back(domain(*d));
  }
  for (std::size_t i = 0, j = alive.size(); i + 1 < j; ++i, --j) std::swap(alive[i], alive[j - 1]);
  return alive;
}

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace v0
}  // namespace tidemark
