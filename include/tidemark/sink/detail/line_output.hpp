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
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/sink/detail/text.hpp>
#include <tidemark/sys/file.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
inline namespace TIDEMARK_TAG {

/// Threads: `write` from any. With TIDEMARK_OPT_DISABLE it opens nothing, writes nothing and says nothing.
class line_output {
 public:
  /// `writer` names the sink in messages. The last argument keeps what the members allocate out of the user's numbers: it
  /// lasts until they are made.
#if TIDEMARK_OPT_DISABLE
  line_output(const char* writer, const std::string&) : writer_(writer), file_(nullptr) {}
  line_output(const char* writer, std::FILE*) : writer_(writer), file_(nullptr) {}

  void write(std::string_view) {}
#else
  line_output(const char* writer, std::string path, const quiet& = quiet()) : writer_(writer), file_(std::move(path)) {
    if (file_.error() != 0) complain(file_.error());
  }
  line_output(const char* writer, std::FILE* stream, const quiet& = quiet()) : writer_(writer), file_(stream) {
    if (file_.error() != 0) complain(file_.error());
  }

  void write(std::string_view line) {
    const int failed = file_.append(line);
    if (failed == 0) return;
    drop_record();
    complain(failed);
  }
#endif

 private:
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
  append_file file_;
  std::atomic<bool> has_complained_{false};
};

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
