// SPDX-License-Identifier: MIT
// JSON lines: one object per record, one line per object, for programs to read. docs/semantics.md says what each field
// means.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/sink/detail/json_object.hpp>
#include <tidemark/sink/detail/line_output.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// Appends to a file, or writes to a stream that stays the caller's. A file that cannot be opened or written is said
/// once on the standard error, and its records are dropped and counted; the constructor throws nothing but
/// `std::bad_alloc`.
/// Threads: any; each line is one write. A fork child's lines carry its own pid.
/// Source: RFC 8259; names that are no valid UTF-8 get U+FFFD for each bad byte.
class json_sink final : public sink {
 public:
  explicit json_sink(std::string path) : output_("json_sink", std::move(path)) {}
  explicit json_sink(std::FILE* stream) : output_("json_sink", stream) {}

  void on_scope(const scope_record& r) override { output_.write(line(r)); }
  void on_sample(const sample_record& r) override { output_.write(line(r)); }
  void on_alert(const alert_record& r) override { output_.write(line(r)); }

  /// The line, with its newline.
  [[nodiscard]] static std::string line(const scope_record& r) {
    std::string out;
    detail::json_object o(out);
    o.text("type", "scope");
    o.text("name", r.name);
    o.text("path", r.path);
    o.text("file", r.where.file_name());
    o.number("line", std::uint64_t{r.where.line()});
    o.number("pid", detail::os::process_id());
    o.number("thread", r.thread);
    o.number("depth", std::int64_t{r.depth});
    o.number("start_ns", r.start_ns);
    o.number("duration_ns", r.duration_ns);
    o.boolean("exception", r.left_by_exception);
    o.number("owned_bytes", r.owned_bytes);
    detail::json_object meters(o.field("meters"));
    for (const meter_reading& m : r.meters) meters.figures_of(m.meter, m.usage);
    meters.end();
    o.end();
    out += '\n';
    return out;
  }
  [[nodiscard]] static std::string line(const sample_record& r) {
    std::string out;
    detail::json_object o(out);
    o.text("type", "sample");
    o.number("pid", detail::os::process_id());
    o.number("time_ns", r.time_ns);
    o.figures("heap", r.heap);
    o.number("resident_bytes", r.resident_bytes);
    o.number("limit_bytes", r.limit_bytes);
    o.number("limit_used_bytes", r.limit_used_bytes);
    o.text("limit_source", r.limit_source);
    list(o.field("domains"), r.domains, [](detail::json_object& each, const domain_sample& d) {
      each.text("name", d.name);
      each.boolean("external", d.is_external);
      d.limit_bytes < 0 ? each.absent("limit_bytes", "no limit") : each.number("limit_bytes", d.limit_bytes);
      each.fields(d.current);
    });
    if (r.devices.empty() && !r.why_no_devices.empty()) {
      o.absent("devices", r.why_no_devices);
    } else {
      list(o.field("devices"), r.devices, describe_device);
    }
    o.end();
    out += '\n';
    return out;
  }
  [[nodiscard]] static std::string line(const alert_record& r) {
    std::string out;
    detail::json_object o(out);
    o.text("type", "alert");
    o.text("name", r.name);
    o.number("pid", detail::os::process_id());
    o.number("time_ns", r.time_ns);
    o.number("value_bytes", r.value_bytes);
    o.number("threshold_bytes", r.threshold_bytes);
    o.boolean("cleared", r.cleared);
    o.end();
    out += '\n';
    return out;
  }

 private:
  static void describe_device(detail::json_object& each, const device_sample& d) {
    each.text("uuid", d.uuid);
    each.text("name", d.name);
    each.text("source", d.source);
    each.number("time_ns", d.time_ns);
    each.number("total_bytes", d.total_bytes);
    each.number("used_bytes", d.used_bytes);
    each.number("process_bytes", d.process_bytes);
  }

  template <class List, class Describe>
  static void list(std::string& out, const List& items, Describe describe) {
    const char* separator = "[";
    for (const auto& item : items) {
      out += separator;
      separator = ",";
      detail::json_object each(out);
      describe(each, item);
      each.end();
    }
    out += items.empty() ? "[]" : "]";
  }

  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
