// SPDX-License-Identifier: MIT
// What the sinks that write lines share: a file, and one complaint. A line that cannot be written is a dropped record.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sys/file.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
inline namespace TIDEMARK_TAG {

/// Threads: `write` from any. With TIDEMARK_OPT_DISABLE it opens nothing, writes nothing and says nothing.
class line_output {
 public:
  /// `writer` names the sink in messages. `header` is a line that lives for ever: it comes first in an empty file, and in a
  /// stream. One that cannot be written is tried again before the next line. The last argument keeps what the members
  /// allocate out of the user's numbers: it lasts until they are made.
#if TIDEMARK_OPT_DISABLE
  line_output(const char* writer, const std::string&, std::string_view = {}) : writer_(writer), file_(nullptr) {}
  line_output(const char* writer, std::FILE*, std::string_view = {}) : writer_(writer), file_(nullptr) {}

  bool write(std::string_view, bool = false) { return true; }
#else
  line_output(const char* writer, std::string path, std::string_view header = {}, const quiet& = quiet())
      : writer_(writer), header_(header), file_(std::move(path)), has_begun_(header.empty()) {
    begin();
  }
  line_output(const char* writer, std::FILE* stream, std::string_view header = {}, const quiet& = quiet())
      : writer_(writer), header_(header), file_(stream), has_begun_(header.empty()) {
    begin();
  }

  /// Whether the line is out. `quoted`: it is made of fields that may stand in double quotes.
  bool write(std::string_view line, bool quoted = false) {
    int failed = has_begun_.load(std::memory_order_acquire) ? 0 : write_header();  // pairs with write_header()
    if (failed == 0) failed = file_.append(line, quoted);
    if (failed == 0) return true;
    drop_record();
    complain(failed);
    return false;
  }
#endif

 private:
  void begin() {
    int failed = file_.error();
    if (failed == 0 && !header_.empty()) failed = write_header();
    if (failed != 0) complain(failed);
  }

  TIDEMARK_COLD int write_header() noexcept {
    const spin_guard held(lock_);
    if (has_begun_.load(std::memory_order_relaxed)) return 0;  // under the lock
    const int failed = file_.begin(header_);
    if (failed == 0) has_begun_.store(true, std::memory_order_release);  // pairs with write()
    return failed;
  }

  // Once: a full disk would otherwise say so for every record.
  void complain(int error) {
    if (has_complained_.exchange(true, std::memory_order_relaxed)) return;  // said by whoever came first
    const quiet hidden;
    std::string where = " cannot write to ";
    std::string name = file_.name();
    if (name.size() > 300) name.replace(150, name.size() - 300, "...");  // the reason must fit
    append_printable(where, name);
    os::say(writer_, where + ": ", append_file::describe(error),
            "; its records are dropped while that lasts (counted in self().dropped_records)");
  }

  const char* writer_;
  std::string_view header_;
  append_file file_;
  std::atomic<bool> has_begun_{true};  // the header is out
  leaf_lock lock_;                     // for the header
  std::atomic<bool> has_complained_{false};
};

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
