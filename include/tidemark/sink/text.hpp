// SPDX-License-Identifier: MIT
// One line of text per scope as it closes, and per alert, for a person at a terminal.
#pragma once

#include <cstdio>
#include <string>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/sink/detail/line_output.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// Writes "train/forward  1.84 ms  thread_heap: peak +12.4 MiB, net +0 B, 34 allocations" for each scope, and for each
/// alert "alert: resident above 8 GB: 7.6 GiB, threshold 7.5 GiB", when it is over "alert cleared: ...".
/// The peak is the growth above the entry. Threads: any; lines do not mix (in a pipe: up to 4,096 bytes).
class text_sink final : public sink {
 public:
  explicit text_sink(std::FILE* stream = stderr) : output_("text_sink", stream) {}

  void on_scope(const scope_record& r) override { output_.write(line(r)); }
  void on_alert(const alert_record& r) override { output_.write(line(r)); }

  /// The line, with its newline.
  [[nodiscard]] static std::string line(const scope_record& r) {
    std::string text;
    detail::append_printable(text, r.path);
    text += "  ";
    detail::append_duration(text, r.duration_ns);
    for (const meter_reading& m : r.meters) {
      text += "  ";
      append_meter(text, m);
    }
    // What it still owns is news only where something is left, and more than the net where others freed or kept.
    if (r.owned_bytes && *r.owned_bytes != 0) text += "  owns " + format_bytes(*r.owned_bytes);
    if (r.left_by_exception) text += "  left by an exception";
    text += '\n';
    return text;
  }
  [[nodiscard]] static std::string line(const alert_record& r) {
    std::string text = r.cleared ? "alert cleared: " : "alert: ";
    detail::append_printable(text, r.name);
    text += ": " + format_bytes(r.value_bytes) + ", threshold " + format_bytes(r.threshold_bytes) + '\n';
    return text;
  }

 private:
  static void append_meter(std::string& text, const meter_reading& m) {
    detail::append_printable(text, m.meter);
    text += ": ";
    if (!m.usage) {
      text += "absent (";
      detail::append_printable(text, m.usage.why());
      text += ')';
      return;
    }
    const window_usage& u = *m.usage;
    text += "peak ";
    detail::append_change(text, u.peak_growth(), m.unit);
    text += ", net ";
    detail::append_change(text, u.net_bytes(), m.unit);
    if (u.counts_events) {
      text += ", ";
      detail::append_integer(text, u.allocations);
      text += u.allocations == 1 ? " allocation" : " allocations";
    }
    if (u.error_bound_bytes != 0) {
      text += " (each within ";
      detail::append_amount(text, u.error_bound_bytes, m.unit);
      text += ')';
    }
  }

  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
