// SPDX-License-Identifier: MIT
// JSON lines: one object per record, one line per object, for programs to read. docs/semantics.md says what each field means.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/sink/detail/line_output.hpp>
#include <tidemark/sink/detail/text.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// Appends to a file, or writes to a stream that stays the caller's. A file that cannot be opened or written is said once on
/// the standard error, and its records are dropped and counted; the constructor throws nothing but `std::bad_alloc`.
/// Threads: any; each line is one write. A fork child's lines carry its own pid.
/// Source: RFC 8259; names that are no valid UTF-8 get U+FFFD for each bad byte.
class json_sink final : public sink {
 public:
  explicit json_sink(std::string path) : output_("json_sink", std::move(path)) {}
  explicit json_sink(std::FILE* stream) : output_("json_sink", stream) {}

  void on_scope(const scope_record& r) override { output_.write(line(r)); }

  /// The line, with its newline.
  [[nodiscard]] static std::string line(const scope_record& r) {
    std::string out = R"({"type":"scope")";
    text(out, "name", r.name);
    text(out, "path", r.path);
    text(out, "file", r.where.file_name());
    number(out, "line", std::uint64_t{r.where.line()});
    number(out, "pid", detail::os::process_id());
    number(out, "thread", r.thread);
    number(out, "depth", std::int64_t{r.depth});
    number(out, "start_ns", r.start_ns);
    number(out, "duration_ns", r.duration_ns);
    out += R"(,"exception":)";
    out += r.left_by_exception ? "true" : "false";
    if (r.owned_bytes) {
      number(out, "owned_bytes", *r.owned_bytes);
    } else {
      key(out, "owned_bytes");
      absent(out, r.owned_bytes.why());
    }
    out += R"(,"meters":{)";
    const char* separator = "";
    for (const meter_reading& m : r.meters) {
      out += separator;
      separator = ",";
      detail::append_json_string(out, m.meter);
      out += ':';
      usage(out, m.usage);
    }
    out += "}}\n";
    return out;
  }

 private:
  static void key(std::string& out, std::string_view name) {
    out += ",\"";
    out += name;
    out += "\":";
  }
  static void text(std::string& out, std::string_view name, std::string_view value) {
    key(out, name);
    detail::append_json_string(out, value);
  }
  template <class Integer>
  static void number(std::string& out, std::string_view name, Integer value) {
    key(out, name);
    detail::append_integer(out, value);
  }
  static void absent(std::string& out, std::string_view why) {
    out += R"({"absent":)";
    detail::append_json_string(out, why);
    out += '}';
  }
  static void usage(std::string& out, const reading<window_usage>& r) {
    if (!r) return absent(out, r.why());
    const window_usage& u = *r;
    out += R"({"entry_bytes":)";
    detail::append_integer(out, u.entry_bytes);
    number(out, "exit_bytes", u.exit_bytes);
    number(out, "peak_bytes", u.peak_bytes);
    number(out, "net_bytes", u.net_bytes());
    number(out, "peak_growth_bytes", u.peak_growth());
    if (u.counts_events) {
      number(out, "allocations", u.allocations);
      number(out, "deallocations", u.deallocations);
      number(out, "allocated_bytes", u.allocated_bytes);
      number(out, "freed_bytes", u.freed_bytes);
      number(out, "largest_bytes", u.largest_bytes);
    }
    number(out, "error_bound_bytes", u.error_bound_bytes);
    out += '}';
  }

  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
