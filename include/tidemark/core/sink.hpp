// SPDX-License-Identifier: MIT
// Where records go: the interface of a sink, and attaching one. Any number of sinks may be attached, at any time, from any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>  // std::set_terminate
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {

/// Receives records. Every call comes outside the library's locks, in order per thread, inside `quiet`.
/// Threads: may be called by several at once. Throws: whatever it likes; the record is dropped and counted, the first time
/// is said on the standard error, and other sinks are not disturbed.
class TIDEMARK_EXPORT sink {
 public:
  sink() = default;
  virtual ~sink() = default;
  sink(const sink&) = delete;
  sink& operator=(const sink&) = delete;

  virtual void on_scope(const scope_record&) {}
  virtual void on_sample(const sample_record&) {}
  virtual void on_alert(const alert_record&) {}
  virtual void on_snapshot(const snapshot&) {}
  virtual void flush() {}
};

namespace detail {

class sink_registry;

/// A sink while it is attached, and as long as a call into it runs.
struct attached_sink {
  attached_sink(std::shared_ptr<sink> s, sink_registry& list) noexcept : target(std::move(s)), home(list) {}

  std::shared_ptr<sink> target;
  sink_registry& home;
  std::atomic<int> calls{0};  // running now, in `process`
  std::uint64_t process = ledger().process_id;
  std::atomic<bool> detached{false};
  std::atomic<bool> has_failed{false};
};

/// One call into a sink; those of a thread form a list on its stack.
struct delivery {
  const attached_sink* to;
  delivery* outer;
};

using sink_list = std::vector<std::shared_ptr<attached_sink>>;

/// Registry of the attached sinks. The list is never changed, only replaced: a delivery walks the one it found.
class TIDEMARK_EXPORT sink_registry {
 public:
  static constexpr std::uint64_t key = registry_key("sinks");

  [[nodiscard]] bool is_empty() const noexcept {
    return count_.load(std::memory_order_acquire) == 0;  // pairs with replace()
  }

  [[nodiscard]] std::shared_ptr<const sink_list> list() noexcept {
    const spin_guard held(lock_);
    return list_;
  }

  void add(const std::shared_ptr<attached_sink>& added) {
    replace([&](sink_list& sinks) { sinks.push_back(added); });
  }
  void remove(const attached_sink* removed) {
    replace([&](sink_list& sinks) {
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        if (sinks[i].get() == removed) {
          sinks.erase(sinks.begin() + static_cast<std::ptrdiff_t>(i));
          return;
        }
      }
    });
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) return lock_.lock();
    lock_.unlock();
    if (moment == fork_moment::after_in_parent || list_ == nullptr) return;
    // The threads inside other calls are not in the child: a detach there must not wait for them.
    for (const std::shared_ptr<attached_sink>& s : *list_) {
      int mine = 0;
      for (const delivery* d = this_thread().inside; d != nullptr; d = d->outer) mine += d->to == s.get() ? 1 : 0;
      s->calls.store(mine, std::memory_order_relaxed);  // the only thread
      s->process = ledger().process_id;
    }
  }

  std::atomic<bool> is_flushed_at_the_end{false};
  std::terminate_handler next_terminate_handler = nullptr;

 private:
  // Copies, changes and publishes; again if another thread published meanwhile. Nothing is allocated or freed in the lock.
  template <class Change>
  void replace(Change change) {
    for (;;) {
      const std::shared_ptr<const sink_list> old = list();
      auto fresh = std::make_shared<sink_list>();
      if (old != nullptr) *fresh = *old;
      change(*fresh);
      const spin_guard held(lock_);
      if (list_ != old) continue;
      count_.store(fresh->size(), std::memory_order_release);  // pairs with is_empty()
      list_ = fresh->empty() ? nullptr : std::move(fresh);
      return;
    }
  }

  spin_lock lock_;
  std::shared_ptr<const sink_list> list_;
  std::atomic<std::size_t> count_{0};
};

[[nodiscard]] inline bool has_sinks() noexcept {
  const sink_registry* sinks = find_registry<sink_registry>();
  return sinks != nullptr && !sinks->is_empty();
}

