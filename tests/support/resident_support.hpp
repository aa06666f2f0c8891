// SPDX-License-Identifier: MIT
// What the tests of the resident set share: pages that are touched and released on purpose, the kernel's own figures read
// without the library, children in which a state of the process can be spoilt, and system calls that fail on demand.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>

#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/reading.hpp>
#include <tidemark/core/usage.hpp>

#include "test.hpp"

inline constexpr std::int64_t MiB = std::int64_t{1} << 20;

// A sanitizer's shadow is resident too, and its runtime allocates and makes system calls of its own: what compares bytes
// with what the test touched, or counts calls, is left out there.
inline constexpr bool has_noise = TIDEMARK_HAS_SANITIZER_ALLOCATOR();

// ---- pages ----

[[nodiscard]] inline std::int64_t page_bytes() { return ::sysconf(_SC_PAGESIZE); }

/// Zero pages, none of them resident before it is touched and none of them huge.
class pages {
 public:
  explicit pages(std::int64_t bytes, int sharing = MAP_PRIVATE) : bytes_(static_cast<std::size_t>(bytes)) {
    void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    ::madvise(p, bytes_, MADV_NOHUGEPAGE);
    first_ = static_cast<char*>(p);
  }
  ~pages() { ::munmap(first_, bytes_); }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;

  void touch(std::int64_t from, std::int64_t bytes) const {
    volatile char* p = first_;
    for (std::int64_t at = from; at < from + bytes; at += page_bytes()) p[at] = 1;
  }
  void touch() const { touch(0, static_cast<std::int64_t>(bytes_)); }
  /// They stay mapped.
  void release(std::int64_t from, std::int64_t bytes) const {
    ::madvise(first_ + from, static_cast<std::size_t>(bytes), MADV_DONTNEED);
  }
  void release() const { release(0, static_cast<std::int64_t>(bytes_)); }

 private:
  std::size_t bytes_;
  char* first_ = nullptr;
};

inline void touch_and_unmap(std::int64_t bytes) {
  const pages p(bytes);
  p.touch();
}

// ---- the kernel's figures ----

/// A small file as it is now; empty where it cannot be read. Allocates nothing.
[[nodiscard]] inline std::string_view file_text(const char* path) {
  static char text[1 << 16];
  const int f = ::open(path, O_RDONLY | O_CLOEXEC);
  std::size_t size = 0;
  for (;;) {
    const ssize_t n = f < 0 ? 0 : ::read(f, text + size, sizeof text - size);
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (f >= 0) ::close(f);
  return {text, size};
}

[[nodiscard]] inline std::int64_t number_at(std::string_view text) {
  std::int64_t n = 0;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1))
    n = n * 10 + text.front() - '0';
  return n;
}

/// The bytes of the line that begins with `key`; -1 without one.
[[nodiscard]] inline std::int64_t kernel_line(const char* path, std::string_view key) {
  std::string_view text = file_text(path);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.substr(0, key.size()) == key) return number_at(line.substr(key.size())) * 1'024;
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
  }
  return -1;
}

