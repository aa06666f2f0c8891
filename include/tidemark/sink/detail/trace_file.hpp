// SPDX-License-Identifier: MIT
// The file of a trace: a JSON object with a list of events, complete after each write.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sink/detail/complaint.hpp>
#include <tidemark/sink/detail/json_object.hpp>
#include <tidemark/sink/detail/version_text.hpp>
#include <tidemark/sys/detail/ended_file.hpp>
#include <tidemark/sys/detail/rewrite.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// The events of a text, with a comma between two.
class trace_events {
 public:
  /// Begins an event. It has to be ended before the next.
  class event : public json_object {
   public:
    event(trace_events& all, std::string_view phase, std::string_view name) : json_object(all.separated()) {
      text("ph", phase);
      text("name", name);
      number("pid", os::process_id());
    }
  };

  /// Tells a viewer what a process or thread is called.
  void add_name(std::string_view what, std::uint64_t thread, std::string_view name) {
    if (!name.empty() && name.back() == '\n') name.remove_suffix(1);
    event e(*this, "M", what);
    e.number("tid", thread);
    json_object args(e.field("args"));
    args.text("name", name);
    args.end();
    e.end();
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] std::string& separated() {
    if (!text_.empty()) text_ += ",\n";
    return text_;
  }

  std::string text_;
};

inline namespace TIDEMARK_TAG {

/// Threads: any. With TIDEMARK_OPT_DISABLE it opens nothing, writes nothing and says nothing.
class trace_file {
 public:
#if TIDEMARK_OPT_DISABLE
  trace_file(const char* writer, const std::string&) : writer_(writer) {}

  void write(const trace_events&) {}
#else
  // The last argument keeps what the members allocate out of the user's numbers: it lasts until they are made.
  trace_file(const char* writer, const std::string& path, const quiet& = quiet())
      : writer_(writer), path_(path), name_(path) {
    open();
    int failed = open_error_;
    if (failed == 0) failed = append({});
    if (failed != 0) complain(failed);
  }

  /// Adds the events, or drops and counts them.
  void write(const trace_events& events) {
    int failed = 0;
    {
      const spin_guard held(lock_);
      if (process_ != ledger().process_id) open_in_child();
      failed = open_error_ != 0 ? open_error_ : append(events.text());
    }
    if (failed == 0) return;
    drop_record();
    complain(failed);
  }
#endif

 private:
  static constexpr std::string_view end_ = "\n]}\n";

  void complain(int failed) { complaint_.say(writer_, name_, failed); }

  void open() {
    open_error_ = file_.open(name_.c_str());
    if (open_error_ != EWOULDBLOCK) return;
    name_ = path_of_process(path_, process_);
    open_error_ = file_.open(name_.c_str());
  }

  void open_in_child() {
    file_.abandon();
    has_begun_ = false;
    process_ = ledger().process_id;
    name_ = path_of_process(path_, process_);
    open_error_ = file_.open(name_.c_str());
  }

  [[nodiscard]] int append(std::string_view events) {
    std::string text = has_begun_ ? std::string() : head();
    if (!events.empty()) (text += ",\n") += events;
    text += end_;
    const int failed = file_.append(text, end_.size());
    has_begun_ = has_begun_ || failed == 0;
    return failed;
  }

  /// Up to the first event, which is there in any case, so that each later one comes after a comma.
  [[nodiscard]] static std::string head() {
    std::string text = R"({"displayTimeUnit":"ms","otherData":{"writer":"tidemark )";
    text += version_text();
    text += R"("},"traceEvents":[)";
    text += '\n';
    std::string program;
    if (os::read_whole("/proc/self/comm", 256, program) != 0) program = "program";
    trace_events first;
    first.add_name("process_name", os::process_id(), program);
    return text + first.text();
  }

  const char* writer_;
  std::string path_;
  std::string name_;  // of the file that this process writes
  leaf_lock lock_;
  os::ended_file file_;
  int open_error_ = 0;
  bool has_begun_ = false;
  std::uint64_t process_ = ledger().process_id;
  complaint complaint_;
};

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
