// SPDX-License-Identifier: MIT
// The .dat file that `mprof peak` and `mprof plot` of memory_profiler read: memory over time, with scopes as brackets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sink/detail/decimal.hpp>
#include <tidemark/sink/detail/line_output.hpp>
#include <tidemark/sys/detail/rewrite.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_TAG {

/// Appends to a file, as mprof itself does: give each run and each program a file of its own.
/// A sample is a line of the resident set or, in a file whose first sample has none, of the heap's live bytes; a sample
/// without that figure has no line. A scope is a bracket between the same figure at its entry and at its exit, of its
/// meter `resident` or `process_heap`; a scope without that meter gets the latest sample's figure at both ends, and no
/// line before there is one.
/// A fork child's samples are those of a child, numbered by its process id; its scopes, which the format cannot tell
/// from the parent's, are left out. Blanks and control characters in names become '_'.
/// The steady clock is turned into Unix time once, when the sink is made: a clock that is set later, or a suspended
/// machine, do not show.
/// What cannot be opened or written is said once on the standard error, and its records are dropped and counted.
/// Threads: any; each line is one write. Throws: the constructor, nothing but `std::bad_alloc`.
/// Source: memory_profiler 0.61, mprof.py.
class mprof_sink final : public sink {
 public:
  // The last argument keeps what the members allocate out of the user's numbers: it lasts until they are made.
  explicit mprof_sink(const std::string& path, const quiet& = quiet())
      : command_line_(command_line()), output_("mprof_sink", path, command_line_) {}

#if !TIDEMARK_OPT_DISABLE
  void on_scope(const scope_record& r) override {
    if (is_in_child()) return;
    const ends found = figures_of(r);
    if (!found.entry_bytes) return;
    std::string line = "FUNC ";
    append_name(line, r.path);
    append_point(line, *found.entry_bytes, r.start_ns);
    append_point(line, *found.exit_bytes, r.start_ns + r.duration_ns);
    line += ' ';
    detail::append_integer(line, std::int64_t{r.depth});
    line += '\n';
    output_.write(line);
  }

  void on_sample(const sample_record& r) override {
    const std::optional<std::int64_t> value = take(r);
    if (!value) return;
    std::string line = "MEM";
    if (is_in_child()) {
      line = "CHLD ";
      detail::append_integer(line, detail::ledger().process_id);
    }
    append_point(line, *value, r.time_ns);
    line += '\n';
    output_.write(line);
  }
#endif

 private:
  enum class figure { none, resident, heap };
  struct ends {
    std::optional<std::int64_t> entry_bytes, exit_bytes;
  };

  [[nodiscard]] bool is_in_child() const noexcept { return process_ != detail::ledger().process_id; }

  /// The figure of this file, if the sample has it.
  [[nodiscard]] std::optional<std::int64_t> take(const sample_record& r) {
    const detail::spin_guard held(lock_);
    if (figure_ == figure::none && r.resident_bytes) figure_ = figure::resident;
    if (figure_ == figure::none && r.heap) figure_ = figure::heap;
    if (figure_ == figure::resident && r.resident_bytes) return latest_bytes_ = *r.resident_bytes;
    if (figure_ == figure::heap && r.heap) return latest_bytes_ = r.heap->live_bytes;
    return std::nullopt;
  }

  [[nodiscard]] ends figures_of(const scope_record& r) {
    figure of_file = figure::none;
    std::optional<std::int64_t> latest;
    {
      const detail::spin_guard held(lock_);
      of_file = figure_;
      latest = latest_bytes_;
    }
    const meter_reading* meter = of_file == figure::heap ? nullptr : r.find("resident");
    if (of_file != figure::resident && (meter == nullptr || !meter->usage)) meter = r.find("process_heap");
    if (meter == nullptr || !meter->usage) return {latest, latest};
    return {meter->usage->entry_bytes, meter->usage->exit_bytes};
  }

  static void append_name(std::string& line, std::string_view path) {
    if (path.empty()) line += "(unnamed)";
    const std::size_t begin = line.size();
    detail::append_clean(line, path, [](std::string& out, unsigned char) { out += '_'; });
    for (std::size_t i = begin; i < line.size(); ++i) {
      if (line[i] == ' ') line[i] = '_';
    }
  }

  void append_point(std::string& line, std::int64_t bytes, std::int64_t steady_ns) const {
    line += ' ';
    detail::append_mebibytes(line, bytes);
    line += ' ';
    detail::append_fixed(line, (steady_ns + unix_minus_steady_ns_) / 100'000, 4);
  }

  /// The first line of a file. Arguments with blanks are quoted as mprof does.
  [[nodiscard]] static std::string command_line() {
    std::string arguments;
    std::string line = "CMDLINE";
    if (detail::os::read_whole("/proc/self/cmdline", 65'536, arguments) != 0) arguments = "(unknown)";
    for (std::size_t from = 0; from < arguments.size();) {
      const std::size_t found = arguments.find('\0', from);
      const std::size_t end = found == std::string::npos ? arguments.size() : found;
      const std::string_view argument = std::string_view(arguments).substr(from, end - from);
      const char* const quote = argument.find_first_of(" \t") == std::string_view::npos ? "" : "'";
      (line += ' ') += quote;
      detail::append_printable(line, argument);
      line += quote;
      from = end + 1;
    }
    return line + '\n';
  }

  [[nodiscard]] static std::int64_t unix_minus_steady_ns() noexcept {
    std::timespec now = {};
    static_cast<void>(std::timespec_get(&now, TIME_UTC));
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - detail::os::steady_ns();
  }

  std::int64_t unix_minus_steady_ns_ = unix_minus_steady_ns();
  std::uint64_t process_ = detail::ledger().process_id;
  detail::leaf_lock lock_;  // for the two below
  figure figure_ = figure::none;
  std::optional<std::int64_t> latest_bytes_;
  std::string command_line_;  // lives as long as what writes it
  detail::line_output output_;
};

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
