// SPDX-License-Identifier: MIT
// What tools/preload loads into a program before anything else: hook/malloc, and a report when the program ends. The scopes
// of a program without a hook of its own use the ledger of this library, and the report has their summary.
//
// Any program may be the host, one in C too, so this is linked without the C++ library: with it a host in C would get its
// memory and its start-up allocations on top. What is needed of it is below: made here, or asked for in the host's own copy.
// The version script tools/preload_library.map keeps it, and all but the replaced functions, to this library.
#include <tidemark/hook/malloc.hpp>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/sink/detail/summary_tree.hpp>

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

// An exception of the host's would pass through this library without unwinding it, and leave the summary's lock taken. So
// where memory runs out the summary jumps: what it was making is lost, and the summary stays as it was before.
std::atomic<const void*> summing_thread{nullptr};
jmp_buf out_of_memory;

}  // namespace

template class std::basic_string<char>;  // the header declares that the C++ library has it

namespace std {

extern const nothrow_t nothrow{};

// Compares what needs run-time type information, which is off here.
bool _Sp_make_shared_tag::_S_eq(const type_info&) noexcept { return false; }

new_handler get_new_handler() noexcept {
  auto* const hosts = in_cxx_library<new_handler()>("_ZSt15get_new_handlerv");
  return hosts == nullptr ? nullptr : hosts();
}

void __throw_bad_alloc() {
  if (summing_thread.load(std::memory_order_relaxed) == tidemark::detail::os::thread_mark()) longjmp(out_of_memory, 1);
  if (auto* const hosts = in_cxx_library<void()>("_ZSt17__throw_bad_allocv")) hosts();
  // Another C++ library: its own operator throws its own exception.
  if (void* next = dlsym(RTLD_NEXT, "_Znwm")) reinterpret_cast<void* (*)(std::size_t)>(next)(PTRDIFF_MAX);
  tidemark::detail::os::say("out of memory in operator new, and no C++ library to throw std::bad_alloc");
  abort();
}

// Of strings and vectors that are used wrongly, which those here are not.
void __throw_bad_array_new_length() { __throw_bad_alloc(); }
void __throw_length_error(const char*) { __throw_bad_alloc(); }
void __throw_logic_error(const char*) { abort(); }
void __throw_invalid_argument(const char*) { abort(); }
void __throw_out_of_range_fmt(const char*, ...) { abort(); }

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

template <class Text>
bool write_all(int to, const Text& text) noexcept {
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

/// Adds up the scopes of the program. Never destroyed, and never freed by the host.
class scope_summary final : public tidemark::sink {
 public:
  void on_scope(const tidemark::scope_record& r) override {
    const tidemark::detail::spin_guard held(lock_);
    const std::uint64_t process = tidemark::detail::own_ledger.process_id;
    if (std::exchange(process_, process) != process) tree_.clear();  // a fork child tells what is its own
    summing_thread.store(tidemark::detail::os::thread_mark(), std::memory_order_relaxed);  // read by this thread
    if (setjmp(out_of_memory) == 0) {
      tree_.add(r);
    } else {
      tidemark::detail::drop_record();
    }
    summing_thread.store(nullptr, std::memory_order_relaxed);
  }

  /// Empty where the program has no scopes.
  [[nodiscard]] std::string table() {
    const tidemark::detail::spin_guard held(lock_);
    const auto* paths = tidemark::detail::find_registry<tidemark::detail::path_tree>();
    const bool has_scopes = paths != nullptr && paths->root().first_child.load(std::memory_order_acquire) != nullptr;
    if (!has_scopes) return {};
    summing_thread.store(tidemark::detail::os::thread_mark(), std::memory_order_relaxed);  // read by this thread
    std::string text;
    if (setjmp(out_of_memory) == 0) {
      text = tree_.table();
    } else {
      tidemark::detail::os::say("no memory is left for the summary of the scopes");
    }
    summing_thread.store(nullptr, std::memory_order_relaxed);
    return text;
  }

 private:
  tidemark::detail::leaf_lock lock_;
  tidemark::detail::summary_tree tree_;
  std::uint64_t process_ = tidemark::detail::own_ledger.process_id;
};

scope_summary* summary = nullptr;
tidemark::detail::spin_lock summary_lock;

/// A part of the program with scopes and without a hook asks whose ledger to use.
bool welcome() noexcept {
  if (tidemark::detail::own_ledger.hook == tidemark::hook_kind::none) return false;
  const tidemark::quiet hidden;
  auto* sinks = tidemark::detail::registry<tidemark::detail::sink_registry>();
  const tidemark::detail::spin_guard held(summary_lock);
  if (summary != nullptr || sinks == nullptr) return sinks != nullptr;
  alignas(scope_summary) static unsigned char place[sizeof(scope_summary)];
  summary = new (place) scope_summary;
  const std::shared_ptr<tidemark::sink> never_freed(std::shared_ptr<void>(), summary);
  sinks->add(std::make_shared<tidemark::detail::attached_sink>(never_freed, *sinks));
  return true;
}

void report() noexcept;

// What was there before; the host's own, unless it has set one.
void (*next_terminate_handler)() = nullptr;

[[noreturn]] void report_and_terminate() noexcept {
  report();
  if (next_terminate_handler != nullptr) next_terminate_handler();
  abort();
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
  tidemark::detail::own_ledger.welcome = welcome;
  const tidemark::quiet hidden;
  using handler = void();
  if (auto* const set = in_cxx_library<handler*(handler*)>("_ZSt13set_terminatePFvvE")) {
    next_terminate_handler = set([] { report_and_terminate(); });
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

// After the program's exit handlers and static destructors, which still allocate; or when it terminates by an exception. The
// text is static: a thread with a small stack may end the program.
__attribute__((destructor)) void report() noexcept {
  static bool is_reported = false;
  if (std::exchange(is_reported, true)) return;
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
  const tidemark::quiet hidden;
  const std::string scopes = summary == nullptr ? std::string() : summary->table();
  if (!is_to_file) {
    static_cast<void>(write_all(where_stderr_is(), text) && write_all(where_stderr_is(), scopes));
    return;
  }
  static char name[4'096];
  const int file =
      expand(name, sizeof name, report_path) ? ::open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
  const bool is_written = file >= 0 && write_all(file, text) && write_all(file, scopes);
  if (!is_written && is_started_process) {
    static report_text failure;
    failure.add("tidemark: the report could not be written to %.1000s: %s\n", report_path, strerror(errno));
    static_cast<void>(write_all(where_stderr_is(), failure));
  }
  if (file >= 0) ::close(file);
}

}  // namespace
