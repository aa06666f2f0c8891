// SPDX-License-Identifier: MIT
// The contract of sys/process about any process, on Linux:
//   read_status(pid, found), read_faults(pid, found), read_full(pid, found)   null, or why something lacks
//   for_each_mapping_of(pid, f)   calls f(const mapping_figures&); null, or why there is no list
//   process_number(pid)           the number itself, also of this process; negative where it is not known
//   is_alive(number)              false where it has ended, also while it waits for its parent
//   for_each_process(f)           calls f(number, parent's number, name) for those alive; null, or why there is no list
// Reasons live for ever. errno is untouched. Source: Documentation/filesystems/proc.rst.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/sys/detail/mappings_linux.hpp>
#include <tidemark/sys/detail/process_figures.hpp>
#include <tidemark/sys/detail/status_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <string_view>

  #include <dirent.h>
  #include <sys/resource.h>
  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// "12 (name) S 1 ...": what follows the name, which may hold anything; empty where the line is no such one.
[[nodiscard]] inline std::string_view behind_name(std::string_view stat, std::string_view& name) noexcept {
  const std::size_t from = stat.find('(');
  const std::size_t to = stat.rfind(')');
  if (from == std::string_view::npos || to == std::string_view::npos || to < from) return {};
  name = stat.substr(from + 1, to - from - 1);
  return stat.substr(to + 1);
}

