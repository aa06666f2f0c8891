// SPDX-License-Identifier: MIT
// What /proc/PID/status says of a process's memory. A bounded number of system calls, no allocation, errno untouched,
// reasons that live for ever. Source: Documentation/filesystems/proc.rst (status), fs/proc/task_mmu.c (task_mem).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/process_figures.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstdint>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// A file of a process. Of this one it is a thread's own: that of the first thread is empty of figures once it has ended.
[[nodiscard]] inline system_path process_file(std::int64_t pid, std::string_view name) noexcept {
  return pid == this_process_id ? system_path("/proc/thread-self/", name) : system_path("/proc/", pid, "/", name);
}

/// What it means that a file of a process cannot be opened or read.
[[nodiscard]] inline const char* why_unreadable(std::int64_t pid, int error) noexcept {
  switch (error) {
    case EMFILE:
    case ENFILE:
      return "/proc cannot be read: no file descriptor is left";
    case EACCES:
    case EPERM:
      return pid == this_process_id
                 ? "a file of this process in /proc cannot be opened: the system does not permit it"
                 : "another process, which the kernel does not show here: only to its owner and to who may trace it (ptrace)";
    case ENOMEM:
      return "/proc cannot be read: the kernel is out of memory";
    default:
      break;
  }
  if (system_file(system_path("/proc/self/status")).error() != 0) {
    return "/proc/self/status cannot be opened: is /proc mounted?";
  }
  if (pid == this_process_id) return "a file of this process in /proc cannot be read: this kernel lacks it";
  return system_file(system_path("/proc/", pid, "/status")).error() != 0
             ? "no process has this number (any more)"
             : "a file of that process in /proc cannot be read: it has just ended, or this kernel lacks it";
}

/// Null, or why something lacks.
[[nodiscard]] inline const char* read_status(std::int64_t pid, status_figures& found) noexcept {
  found = status_figures();
  const system_file file(process_file(pid, "status"));
  if (file.error() != 0) return why_unreadable(pid, file.error());
  line_reader<> lines(file);
  std::string_view line;
  bool is_zombie = false;
  while (lines.next(line) && !lines.is_cut()) {
    static_cast<void>(
        take_kibibytes(line, "VmSize:", found.virtual_size) || take_kibibytes(line, "VmLck:", found.locked) ||
        take_kibibytes(line, "VmHWM:", found.mark) || take_kibibytes(line, "VmRSS:", found.resident) ||
        take_kibibytes(line, "RssFile:", found.of_files) || take_kibibytes(line, "RssShmem:", found.of_shared_memory) ||
        take_kibibytes(line, "VmData:", found.data) || take_kibibytes(line, "VmSwap:", found.swap));
    if (take_prefix(line, "State:")) is_zombie = take_word(line) == "Z";
    if (found.is_whole()) return nullptr;
  }
  if (lines.error() != 0 && pid == this_process_id) return "/proc/self/status cannot be read";
  if (lines.error() != 0) return why_unreadable(pid, lines.error());
  const bool has_memory = found.virtual_size >= 0 || found.mark >= 0 || found.resident >= 0;
  if (has_memory) return "the process's status file in /proc lacks figures: it ends early, or is another system's";
  if (is_zombie) return "the process (or its first thread) has ended and waits for its parent: it has no memory";
  return "the process's status file in /proc has no VmRSS and VmHWM: it is a kernel's thread, or is ending";
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