/// By walking the page tables: no counter is involved.
[[nodiscard]] inline std::int64_t pages_present() { return kernel_line("/proc/self/smaps_rollup", "Rss:"); }
[[nodiscard]] inline std::int64_t kernel_resident() { return kernel_line("/proc/self/status", "VmRSS:"); }
[[nodiscard]] inline std::int64_t kernel_mark() { return kernel_line("/proc/self/status", "VmHWM:"); }
[[nodiscard]] inline std::int64_t statm_resident() {
  const std::string_view text = file_text("/proc/self/statm");
  return number_at(text.substr(text.find(' ') + 1)) * page_bytes();
}
/// The same as the kernel sums it up while the CPUs hold part of it back.
[[nodiscard]] inline std::int64_t coarse_resident() {
  std::string_view text = file_text("/proc/self/stat");
  text.remove_prefix(text.rfind(')') + 2);
  for (int field = 3; field < 24; ++field) text.remove_prefix(text.find(' ') + 1);
  return number_at(text) * page_bytes();
}
[[nodiscard]] inline std::int64_t highest_of_rusage() {
  rusage u;
  ::getrusage(RUSAGE_SELF, &u);
  return u.ru_maxrss * std::int64_t{1'024};
}

/// Resets the mark behind the library's back.
inline bool reset_kernel_mark() {
  const int f = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  const bool is_done = f >= 0 && ::write(f, "5", 1) == 1;
  if (f >= 0) ::close(f);
  return is_done;
}

[[nodiscard]] inline std::int64_t cpu_count() {
  std::string_view text = file_text("/sys/devices/system/cpu/online");
  if (text.empty()) return ::sysconf(_SC_NPROCESSORS_ONLN);
  std::int64_t count = 0;
  for (;;) {
    const std::string_view range = text.substr(0, text.find_first_of(",\n"));
    const std::size_t dash = range.find('-');
    count += dash == std::string_view::npos ? 1 : number_at(range.substr(dash + 1)) - number_at(range) + 1;
    if (range.size() >= text.size() || text[range.size()] != ',') return count;
    text.remove_prefix(range.size() + 1);
  }
}

/// How many pages of one counter a CPU holds back before it hands them over. Source: lib/percpu_counter.c.
[[nodiscard]] inline std::int64_t counter_batch() { return 2 * cpu_count() > 32 ? 2 * cpu_count() : 32; }

/// A resident set is the sum of three counters: pages of files, anonymous ones and shared ones. Source: get_mm_rss().
[[nodiscard]] inline std::int64_t counters_error() { return 3 * page_bytes() * cpu_count() * counter_batch(); }

/// What else the test process may touch while it is measured: its stack, and code that runs for the first time.
inline constexpr std::int64_t noise = 256 * 1'024;

[[nodiscard]] inline bool is_near(std::int64_t a, std::int64_t b, std::int64_t by) {
  return a - b <= by && b - a <= by;
}

// ---- children ----

/// Runs `f` in a child, whose high-water mark begins at what is resident, and hands over what it returns.
template <class F>
[[nodiscard]] auto in_child(F f) {
  using result = decltype(f());
  static_assert(std::is_trivially_copyable_v<result>);
  void* const shared = ::mmap(nullptr, sizeof(result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  result* const place = new (shared) result{};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a child that hangs is red
    *place = f();
    ::_exit(0);
  }
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const result r = *place;
  ::munmap(shared, sizeof(result));
  REQUIRE(status == 0);
  return r;
}

/// A reading in a form that a child can hand over.
template <class T>
struct told {
  bool is_present = false;
  T value{};
  char why[200] = "";

  told() = default;
  told(const tidemark::reading<T>& r) : is_present(r.has_value()) {  // NOLINT: a reading is what it is
    if (is_present) value = *r;
    const std::size_t size = r.why().size() < sizeof why ? r.why().size() : sizeof why - 1;
    std::memcpy(why, r.why().data(), size);
  }
  [[nodiscard]] bool says(std::string_view part) const {
    return !is_present && std::string_view(why).find(part) != std::string_view::npos;
  }
};
using told_window = told<tidemark::window_usage>;
using told_bytes = told<std::int64_t>;

// ---- what may be refused ----

/// From now on `call` fails with `error` in this thread. `only_writers`: only an openat() for writing.
/// False where the system has no such filter.
inline bool refuse_call(long call, int error, bool only_writers = false) {
  constexpr std::uint16_t load = BPF_LD | BPF_W | BPF_ABS;
  constexpr std::uint16_t jump_if = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint16_t answer = BPF_RET | BPF_K;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  constexpr std::uint32_t flags_at = offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t) + 4;
#else
  constexpr std::uint32_t flags_at = offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t);
#endif
  const auto skip_flags = static_cast<std::uint8_t>(only_writers ? 0 : 3);
  sock_filter program[] = {
      {load, 0, 0, offsetof(seccomp_data, nr)},
      {jump_if, 0, 5, static_cast<std::uint32_t>(call)},
      {BPF_JMP | BPF_JA, 0, 0, skip_flags},
      {load, 0, 0, flags_at},
      {BPF_ALU | BPF_AND | BPF_K, 0, 0, O_ACCMODE},
      {jump_if, 0, 1, O_WRONLY},
      {answer, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)},
      {answer, 0, 0, SECCOMP_RET_ALLOW},
  };
  sock_fprog filter = {sizeof program / sizeof program[0], program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

/// This process may no longer write to its own files in /proc. False where it still may.
[[nodiscard]] inline bool drop_rights() {
  constexpr unsigned nobody = 65'534;
  if (::getuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0)) return false;
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  const int f = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (f < 0) return true;
  ::close(f);
  return false;
}
