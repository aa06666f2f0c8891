// SPDX-License-Identifier: MIT
// Metrics for Prometheus and its kin: a file for node_exporter's textfile collector, or the text for an HTTP server of
// one's own.
//
//   const auto metrics = std::make_shared<tidemark::openmetrics_sink>();
//   const auto attached = tidemark::attach(metrics);
//   // GET /metrics: metrics->openmetrics_text(), as openmetrics_sink::openmetrics_content_type
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sink/detail/metrics_state.hpp>
#include <tidemark/sink/detail/whole_file.hpp>

namespace tidemark {
inline namespace v0 {

/// Which text a file gets.
enum class metrics_format {
  by_name,      ///< `prometheus` where the path ends in ".prom", as the textfile collector wants it, else `openmetrics`
  openmetrics,  ///< OpenMetrics 1.0
  prometheus,   ///< the Prometheus text format 0.0.4
};

/// How metrics are told.
struct openmetrics_options {
  metrics_format format = metrics_format::by_name;
  std::size_t max_label_values = 200;  ///< of each label, in the sink's life; later ones are left out and counted
};

inline namespace TIDEMARK_TAG {

/// Tells the last sample, the alerts, and what scopes took, by path. What is absent has no line. Domains that share a
/// name are added up, their peaks left out.
/// With a path the file is written whole at each sample and alert, and then renamed into its place. What cannot be
/// written is said once on the standard error, dropped and counted. A fork child begins anew, in a file with its
/// process id in the name: "app.prom" is "app.4242.prom".
/// Threads: any. Throws: the constructor, nothing but `std::bad_alloc`.
class openmetrics_sink final : public sink {
 public:
  static constexpr std::string_view openmetrics_content_type =
      "application/openmetrics-text; version=1.0.0; charset=utf-8";
  static constexpr std::string_view prometheus_content_type = "text/plain; version=0.0.4; charset=utf-8";

  /// Writes no file.
  explicit openmetrics_sink(openmetrics_options options = {}) : options_(options), state_(options.max_label_values) {}
  explicit openmetrics_sink(const std::string& path, openmetrics_options options = {})
      : options_(options), state_(options.max_label_values) {
    options_.format = format_of(path);
    file_.emplace("openmetrics_sink", path);
  }

#if !TIDEMARK_OPT_DISABLE
  void on_scope(const scope_record& r) override {
    change([&r](detail::metrics_state& s) { s.add(r); });
  }
  void on_sample(const sample_record& r) override {
    change([&r](detail::metrics_state& s) { s.take(r); });
    write_file();
  }
  void on_alert(const alert_record& r) override {
    change([&r](detail::metrics_state& s) { s.add(r); });
    write_file();
  }
#endif

  /// The metrics so far. Throws: `std::bad_alloc`. The text is never in your numbers.
  [[nodiscard]] std::string openmetrics_text() const { return text(true); }
  [[nodiscard]] std::string prometheus_text() const { return text(false); }

 private:
  [[nodiscard]] metrics_format format_of(std::string_view path) const noexcept {
    constexpr std::string_view collected = ".prom";
    if (options_.format != metrics_format::by_name) return options_.format;
    const bool is_collected =
        path.size() >= collected.size() && path.substr(path.size() - collected.size()) == collected;
    return is_collected ? metrics_format::prometheus : metrics_format::openmetrics;
  }

  // The lock lets its own thread in again, as a new-handler that asks for the text in the middle of a change.
  template <class Change>
  void change(Change change) const {
    const detail::spin_guard held(lock_);
    if (is_busy_) return detail::drop_record();
    const busy mark(is_busy_);
    if (process_ != detail::ledger().process_id) {
      process_ = detail::ledger().process_id;
      state_ = detail::metrics_state(options_.max_label_values);
    }
    change(state_);
  }

  [[nodiscard]] std::string text(bool is_openmetrics) const {
    const quiet hidden;
    const self_report own = self();
    std::string out;
    change([&](detail::metrics_state& s) { out = s.text(is_openmetrics, own); });
    return out;
  }

  void write_file() {
    if (file_) file_->write([this] { return text(options_.format == metrics_format::openmetrics); });
  }

  struct busy {
    explicit busy(bool& mark) noexcept : mark_(mark) { mark_ = true; }
    ~busy() { mark_ = false; }
    busy(const busy&) = delete;
    busy& operator=(const busy&) = delete;
    bool& mark_;
  };

  openmetrics_options options_;
  mutable detail::leaf_lock lock_;  // for the three below
  mutable bool is_busy_ = false;
  mutable std::uint64_t process_ = detail::ledger().process_id;
  mutable detail::metrics_state state_;
  std::optional<detail::whole_file> file_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
