// SPDX-License-Identifier: MIT
// What a sink says that cannot write: once, since a full disk would otherwise say so for every record.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/sys/file.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Threads: any.
class complaint {
 public:
  /// `error` is an errno value.
  void say(const char* writer, const std::string& path, int error) {
    if (has_complained_.exchange(true, std::memory_order_relaxed)) return;  // said by whoever came first
    const quiet hidden;
    std::string name = path;
    if (name.size() > 300) name.replace(150, name.size() - 300, "...");  // the reason must fit
    std::string where = " cannot write to '";
    append_printable(where, name);
    os::say(writer, where + "': ", append_file::describe(error),
            "; its records are dropped while that lasts (counted in self().dropped_records)");
  }

 private:
  std::atomic<bool> has_complained_{false};
};

/// Where another process writes that has no path of its own, as a fork child: the same with its number in the name,
/// "run.json" as "run.4242.json".
[[nodiscard]] inline std::string path_of_process(const std::string& path, std::uint64_t process) {
  const std::size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  const std::size_t dot = path.rfind('.');
  const std::size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
  return path.substr(0, at) + '.' + std::to_string(process) + path.substr(at);
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
