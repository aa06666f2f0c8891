// SPDX-License-Identifier: MIT
// The text that Prometheus and its kin read, in either of its two forms. A family without a value is left out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/sink/detail/decimal.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// A label whose value is escaped already.
struct metric_label {
  const char* name;
  std::string_view value;
};

/// As both forms write it: one line, valid UTF-8, a backslash before `\` and `"`.
[[nodiscard]] inline std::string label_value(std::string_view text) {
  std::string clean;
  append_clean(clean, text, [](std::string& out, unsigned char c) {
    if (c == '\n') {
      out += '\n';
    } else {
      out += "\\x";
      append_hex(out, c);
    }
  });
  std::string escaped;
  for (const char c : clean) {
    if (c == '\n') {
      escaped += "\\n";
    } else {
      if (c == '\\' || c == '"') escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

/// Source: OpenMetrics 1.0.0; Prometheus text-based format 0.0.4.
class metrics_text {
 public:
  explicit metrics_text(bool is_openmetrics) : is_openmetrics_(is_openmetrics) {}

  /// What follows belongs to this family, each with labels of its own. `name` ends with the unit, where it has one; no
  /// text has a backslash or a line end.
  void gauge(const char* name, const char* unit, const char* help) { family_ = {name, "gauge", "", unit, help, false}; }
  /// The same for what only rises. "_total" comes behind the name.
  void total(const char* name, const char* unit, const char* help) {
    family_ = {name, "counter", "_total", unit, help, false};
  }

  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  void sample(std::initializer_list<metric_label> labels, Integer value) {
    begin_sample(labels);
    text_ += std::to_string(value);
    text_ += '\n';
  }
  void sample(std::initializer_list<metric_label> labels, const reading<std::int64_t>& value) {
    if (value) sample(labels, *value);
  }
  void sample_seconds(std::initializer_list<metric_label> labels, std::int64_t ns) {
    begin_sample(labels);
    append_fixed(text_, ns, 9);
    text_ += '\n';
  }

  [[nodiscard]] std::string take() {
    if (is_openmetrics_) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  struct family {
    const char* name;
    const char* type;
    const char* suffix;
    const char* unit;
    const char* help;
    bool is_told;
  };

  void begin_sample(std::initializer_list<metric_label> labels) {
    if (!family_.is_told) tell_family();
    family_.is_told = true;
    text_ += family_.name;
    text_ += family_.suffix;
    const char* separator = "{";
    for (const metric_label& l : labels) {
      text_ += separator;
      text_ += l.name;
      text_ += "=\"";
      text_ += l.value;
      text_ += '"';
      separator = ",";
    }
    text_ += labels.size() == 0 ? " " : "} ";
  }

  void tell_family() {
    tell("TYPE", family_.type);
    if (is_openmetrics_ && *family_.unit != '\0') tell("UNIT", family_.unit);
    tell("HELP", family_.help);
  }

  void tell(const char* word, const char* value) {
    text_ += "# ";
    text_ += word;
    text_ += ' ';
    text_ += family_.name;
    if (!is_openmetrics_) text_ += family_.suffix;
    text_ += ' ';
    text_ += value;
    text_ += '\n';
  }

  bool is_openmetrics_;
  family family_ = {};
  std::string text_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
