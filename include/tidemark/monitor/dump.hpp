// SPDX-License-Identifier: MIT
// A look into a running program from outside: `kill -USR1 PID` writes where its memory is.
//
//   tidemark::monitor m;
//   tidemark::dump_on_signal(SIGUSR1);
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/monitor/detail/bell.hpp>
#include <tidemark/monitor/where.hpp>
#include <tidemark/sys/detail/signal_posix.hpp>
#include <tidemark/sys/detail/signal_unknown.hpp>
#include <tidemark/sys/file.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Registry of where dumps go.
class TIDEMARK_EXPORT dump_target {
 public:
  static constexpr std::uint64_t key = registry_key("dump target");

  /// Empty: the standard error. Set before the first dump.
  std::string path;

  void on_fork(fork_moment) noexcept {}
};

inline namespace TIDEMARK_TAG {

/// A dump that cannot be written is said on the standard error.
inline void write_dump() noexcept {
  const quiet hidden;
  contain_exceptions(
      [&] {
        const std::string& path = find_registry<dump_target>()->path;
        const std::string text = "tidemark: where the memory of process " + std::to_string(os::process_id()) + " is, " +
                                 std::to_string(std::time(nullptr)) + " s after 1970\n" + where_is_my_memory().table() +
                                 "\n";
        int failed = 0;
        if (path.empty()) {
          failed = append_file(stderr).append(text);
        } else {
          failed = append_file(path).append(text);
        }
        if (failed != 0) os::say("the dump cannot be written to '", path, "': ", append_file::describe(failed));
      },
      [](const char* what) { os::say("no dump was made: ", what); });
  flush_sinks();
}

}  // namespace TIDEMARK_TAG
}  // namespace detail

inline namespace TIDEMARK_TAG {

/// From now on that signal asks for a dump of `where_is_my_memory()`, appended to the file, or to the standard error where
/// `path` is empty; and the sinks are flushed. The handler only sets a flag and wakes the monitors; whichever comes first
/// writes, and without one the next `monitor::check()` does. A handler that was there before is called too; system calls go on
/// after the signal (SA_RESTART). A fork child handles it likewise, once it has a monitor.
/// A second call for another signal adds that one, and for a signal that was set to SIG_DFL or SIG_IGN since takes it again; a
/// handler that someone else installed later stays and decides. The path stays the first one's. Does nothing with TIDEMARK_OPT_DISABLE.
/// Throws: `std::invalid_argument` for a signal that cannot be handled, or after which no program goes on (SIGSEGV and its
/// like); `std::bad_alloc`.
inline void dump_on_signal([[maybe_unused]] int signal, [[maybe_unused]] std::string path = {}) {
#if !TIDEMARK_OPT_DISABLE
  const quiet hidden;
  auto* const bell = detail::registry<detail::monitor_bell>();
  auto* const target = detail::registry<detail::dump_target>();
  if (bell == nullptr || target == nullptr) detail::raise_bad_alloc();
  const char* const why = detail::os::handle_signal(signal, []() noexcept {
    if (auto* b = detail::find_registry<detail::monitor_bell>()) b->ask();
  });
  if (why != nullptr) detail::raise_invalid_argument(("tidemark::dump_on_signal: " + std::string(why)).c_str());
  if (!bell->has_dump()) target->path = std::move(path);
  bell->dump_by(detail::write_dump);  // from now on a signal that came already is answered, too
#endif
}

}  // namespace TIDEMARK_TAG
}  // namespace v0
}  // namespace tidemark
