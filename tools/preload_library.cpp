// SPDX-License-Identifier: MIT
// What tools/preload loads into a program before anything else: hook/malloc, and a report when the program ends.
//
// Any program may be the host, one in C too, so this is linked without the C++ library: with it a host in C would get its
// memory and its start-up allocations on top. What the hook needs of it is below and asks for the host's own copy; the
// version script tools/preload_library.map keeps it, and all but the replaced functions, to this library.
#include <tidemark/hook/malloc.hpp>

#include <csignal>
#include <cstdarg>
#include <cstdio>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/gate.hpp>

extern "C" char* program_invocation_short_name;  // glibc's

namespace {

/// A function of the host's C++ library, or null where it has none. Looked up late: the host may load it late.
template <class Function>
Function* in_cxx_library(const char* symbol) noexcept {
  Function* function = nullptr;
  void* library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function;
}

}  // namespace

namespace std {

extern const nothrow_t nothrow{};

new_handler get_new_handler() noexcept {
  auto* const hosts = in_cxx_library<new_handler()>("_ZSt15get_new_handlerv");
  return hosts == nullptr ? nullptr : hosts();
}

void __throw_bad_alloc() {
  if (auto* const hosts = in_cxx_library<void()>("_ZSt17__throw_bad_allocv")) hosts();
  // Another C++ library: its own operator throws its own exception.
  if (void* next = dlsym(RTLD_NEXT, "_Znwm")) reinterpret_cast<void* (*)(std::size_t)>(next)(PTRDIFF_MAX);
  tidemark::detail::os::say("out of memory in operator new, and no C++ library to throw std::bad_alloc");
  abort();
}

}  // namespace std

