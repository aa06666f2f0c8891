// SPDX-License-Identifier: MIT
// The contract of gpu/ about the process that asks, on Linux:
//   is_first_pid_namespace()   the numbers of processes here are the host's; false too where that is not known
//   is_process_here(number)    whether a process has that number here
//   is_forked_without_exec()   the process is a child that fork() made and that ran no other program since
// Source: Documentation/filesystems/proc.rst (stat), include/linux/sched.h (PF_FORKNOEXEC), include/linux/proc_ns.h.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/process_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <string_view>

  #include <unistd.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace driver {

/// What a link leads to; empty where there is none.
[[nodiscard]] inline std::string_view read_link(const os::system_path& path, char (&buffer)[512]) noexcept {
  const int saved = errno;
  const ssize_t n = ::readlink(path.c_str(), buffer, sizeof buffer);
  errno = saved;
  return n <= 0 ? std::string_view() : std::string_view(buffer, static_cast<std::size_t>(n));
}

[[nodiscard]] inline bool is_first_pid_namespace() noexcept {
  char buffer[512];
  return read_link(os::system_path("/proc/self/ns/pid"), buffer) == "pid:[4026531836]";  // PROC_PID_INIT_INO
}

[[nodiscard]] inline bool is_process_here(std::uint64_t number) noexcept {
  return os::system_file(os::system_path("/proc/", number, "/stat")).error() == 0;
}

[[nodiscard]] inline bool is_forked_without_exec() noexcept {
  constexpr std::uint64_t fork_no_exec = 0x40;
  char text[1'024];
  std::string_view line;
  // Of the process, not of the thread that asks: a thread is always made without a program of its own.
  if (os::system_file(os::system_path("/proc/self/stat")).read_all(text, line) != 0) return false;
  std::string_view name;
  line = os::behind_name(line, name);
  for (int field = 3; field < 9; ++field) os::take_word(line);
  std::uint64_t flags = 0;
  return os::take_number(line, flags) && (flags & fork_no_exec) != 0;
}

}  // namespace driver
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
