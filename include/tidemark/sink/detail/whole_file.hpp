// SPDX-License-Identifier: MIT
// A file that is written anew each time: readers find the old text or the new one, never a part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/sink/detail/complaint.hpp>
#include <tidemark/sys/detail/rewrite.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
inline namespace TIDEMARK_TAG {

/// Threads: any. A fork child writes a file of its own.
class whole_file {
 public:
  whole_file(const char* writer, const std::string& path, const quiet& = quiet()) : writer_(writer), path_(path) {}

  /// `make` gives the text, with no other write of the folder going on: the last one to come is the newest. What cannot
  /// be written is a dropped record. A link is followed.
  template <class Make>
  void write(Make make) {
    const bool is_here = process_ == ledger().process_id;
    const std::string path = is_here ? path_ : path_of_process(path_, ledger().process_id);
    const int failed = try_write(path, make);
    if (failed == 0) return;
    drop_record();
    complaint_.say(writer_, path, failed);
  }

 private:
  static constexpr std::int64_t patience_ns = 1'000'000'000;  // a sampler waits no longer for others in the folder

  template <class Make>
  [[nodiscard]] static int try_write(const std::string& path, Make make) {
    std::string target;
    if (const int failed = os::behind_links(path, target)) return failed;
    const os::folder_lock alone(target, patience_ns);
    if (alone.error() != 0) return alone.error();
    return os::replace_whole(target, make());
  }

  const char* writer_;
  std::string path_;
  std::uint64_t process_ = ledger().process_id;
  complaint complaint_;
};

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
