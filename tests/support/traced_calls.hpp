// SPDX-License-Identifier: MIT
// The system calls of a piece of code, counted from outside by a tracer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/config/platform.hpp>

#include "test.hpp"

#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR() && defined(PTRACE_GET_SYSCALL_INFO)
  #define CAN_TRACE_CALLS() 1

struct traced_call {
  std::uint64_t number, flags;  // the flags of an openat()
};
using traced_part = std::vector<traced_call>;

/// Between the parts of what is traced.
inline void next_part() { ::syscall(SYS_getppid); }

/// The system calls of each part of `f`, in a child. Empty where the system traces no one.
template <class F>
[[nodiscard]] std::vector<traced_part> traced(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    f();
    ::_exit(0);
  }
  std::vector<traced_part> parts(1);
  int status = 0;
  const auto wait = [&] { return ::waitpid(child, &status, 0) == child && WIFSTOPPED(status); };
  if (!wait()) return {};
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    if (!wait()) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    __ptrace_syscall_info info = {};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) {
      ::ptrace(PTRACE_KILL, child, nullptr, nullptr);
      while (wait()) {
      }
      return {};
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    if (info.entry.nr == SYS_getppid) {
      parts.emplace_back();
    } else {
      parts.back().push_back({info.entry.nr, info.entry.args[2]});
    }
  }
  CHECK(status == 0);
  return parts;
}

[[nodiscard]] inline std::ptrdiff_t count(const traced_part& part, std::uint64_t number) {
  std::ptrdiff_t n = 0;
  for (const traced_call& c : part) n += c.number == number ? 1 : 0;
  return n;
}

[[nodiscard]] inline std::string names(const traced_part& part) {
  std::string all;
  for (const traced_call& c : part) {
    all += c.number == SYS_openat  ? "openat "
           : c.number == SYS_read  ? "read "
           : c.number == SYS_write ? "write "
           : c.number == SYS_close ? "close "
                                   : std::to_string(c.number) + " ";
  }
  return all;
}

#else
  #define CAN_TRACE_CALLS() 0
#endif