[[nodiscard]] inline const char* read_faults(std::int64_t pid, fault_figures& found) noexcept {
  if (pid == this_process_id) {
    rusage used{};
    if (::getrusage(RUSAGE_SELF, &used) != 0) return "getrusage() failed";
    found = {used.ru_minflt, used.ru_majflt};
    return nullptr;
  }
  char text[1'024];
  std::string_view line;
  const system_file file(process_file(pid, "stat"));
  if (const int failed = file.read_all(text, line)) return why_unreadable(pid, failed);
  std::string_view name;
  line = behind_name(line, name);
  for (int field = 3; field < 10; ++field) take_word(line);
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  if (!take_number(line, minor_faults)) return "the process's stat file in /proc ends early";
  take_word(line);  // of its children
  if (!take_number(line, major_faults)) return "the process's stat file in /proc ends early";
  found = {static_cast<std::int64_t>(minor_faults), static_cast<std::int64_t>(major_faults)};
  return nullptr;
}

/// What it means that a list of mappings ended with this errno value.
[[nodiscard]] inline const char* why_no_mappings(std::int64_t pid, int error) noexcept {
  return error == EBADMSG ? "the list of mappings in /proc ends within a mapping, or lacks figures"
                          : why_unreadable(pid, error);
}

[[nodiscard]] inline const char* read_full(std::int64_t pid, full_figures& found) noexcept {
  found = full_figures();
  const system_file file(process_file(pid, "smaps_rollup"));
  if (file.error() == ENOENT) {  // before Linux 4.14
    const system_file all(process_file(pid, "smaps"));
    found = {0, 0, 0};
    const int failed = for_each_mapping(all, [&](const mapping_entry& m) {
      found.proportional += m.proportional;
      found.unique += m.unique;
      found.huge += m.huge;
    });
    if (failed == 0) return nullptr;
    found = full_figures();
    return why_no_mappings(pid, failed);
  }
  line_reader<> lines(file);
  std::string_view line;
  mapping_entry sum;
  bool is_whole = false;  // it ends with what is locked
  while (lines.next(line) && !lines.is_cut()) {
    take_mapping_figure(line, sum);
    is_whole = sum.has_figures();
  }
  if (lines.error() != 0) return why_unreadable(pid, lines.error());
  if (!is_whole) return "smaps_rollup in /proc ends early, or lacks figures: is the process ending?";
  found = {sum.proportional, sum.unique, sum.huge};
  return nullptr;
}

/// Whether a thread that the library knows has its stack there.
[[nodiscard]] inline bool is_known_stack(std::uint64_t begin, std::uint64_t end) noexcept {
  bool is_known = false;
  for_each_slot([&](slot& s) {
    const std::uintptr_t at = s.stack_mark.load(std::memory_order_relaxed);  // a hint: the thread may be ending
    is_known = is_known || (s.thread_id.load(std::memory_order_relaxed) != 0 && at >= begin && at < end);
  });
  return is_known;
}

[[nodiscard]] inline mapping_kind kind_of(const mapping_entry& m, bool is_own) noexcept {
  const std::string_view name = m.name();
  const auto begins = [name](std::string_view with) { return name.substr(0, with.size()) == with; };
  if (name == "[heap]") return mapping_kind::heap;
  if (begins("[stack")) return mapping_kind::stack;
  if (name.empty() || begins("[anon:")) {
    return is_own && is_known_stack(m.begin, m.end) ? mapping_kind::stack : mapping_kind::anonymous;
  }
  if (begins("[anon_shmem:") || begins("/memfd:") || begins("/SYSV") || begins("/dev/zero")) {
    return mapping_kind::shared_memory;
  }
  if (name.front() == '[') return mapping_kind::kernel;
  return m.is_executable ? mapping_kind::code : mapping_kind::file;
}

/// Null, or why there is no list. Where there is none, `f` may have been called all the same.
template <class F>
[[nodiscard]] const char* for_each_mapping_of(std::int64_t pid, F f) {
  const system_file file(process_file(pid, "smaps"));
  if (file.error() != 0) return why_unreadable(pid, file.error());
  const int failed = for_each_mapping(file, [&](const mapping_entry& m) {
    f(mapping_figures{kind_of(m, pid == this_process_id), m.name(), m.size(), m.resident, m.proportional, m.unique,
                      m.huge, m.swap});
  });
  return failed == 0 ? nullptr : why_no_mappings(pid, failed);
}

/// As this /proc numbers it, which may be another system's namespace.
[[nodiscard]] inline std::int64_t process_number(std::int64_t pid) noexcept {
  if (pid != this_process_id) return pid;
  const int saved = errno;
  char text[32];
  const ssize_t n = ::readlink(system_path("/proc/self").c_str(), text, sizeof text);
  errno = saved;
  std::string_view digits(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  std::uint64_t number = 0;
  return take_number(digits, number) && digits.empty() ? static_cast<std::int64_t>(number) : -1;
}

/// A folder while its entries are read. Allocates: what the system's reader takes.
class folder_reader {
 public:
  explicit folder_reader(const system_path& path) noexcept : folder_(::opendir(path.c_str())) {
    if (folder_ == nullptr) error_ = errno;
  }
  ~folder_reader() {
    if (folder_ != nullptr) ::closedir(folder_);
    errno = saved_errno_;
  }
  folder_reader(const folder_reader&) = delete;
  folder_reader& operator=(const folder_reader&) = delete;

  /// Why it is not open, as an errno value; 0 where it is.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// The next entry's name, valid until the next call; null at the end.
  [[nodiscard]] const char* next() noexcept {
    const dirent* const entry = folder_ == nullptr ? nullptr : ::readdir(folder_);
    return entry == nullptr ? nullptr : entry->d_name;
  }

 private:
  no_cancellation whole_;
  int saved_errno_ = errno;
  int error_ = 0;
  DIR* folder_;
};

/// A process that has memory.
struct living_process {
  char stat_text[1'024];
  std::string_view name;  // in the text
  std::int64_t parent = 0;
};

/// False: no process has this number, or one that has ended and waits for its parent.
[[nodiscard]] inline bool find_process(std::int64_t number, living_process& found) noexcept {
  std::string_view line;
  if (system_file(system_path("/proc/", number, "/stat")).read_all(found.stat_text, line) != 0) return false;
  line = behind_name(line, found.name);
  const std::string_view state = take_word(line);
  std::uint64_t parent = 0;
  if (state == "Z" || state == "X" || !take_number(line, parent)) return false;
  found.parent = static_cast<std::int64_t>(parent);
  return true;
}

[[nodiscard]] inline bool is_alive(std::int64_t number) noexcept {
  living_process p;
  return find_process(number, p);
}

/// Null, or why there is no list.
template <class F>
[[nodiscard]] const char* for_each_process(F f) {
  folder_reader folder(system_path("/proc"));
  if (folder.error() == EMFILE || folder.error() == ENFILE) return "/proc cannot be listed: no file descriptor is left";
  if (folder.error() != 0) return "/proc cannot be listed: is it mounted?";
  while (const char* const entry = folder.next()) {
    std::string_view digits = entry;
    std::uint64_t number = 0;
    if (digits.front() < '0' || digits.front() > '9' || !take_number(digits, number) || !digits.empty()) continue;
    const auto pid = static_cast<std::int64_t>(number);
    living_process p;
    if (find_process(pid, p)) f(pid, p.parent, p.name);
  }
  return nullptr;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
