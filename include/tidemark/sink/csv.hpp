// SPDX-License-Identifier: MIT
// Comma-separated values: a header row, then a row per scope and meter, for spreadsheets and data frames.
// docs/semantics.md says what each column means.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/sink/detail/line_output.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// Appends to a file, or writes to a stream that stays the caller's. The header row comes first in an empty file, also where
/// several processes open it at once, and once in a stream. A scope without meters has one row.
/// An unknown number is an empty field; `absent` says why for the meter's, `owned_absent` for `owned_bytes`.
/// A row is always one line, which ends in LF: control characters in names show as \x1b, a newline as \n. A name that a
/// spreadsheet would run as a formula, since it begins with = + - @ or a wide form of these, gets a ' in front. Bytes that are
/// no UTF-8 become U+FFFD.
/// What cannot be opened or written is said once on the standard error, and its records are dropped and counted. A row that
/// the system cut short has fewer columns than the header, or ends within a reason.
/// Throws: the constructor, nothing but `std::bad_alloc`.
/// Threads: any; the rows of a record are one write (in a pipe: up to 4,096 bytes). A fork child's rows carry its own pid.
/// Source: RFC 4180; owasp.org/www-community/attacks/CSV_Injection.
class csv_sink final : public sink {
 public:
  explicit csv_sink(std::string path) : output_("csv_sink", std::move(path), header()) {}
  explicit csv_sink(std::FILE* stream) : output_("csv_sink", stream, header()) {}

  void on_scope(const scope_record& r) override { output_.write(rows(r), true); }

  /// The first row, with its newline.
  [[nodiscard]] static constexpr std::string_view header() noexcept {
    return "path,name,file,line,pid,thread,depth,start_ns,duration_ns,exception,owned_bytes,owned_absent,meter,unit,"
           "entry_bytes,exit_bytes,peak_bytes,net_bytes,peak_growth_bytes,allocations,deallocations,allocated_bytes,"
           "freed_bytes,largest_bytes,error_bound_bytes,absent\n";
  }

  /// The record's rows, each with its newline.
  [[nodiscard]] static std::string rows(const scope_record& r) {
    const std::string fields = scope_fields(r);
    if (r.meters.empty()) return fields + std::string(13, ',') + "no meters\n";
    std::string out;
    for (const meter_reading& m : r.meters) {
      out += fields;
      text(out, m.meter);
      text(out, m.unit);
      usage(out, m.usage);
      out.back() = '\n';
    }
    return out;
  }

 private:
  // Each of these ends its field with a comma.
  static std::string scope_fields(const scope_record& r) {
    std::string out;
    text(out, r.path);
    text(out, r.name);
    text(out, r.where.file_name());
    number(out, std::uint64_t{r.where.line()});
    number(out, detail::os::process_id());
    number(out, r.thread);
    number(out, std::int64_t{r.depth});
    number(out, r.start_ns);
    number(out, r.duration_ns);
    out += r.left_by_exception ? "true," : "false,";
    if (r.owned_bytes) detail::append_integer(out, *r.owned_bytes);
    out += ',';
    text(out, r.owned_bytes.why());
    return out;
  }
  static void usage(std::string& out, const reading<window_usage>& r) {
    if (!r) {
      out.append(11, ',');
      return text(out, r.why());
    }
    const window_usage& u = *r;
    number(out, u.entry_bytes);
    number(out, u.exit_bytes);
    number(out, u.peak_bytes);
    number(out, u.net_bytes());
    number(out, u.peak_growth());
    if (u.counts_events) {
      number(out, u.allocations);
      number(out, u.deallocations);
      number(out, u.allocated_bytes);
      number(out, u.freed_bytes);
      number(out, u.largest_bytes);
    } else {
      out.append(5, ',');
    }
    number(out, u.error_bound_bytes);
    out += ',';
  }
  template <class Integer>
  static void number(std::string& out, Integer value) {
    detail::append_integer(out, value);
    out += ',';
  }
  static void text(std::string& out, std::string_view value) {
    std::string shown;
    detail::append_printable(shown, value);
    if (begins_formula(shown)) shown.insert(0, 1, '\'');
    const bool is_quoted = shown.find_first_of(",\"") != std::string::npos;
    if (is_quoted) out += '"';
    for (const char c : shown) {
      if (c == '"') out += '"';
      out += c;
    }
    out += is_quoted ? "\"," : ",";
  }
  static bool begins_formula(std::string_view shown) noexcept {
    for (const std::string_view sign :
         {"=", "+", "-", "@", "\xEF\xBC\x9D", "\xEF\xBC\x8B", "\xEF\xBC\x8D", "\xEF\xBC\xA0"}) {
      if (shown.substr(0, sign.size()) == sign) return true;
    }
    return false;
  }

  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