inline namespace TIDEMARK_TAG {

/// One call into a sink, which ends well or is counted as a dropped record.
template <class Call>
void call_sink(attached_sink& s, Call call) noexcept {
  delivery here{&s, this_thread().inside};
  this_thread().inside = &here;
  contain_exceptions([&] { call(*s.target); },
                     [&](const char* what) {
                       drop_record();
                       if (!s.has_failed.exchange(true, std::memory_order_relaxed)) {  // said once
                         os::say("a sink threw: ", what,
                                 "; its record is dropped (later ones are counted in "
                                 "self().dropped_records, not said)");
                       }
                     });
  this_thread().inside = here.outer;
}

/// Makes one call into every sink of a list, outside every lock. From inside of a sink it makes none.
template <class Call>
void call_sinks(sink_registry* registry, Call call) noexcept {
  if (this_thread().inside != nullptr || registry == nullptr) return;
  const quiet hidden;
  [[maybe_unused]] const os::no_cancellation whole;
  const std::shared_ptr<const sink_list> sinks = registry->list();
  if (sinks == nullptr) return;
  for (const std::shared_ptr<attached_sink>& s : *sinks) {
    s->calls.fetch_add(1);  // before the test below, in one order with detach()
    if (!s->detached.load()) call_sink(*s, call);
    s->calls.fetch_sub(1, std::memory_order_release);  // pairs with detach()
  }
}

/// Hands a record to every attached sink. A scope inside a sink is delivered to none.
template <class Record>
void deliver(void (sink::*on)(const Record&), const Record& record) noexcept {
  call_sinks(find_registry<sink_registry>(), [&](sink& target) { (target.*on)(record); });
}

inline void detach(std::shared_ptr<attached_sink>& s) noexcept {
  const quiet hidden;
  [[maybe_unused]] const os::no_cancellation whole;
  s->detached.store(true);                                                   // in one order with deliver()
  contain_exceptions([&] { s->home.remove(s.get()); }, [](const char*) {});  // it stays, detached
  if (this_thread().inside == nullptr) {
    // A fork child of a process where another thread waits here has its count, and not the threads that it counts.
    const auto is_called = [&s] { return s->process == ledger().process_id && s->calls.load() != 0; };
    for (int turns = 0; is_called(); ++turns) {  // in one order with deliver(), after the store above
      turns < 100 ? os::yield_thread() : os::pause_ns(100'000);
    }
  }
  call_sink(*s, [](sink& target) { target.flush(); });
  s.reset();
}

}  // namespace TIDEMARK_TAG
}  // namespace detail

inline namespace TIDEMARK_TAG {

/// Flushes every attached sink. Threads: any.
inline void flush_sinks() noexcept {
  detail::call_sinks(detail::find_registry<detail::sink_registry>(), [](sink& target) { target.flush(); });
}

}  // namespace TIDEMARK_TAG

namespace detail {
inline namespace TIDEMARK_TAG {

// An exception that nothing catches leaves the scopes open that it left: what they hold is still to be told.
[[noreturn]] inline void flush_and_terminate() noexcept {
  const sink_registry* sinks = find_registry<sink_registry>();
  flush_sinks();
  if (sinks != nullptr && sinks->next_terminate_handler != nullptr) sinks->next_terminate_handler();
  std::abort();
}

/// From now on the attached sinks are flushed when the program ends by `exit` or by the end of `main`, and when it ends by
/// std::terminate, after which the handler that was there before is called. Once in the life of the process.
inline void flush_sinks_at_the_end() noexcept {
  sink_registry* sinks = registry<sink_registry>();
  if (sinks == nullptr || sinks->is_flushed_at_the_end.exchange(true)) return;
  const quiet hidden;
  os::keep_this_loaded();
  std::atexit([] { flush_sinks(); });
  sinks->next_terminate_handler = std::set_terminate(flush_and_terminate);
}

}  // namespace TIDEMARK_TAG
}  // namespace detail

inline namespace TIDEMARK_TAG {

/// Keeps a sink attached. When its destructor returns, no call into the sink runs or starts, but one that this thread is
/// inside of; a thread inside any sink call does not wait. Detaching flushes the sink.
class [[nodiscard]] attachment {
 public:
  attachment() noexcept = default;
  explicit attachment(std::shared_ptr<detail::attached_sink> s) noexcept : sink_(std::move(s)) {}
  attachment(attachment&& other) noexcept : sink_(std::move(other.sink_)) {}
  attachment& operator=(attachment&& other) noexcept {
    if (this != &other) {
      detach();
      sink_ = std::move(other.sink_);
    }
    return *this;
  }
  attachment(const attachment&) = delete;
  attachment& operator=(const attachment&) = delete;
  ~attachment() { detach(); }

  /// Detaches now. Does nothing the second time.
  void detach() noexcept {
    std::shared_ptr<detail::attached_sink> leaving = std::move(sink_);  // first: its flush may come here again
    if (leaving != nullptr) detail::detach(leaving);
  }

 private:
  std::shared_ptr<detail::attached_sink> sink_;
};

}  // namespace TIDEMARK_TAG

namespace detail {
inline namespace TIDEMARK_TAG {

/// `List` is a sink_registry.
template <class List>
[[nodiscard]] attachment attach_to([[maybe_unused]] std::shared_ptr<sink> s) {
#if TIDEMARK_OPT_DISABLE
  return attachment();
#else
  const quiet hidden;
  os::keep_this_loaded();  // what is made below outlives the attachment
  List* list = registry<List>();
  if (list == nullptr) raise_bad_alloc();
  auto attached = std::make_shared<attached_sink>(std::move(s), *list);
  list->add(attached);
  return attachment(std::move(attached));
#endif
}

}  // namespace TIDEMARK_TAG
}  // namespace detail

inline namespace TIDEMARK_TAG {

/// Delivers every later record to `s` until the attachment ends. Attached twice, a sink gets each record twice.
/// Throws: `std::invalid_argument` for a null sink, `std::bad_alloc`. Threads: any.
[[nodiscard]] inline attachment attach(std::shared_ptr<sink> s) {
  if (s == nullptr) detail::raise_invalid_argument("tidemark::attach: the sink is null");
  return detail::attach_to<detail::sink_registry>(std::move(s));
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
