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
/// std::terminate, where the scopes that the program died in are listed as still open. Written once for the same records.
/// A fork child begins an empty table of its own. Threads: any.
class summary_sink final : public sink {
 public:
  explicit summary_sink(std::FILE* stream = stderr) : output_("summary_sink", stream) {
#if !TIDEMARK_OPT_DISABLE
    const quiet hidden;
    reserve_.reset(new char[reserve_bytes]);
    detail::flush_sinks_at_the_end();
#endif
  }

  void on_scope(const scope_record& r) override {
    const detail::spin_guard held(lock_);
    begin_in_this_process();
    tree_.add(r);
    is_told_ = false;
  }

  void flush() override {
    std::string text;
    {
      const detail::spin_guard held(lock_);
      begin_in_this_process();
      if (is_told_) return;
      const auto make = [&] { text = tree_.table(); };
      if (!detail::contain_exceptions(make, [](const char*) {})) {
        reserve_.reset();  // out of memory, which is when the table is wanted most
        make();
      }
      is_told_ = true;
    }
    if (output_.write(text)) return;
    const detail::spin_guard held(lock_);
    is_told_ = false;  // nothing is lost: the next flush tries again
  }

  /// The table so far, with the terms explained under it. Throws: `std::bad_alloc`. The text is never in your numbers.
  [[nodiscard]] std::string table() const {
    const quiet hidden;
    const detail::spin_guard held(lock_);
    return tree_.table();
  }

  /// The `count` paths whose own live blocks take most, those of the paths below them apart.
  [[nodiscard]] std::string top(std::size_t count) const {
    const quiet hidden;
    const detail::spin_guard held(lock_);
    return tree_.top(count);
  }

 private:
  // What a fork child inherits is its parent's to tell.
  void begin_in_this_process() {
    if (process_ == detail::ledger().process_id) return;
    process_ = detail::ledger().process_id;
    tree_.clear();
    is_told_ = true;
  }

  static constexpr std::size_t reserve_bytes = 64 * 1024;

  mutable detail::leaf_lock lock_;
  mutable detail::summary_tree tree_;
  bool is_told_ = true;  // nothing has come since the last table
  std::uint64_t process_ = detail::ledger().process_id;
  std::unique_ptr<char[]> reserve_;
  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
