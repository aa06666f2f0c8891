// SPDX-License-Identifier: MIT
// JSON as the sinks write it: objects field by field, with the figures of records named alike everywhere.
// docs/semantics.md says what each field means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Appends an object to a text while it stands. Its keys are the library's own and need no escapes; names from
/// elsewhere are given to `named_field`.
class json_object {
 public:
  explicit json_object(std::string& out) : out_(out) { out_ += '{'; }
  json_object(const json_object&) = delete;
  json_object& operator=(const json_object&) = delete;

  /// After the last field.
  void end() { out_ += '}'; }

  /// Begins a field whose value the caller appends to the text it gets.
  std::string& field(std::string_view key) {
    separate();
    out_ += '"';
    out_ += key;
    out_ += "\":";
    return out_;
  }
  std::string& named_field(std::string_view name) {
    separate();
    append_json_string(out_, name);
    out_ += ':';
    return out_;
  }

  void text(std::string_view key, std::string_view value) { append_json_string(field(key), value); }
  void boolean(std::string_view key, bool value) { field(key) += value ? "true" : "false"; }
  template <class Integer>
  void number(std::string_view key, Integer value) {
    append_integer(field(key), value);
  }
  void absent(std::string_view key, std::string_view why) { append_absent(field(key), why); }
  void number(std::string_view key, const reading<std::int64_t>& value) {
    value ? number(key, *value) : absent(key, value.why());
  }
  void figures(std::string_view key, const reading<usage>& r) { append_figures(field(key), r); }
  /// Under a name that may hold anything.
  void figures_of(std::string_view name, const reading<window_usage>& r) { append_figures(named_field(name), r); }

  /// The fields of a state.
  void fields(const usage& u) {
    number("live_bytes", u.live_bytes);
    number("peak_bytes", u.peak_bytes);
    number("live_blocks", u.live_blocks);
    number("allocations", u.allocations);
    number("deallocations", u.deallocations);
    number("allocated_bytes", u.allocated_bytes);
    number("freed_bytes", u.freed_bytes);
    number("error_bound_bytes", u.error_bound_bytes);
  }
  void fields(const window_usage& u) {
    number("entry_bytes", u.entry_bytes);
    number("exit_bytes", u.exit_bytes);
    number("peak_bytes", u.peak_bytes);
    number("net_bytes", u.net_bytes());
    number("peak_growth_bytes", u.peak_growth());
    if (u.counts_events) {
      number("allocations", u.allocations);
      number("deallocations", u.deallocations);
      number("allocated_bytes", u.allocated_bytes);
      number("freed_bytes", u.freed_bytes);
      number("largest_bytes", u.largest_bytes);
    }
    number("error_bound_bytes", u.error_bound_bytes);
  }

 private:
  void separate() {
    if (!is_empty_) out_ += ',';
    is_empty_ = false;
  }
  static void append_absent(std::string& out, std::string_view why) {
    json_object o(out);
    o.text("absent", why);
    o.end();
  }
  template <class Usage>
  static void append_figures(std::string& out, const reading<Usage>& r) {
    if (!r) return append_absent(out, r.why());
    json_object o(out);
    o.fields(*r);
    o.end();
  }

  std::string& out_;
  bool is_empty_ = true;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