namespace {

/// Text of a bounded size.
class report_text {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    const int n = std::vsnprintf(text_ + size_, sizeof text_ - size_, format, arguments);
    va_end(arguments);
    if (n > 0) size_ += static_cast<std::size_t>(n) < sizeof text_ - size_ ? static_cast<std::size_t>(n) : 0;
  }
  [[nodiscard]] const char* data() const noexcept { return text_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  char text_[2'048] = {};
  std::size_t size_ = 0;
};

/// A signal that a write brings would end the program with its own output still in a buffer.
class no_signals {
 public:
  no_signals() noexcept {
    sigemptyset(&ours_);
    for (const int s : {SIGPIPE, SIGXFSZ, SIGTTOU}) sigaddset(&ours_, s);
    sigemptyset(&before_);
    sigpending(&before_);
    pthread_sigmask(SIG_BLOCK, &ours_, &mask_);
  }
  ~no_signals() {
    const int saved = errno;
    const timespec at_once{};
    for (const int s : {SIGPIPE, SIGXFSZ, SIGTTOU}) {
      if (sigismember(&before_, s) == 1) sigdelset(&ours_, s);
    }
    while (sigtimedwait(&ours_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    errno = saved;
  }
  no_signals(const no_signals&) = delete;
  no_signals& operator=(const no_signals&) = delete;

 private:
  sigset_t ours_, before_, mask_;
};

bool write_all(int to, const report_text& text) noexcept {
  const no_signals quietly;
  const char* at = text.data();
  for (std::size_t left = text.size(); left > 0;) {
    const ssize_t n = ::write(to, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    left -= static_cast<std::size_t>(n);
  }
  return true;
}

// The standard error as the program found it. Many close theirs before they end, so a copy is kept out of their way; and it
// is used only while it is still what it was, since a number that the program closed may be a file of its own by then.
int kept_stderr = -1;
struct stat kept_stderr_is {};

bool same_file(int descriptor) noexcept {
  struct stat now {};
  return fstat(descriptor, &now) == 0 && now.st_dev == kept_stderr_is.st_dev && now.st_ino == kept_stderr_is.st_ino &&
         now.st_rdev == kept_stderr_is.st_rdev;
}

// The environment as it was at the start: at the end it may be gone.
long started_process = 0;
char report_path[4'096] = {};

// A child by fork must not hold its caller's pipe open.
void close_kept() noexcept {
  if (kept_stderr >= 0 && same_file(kept_stderr)) ::close(kept_stderr);
  kept_stderr = -1;
}

__attribute__((constructor)) void keep_what_is_needed() noexcept {
  const int saved = errno;
  const char* started = getenv("TIDEMARK_PRELOAD_PID");
  const char* path = getenv("TIDEMARK_PRELOAD_REPORT");
  started_process = started == nullptr ? 0 : std::strtol(started, nullptr, 10);
  if (path != nullptr && std::strlen(path) < sizeof report_path) std::strcpy(report_path, path);
  if (started_process == getpid() && fstat(STDERR_FILENO, &kept_stderr_is) == 0) {
    kept_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 500);
    const tidemark::quiet hidden;
    pthread_atfork(nullptr, nullptr, close_kept);
  }
  errno = saved;
}

int where_stderr_is() noexcept {
  if (kept_stderr >= 0 && same_file(kept_stderr)) return kept_stderr;
  return same_file(STDERR_FILENO) ? STDERR_FILENO : -1;
}

void add_usage(report_text& text) noexcept {
  using tidemark::detail::byte_text;
  const tidemark::usage u = tidemark::detail::own_ledger.process.lifetime(tidemark::detail::own_ledger.settle_bytes);
  const tidemark::self_report self = tidemark::self();
  const auto line = [&text](const char* name, auto bytes) {
    const byte_text size(static_cast<std::int64_t>(bytes));
    text.add("  %-13s %11.*s", name, static_cast<int>(size.view().size()), size.view().data());
  };
  line("live", u.live_bytes);
  text.add("  %lld bytes in %lld blocks\n", static_cast<long long>(u.live_bytes),
           static_cast<long long>(u.live_blocks));
  line("peak", u.peak_bytes);
  text.add("  %lld bytes, ", static_cast<long long>(u.peak_bytes));
  if (u.error_bound_bytes == 0) {
    text.add("exact\n");
  } else {
    text.add("within %lld\n", static_cast<long long>(u.error_bound_bytes));
  }
  line("allocated", u.allocated_bytes);
  text.add("  in %llu allocations; %llu freed\n", static_cast<unsigned long long>(u.allocations),
           static_cast<unsigned long long>(u.deallocations));
  text.add("  %-13s %11llu  frees of blocks that the hook never saw\n", "foreign frees",
           static_cast<unsigned long long>(self.foreign_frees));
  line("own memory", self.own_bytes);
  text.add("  and %llu bytes of stamps\n", static_cast<unsigned long long>(self.stamp_bytes));
}

/// The path with each %p as the process's id.
bool expand(char* out, std::size_t room, const char* pattern) noexcept {
  std::size_t used = 0;
  for (const char* at = pattern; *at != '\0'; ++at) {
    if (at[0] == '%' && at[1] == 'p') {
      const int n = std::snprintf(out + used, room - used, "%ld", static_cast<long>(getpid()));
      if (n < 0 || static_cast<std::size_t>(n) >= room - used) return false;
      used += static_cast<std::size_t>(n);
      ++at;
    } else {
      if (used + 1 >= room) return false;
      out[used++] = *at;
    }
  }
  out[used] = '\0';
  return true;
}

// After the program's exit handlers and static destructors, which still allocate. The text is static: a thread with a small
// stack may end the program.
__attribute__((destructor)) void report() noexcept {
  const bool is_to_file = report_path[0] != '\0';
  const bool is_started_process = started_process == getpid();  // and no child by fork
  if (!is_to_file && !is_started_process) return;
  static_cast<void>(tidemark::detail::current_slot());
  tidemark::detail::settle_own();
  static report_text text;
  text.add("tidemark: %.200s (process %ld)\n", program_invocation_short_name, static_cast<long>(getpid()));
  if (tidemark::detail::own_ledger.hook == tidemark::hook_kind::none) {
    text.add("  nothing counted: %s\n", tidemark::detail::own_ledger.hook_reason);
  } else {
    add_usage(text);
  }
  if (!is_to_file) {
    static_cast<void>(write_all(where_stderr_is(), text));
    return;
  }
  static char name[4'096];
  const int file =
      expand(name, sizeof name, report_path) ? ::open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
  const bool is_written = file >= 0 && write_all(file, text);
  if (!is_written && is_started_process) {
    static report_text failure;
    failure.add("tidemark: the report could not be written to %.1000s: %s\n", report_path, strerror(errno));
    static_cast<void>(write_all(where_stderr_is(), failure));
  }
  if (file >= 0) ::close(file);
}

}  // namespace
