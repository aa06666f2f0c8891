// SPDX-License-Identifier: MIT
// One table for a whole run: every scope path with its calls, its peak, and what it still owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sink/detail/line_output.hpp>
#include <tidemark/sink/detail/summary_tree.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// Adds up the records of each path, and writes the table when it is flushed: at the end of its attachment, at `exit`, and at
/// std::terminate, where the scopes that the program died in are listed as still open. Written again only where a scope has
/// ended or begun since.
/// A fork child begins an empty table of its own.
/// Threads: any. Cost: a lookup per record; while a table is made, about 1 ms per 1,000 paths, scopes that end wait.
class summary_sink final : public sink {
 public:
  explicit summary_sink(std::FILE* stream = stderr) : output_("summary_sink", stream) {
#if !TIDEMARK_OPT_DISABLE
    const quiet hidden;
    make_reserve();
    detail::flush_sinks_at_the_end();
#endif
  }

  void on_scope(const scope_record& r) override {
    const turn mine(*this);
    if (!mine) return;
    begin_in_this_process();
    tree_.add(r);
    is_told_ = false;
    if (tree_.size() > paths_reserved_for_) make_reserve();
  }

  void flush() override {
    const quiet hidden;
    std::string text;
    const std::int64_t now_ns = detail::os::steady_ns();
    {
      const turn mine(*this);
      if (!mine) return;
      begin_in_this_process();
      const auto make = [&] {
        if (!is_told_ || detail::summary_tree::has_opened_since(told_ns_)) text = tree_.table();
      };
      if (!detail::contain_exceptions(make, [](const char*) {})) {
        reserve_.reset();  // out of memory, which is when the table is wanted most
        make();
      }
      if (text.empty()) return;
      is_told_ = true;
    }
    const bool is_written = output_.write(text);
    const detail::spin_guard held(lock_);
    if (is_written) {
      told_ns_ = now_ns;
    } else {
      is_told_ = false;  // nothing is lost: the next flush tries again
    }
  }

  /// The table so far, with the terms explained under it. Throws: `std::bad_alloc`. The text is never in your numbers.
  [[nodiscard]] std::string table() const {
    const quiet hidden;
    const turn mine(*this);
    return mine ? tree_.table() : std::string();
  }

  /// The `count` paths whose own live blocks take most, those of the paths below them apart.
  [[nodiscard]] std::string top(std::size_t count) const {
    const quiet hidden;
    const turn mine(*this);
    return mine ? tree_.top(count) : std::string();
  }

 private:
  // The lock lets its own thread in again, as a new-handler that asks for the table in the middle of a record: not its turn.
  class turn {
   public:
    explicit turn(const summary_sink& s) noexcept : sink_(s), held_(s.lock_), is_mine_(!s.is_busy_) {
      sink_.is_busy_ = true;
    }
    ~turn() {
      if (is_mine_) sink_.is_busy_ = false;
    }
    explicit operator bool() const noexcept { return is_mine_; }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

   private:
    const summary_sink& sink_;
    detail::spin_guard held_;
    bool is_mine_;
  };

  // What a fork child inherits is its parent's to tell.
  void begin_in_this_process() {
    if (process_ == detail::ledger().process_id) return;
    process_ = detail::ledger().process_id;
    tree_.clear();
    is_told_ = true;
    told_ns_ = detail::os::steady_ns();
  }

  /// For a table when memory has run out. It is never written to, so that it costs addresses and no pages.
  void make_reserve() noexcept {
    constexpr std::size_t for_any = 64 * 1024, for_a_path = 2 * 1024;
    const std::size_t paths = 2 * tree_.size();
    detail::contain_exceptions(
        [&] {
          reserve_.reset();
          reserve_.reset(new char[for_any + for_a_path * paths]);
          paths_reserved_for_ = paths;
        },
        [](const char*) {});
  }

  mutable detail::leaf_lock lock_;
  mutable bool is_busy_ = false;
  mutable detail::summary_tree tree_;
  bool is_told_ = true;       // nothing has come since the last table
  std::int64_t told_ns_ = 0;  // when that was, on the steady clock
  std::uint64_t process_ = detail::ledger().process_id;
  std::size_t paths_reserved_for_ = 0;
  std::unique_ptr<char[]> reserve_;
  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
