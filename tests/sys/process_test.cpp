// SPDX-License-Identifier: MIT
// The kernel is asked by other ways too: /proc/self/statm, the page tables and getrusage().
#include <tidemark/sys/process.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barrier.hpp"
#include "resident_support.hpp"
#include "test.hpp"

using tidemark::process_memory;
using tidemark::process_memory_reading;
using tidemark::reset_peak_resident;

namespace {

/// Both readings of one moment.
struct told_memory {
  told_bytes resident, peak;

  told_memory() = default;
  explicit told_memory(const process_memory_reading& r) : resident(r.resident_bytes), peak(r.peak_resident_bytes) {}
  [[nodiscard]] bool is_present() const { return resident.is_present && peak.is_present; }
  [[nodiscard]] bool says(std::string_view part) const { return resident.says(part) && peak.says(part); }
};

/// The code of these has run, so that it is resident.
void warm_up() {
  for (int i = 0; i < 2; ++i) {
    static_cast<void>(process_memory());
    static_cast<void>(reset_peak_resident());
    static_cast<void>(pages_present());
    static_cast<void>(kernel_resident());
    static_cast<void>(kernel_mark());
    static_cast<void>(statm_resident());
    static_cast<void>(highest_of_rusage());
    static_cast<void>(reset_kernel_mark());
    touch_and_unmap(page_bytes());
  }
}

}  // namespace

// ---- what is read ----

TEST_CASE("what is resident is what every other source of the kernel says") {
  struct step {
    std::int64_t ours, status, statm, present, touched;
  };
  struct result {
    step steps[4];
  };
  const result r = in_child([] {
    warm_up();
    result all{};
    const pages p(24 * MiB);
    const auto look = [&](int i, std::int64_t touched) {
      all.steps[i] = {process_memory().resident_bytes.value_or(-1), kernel_resident(), statm_resident(),
                      pages_present(), touched};
    };
    look(0, 0);
    p.touch(0, 16 * MiB);
    look(1, 16 * MiB);
    p.release(0, 12 * MiB);
    look(2, 4 * MiB);
    p.touch(4 * MiB, 20 * MiB);
    look(3, 20 * MiB);
    return all;
  });
  for (const step& s : r.steps) {
    CAPTURE(s.touched);
    CHECK(s.ours > 0);
    CHECK(is_near(s.ours, s.status, noise));
    CHECK(is_near(s.ours, s.statm, counters_error() + noise));
    if (!has_noise) CHECK(is_near(s.ours, s.present, counters_error() + noise));
    if (!has_noise) CHECK(is_near(s.ours - r.steps[0].ours, s.touched, 2 * counters_error() + noise));
  }
}

TEST_CASE("the peak is the kernel's mark, stays after a release, and agrees with getrusage") {
  struct result {
    std::int64_t entry, peak, after_release, kernel, from_rusage;
  };
  const result r = in_child([] {
    warm_up();
    result x{};
    x.entry = process_memory().resident_bytes.value_or(-1);
    touch_and_unmap(20 * MiB);
    const process_memory_reading now = process_memory();
    x.peak = now.peak_resident_bytes.value_or(-1);
    x.after_release = now.resident_bytes.value_or(-1);
    x.kernel = kernel_mark();
    x.from_rusage = highest_of_rusage();
    return x;
  });
  CHECK(r.entry > 0);
  CHECK(is_near(r.peak, r.kernel, noise));
  CHECK(is_near(r.peak, r.from_rusage, counters_error() + noise));
  if (!has_noise) {
    CHECK(is_near(r.peak, r.entry + 20 * MiB, counters_error() + noise));
    CHECK(is_near(r.after_release, r.entry, 2 * counters_error() + noise));
  }
}

TEST_CASE("the peak is never below what is resident, whatever 4 threads touch, read and reset") {
  barrier start(4);
  std::atomic<int> absent{0};
  std::atomic<int> below{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const pages p(MiB);
      start.arrive_and_wait();
      for (int i = 0; i < 60; ++i) {
        p.touch();
        const process_memory_reading now = process_memory();
        if (t == 0 && !reset_peak_resident().has_value()) absent.fetch_add(1);
        p.release();
        if (!now.resident_bytes || !now.peak_resident_bytes) {
          absent.fetch_add(1);
        } else if (*now.peak_resident_bytes < *now.resident_bytes) {
          below.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(absent.load() == 0);
  CHECK(below.load() == 0);
}

// ---- the parser ----

TEST_CASE("a number is found behind its own key only") {
  using tidemark::detail::os::status_bytes;
  CHECK(status_bytes("Name:\ta\nVmRSS:\t      12 kB\nVmHWM:\t 7 kB\n", "\nVmRSS:") == 12 * 1'024);
  CHECK(status_bytes("Name:\ta\nVmRSS:\t      12 kB\nVmHWM:\t 7 kB\n", "\nVmHWM:") == 7 * 1'024);
  CHECK(status_bytes("Name:\ta\nVmRSS:0 kB\n", "\nVmRSS:") == 0);
  CHECK(status_bytes("Name:\tVmRSS: 5\nVmRSS:\t 987654321 kB", "\nVmRSS:") == 987'654'321LL * 1'024);
  CHECK(status_bytes("Name:\ta\n", "\nVmRSS:") == -1);
  CHECK(status_bytes("", "\nVmRSS:") == -1);
  CHECK(status_bytes("Name:\ta\nVmRSS:", "\nVmRSS:") == -1);
  CHECK(status_bytes("Name:\ta\nVmRSS:\t", "\nVmRSS:") == -1);
  CHECK(status_bytes("Name:\ta\nVmRSS:\tmany kB\n", "\nVmRSS:") == -1);
  CHECK(status_bytes("Name:\ta\nVmRSS:\t-5 kB\n", "\nVmRSS:") == -1);
}

TEST_CASE("no process name is taken for a figure") {
  struct result {
    told_memory told;
    std::int64_t statm;
  };
  for (const char* name : {"\nVmRSS: 1", "\nVmHWM: 1", "VmRSS:\t1 kB", "VmHWM:\t1 kB", "\\nVmRSS: 1", "\nVmRSS:\n",
                           "a\0VmRSS: 1", "VmRSS:\n", "\xff\xfe\r\nVmRSS:", ""}) {
    CAPTURE(name);
    const result r = in_child([name] {
      ::prctl(PR_SET_NAME, name, 0, 0, 0);
      return result{told_memory(process_memory()), statm_resident()};
    });
    CHECK(r.told.is_present());
    CHECK(is_near(r.told.resident.value, r.statm, counters_error() + noise));
    CHECK(r.told.peak.value >= r.told.resident.value);
  }
}

TEST_CASE("a member of many groups has a resident set too") {
  // Their line stands before the figures and is longer than any page.
  struct result {
    bool was_possible = false;
    told_memory told;
    std::int64_t statm = 0;
  };
  const result r = in_child([] {
    static gid_t groups[2'000];
    for (unsigned i = 0; i < 2'000; ++i) groups[i] = 1'000'000'000 + i;
    result x;
    x.was_possible = ::setgroups(2'000, groups) == 0;
    x.told = told_memory(process_memory());
    x.statm = statm_resident();
    return x;
  });
  if (!r.was_possible) MESSAGE("left out: this user may not join groups");
  if (!r.was_possible) return;
  CAPTURE(r.told.resident.why);
  CHECK(r.told.is_present());
  CHECK(is_near(r.told.resident.value, r.statm, counters_error() + noise));
}

TEST_CASE("however long the list of groups is, no figure is cut where the text is read in parts") {
  struct result {
    bool was_possible = false;
    int looks = 0, absent = 0, wrong_resident = 0, wrong_peak = 0, first_wrong = -1;
  };
  const result r = in_child([] {
    result x;
    const pages p(16 * MiB);
    p.touch();
    warm_up();
    // Groups of ten digits, and one of one to eleven signs: every length of the line that puts the figures around the 4,096th
    // byte.
    static gid_t groups[400];
    for (unsigned length = 3'400; length < 3'900; ++length) {
      const unsigned many = length / 11;
      for (unsigned i = 0; i < many; ++i) groups[i] = 1'000'000'000 + i;
      unsigned last = 1;
      for (unsigned digits = length % 11; digits > 1; --digits) last *= 10;
      groups[many] = last;
      if (::setgroups(many + 1, groups) != 0) return x;
      x.was_possible = true;
      const told_memory told(process_memory());
      const std::int64_t statm = statm_resident();
      ++x.looks;
      x.absent += told.is_present() ? 0 : 1;
      // A figure that is cut is a tenth at most.
      const bool is_right = told.resident.value > statm / 2;
      if (!is_right && x.first_wrong < 0) x.first_wrong = static_cast<int>(length);
      x.wrong_resident += is_right ? 0 : 1;
      x.wrong_peak += told.peak.value > statm / 2 ? 0 : 1;
    }
    return x;
  });
  if (!r.was_possible) MESSAGE("left out: this user may not join groups");
  if (!r.was_possible) return;
  CAPTURE(r.first_wrong);
  CHECK(r.looks == 500);
  CHECK(r.absent == 0);
  CHECK(r.wrong_resident == 0);
  CHECK(r.wrong_peak == 0);
}

#if !TIDEMARK_HAS_TSAN()  // whose runtime is lost without the first thread

TEST_CASE("a process whose first thread has ended has a resident set, and its mark is reset") {
  struct shared {
    told_memory told;
    told_bytes reset;
    std::int64_t highest_before = 0, highest_after = 0;
  };
  void* const place = ::mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(place != MAP_FAILED);
  auto* const r = new (place) shared;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    static pthread_t first_thread = ::pthread_self();
    static shared* result = r;
    pthread_t other;
    const auto body = [](void*) -> void* {
      ::pthread_join(first_thread, nullptr);
      // The kernel's own entry of the first thread follows a moment after the join.
      while (file_text("/proc/self/status").find("\nState:\tZ") == std::string_view::npos) ::sched_yield();
      result->told = told_memory(process_memory());
      touch_and_unmap(20 * MiB);
      result->highest_before = highest_of_rusage();
      result->reset = reset_peak_resident();
      result->highest_after = highest_of_rusage();
      ::_exit(0);
    };
    if (::pthread_create(&other, nullptr, body, nullptr) != 0) ::_exit(1);
    // As pthread_exit(), which would unwind the test.
    ::syscall(SYS_exit, 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CAPTURE(r->told.resident.why);
  CHECK(r->told.is_present());
  CHECK(r->reset.is_present);
  if (!has_noise) CHECK(r->highest_after < r->highest_before - 20 * MiB + 2 * counters_error() + noise);
  ::munmap(place, sizeof(shared));
}

#endif

// ---- the reset ----

TEST_CASE("reset_peak_resident() starts the peak again at what is resident, and the kernel's mark with it") {
  struct result {
    told_bytes answer;
    std::int64_t peak_before, peak_after, resident_after, kernel_before, kernel_after, rusage_before, rusage_after;
    std::int64_t later_peak;
  };
  const result r = in_child([] {
    warm_up();
    result x{};
    touch_and_unmap(24 * MiB);
    x.peak_before = process_memory().peak_resident_bytes.value_or(-1);
    x.kernel_before = kernel_mark();
    x.rusage_before = highest_of_rusage();
    x.answer = reset_peak_resident();
    const process_memory_reading now = process_memory();
    x.peak_after = now.peak_resident_bytes.value_or(-1);
    x.resident_after = now.resident_bytes.value_or(-1);
    x.kernel_after = kernel_mark();
    x.rusage_after = highest_of_rusage();
    touch_and_unmap(8 * MiB);
    x.later_peak = process_memory().peak_resident_bytes.value_or(-1);
    return x;
  });
  CHECK(r.answer.is_present);
  CHECK(is_near(r.answer.value, r.resident_after, noise));
  if (has_noise) return;
  CHECK(is_near(r.peak_before - r.peak_after, 24 * MiB, 2 * counters_error() + noise));
  CHECK(is_near(r.peak_after, r.resident_after, counters_error() + noise));
  CHECK(is_near(r.kernel_before - r.kernel_after, 24 * MiB, 2 * counters_error() + noise));
  CHECK(is_near(r.rusage_before - r.rusage_after, 24 * MiB, 2 * counters_error() + noise));
  CHECK(is_near(r.later_peak, r.resident_after + 8 * MiB, counters_error() + noise));
}

TEST_CASE("reading resets nothing, and neither does the permission alone") {
  struct result {
    std::int64_t before, after;
  };
  const result r = in_child([] {
    warm_up();
    touch_and_unmap(16 * MiB);
    result x{};
    x.before = kernel_mark();
    for (int i = 0; i < 10; ++i) static_cast<void>(process_memory());
    tidemark::allow_peak_resident_reset(true);
    for (int i = 0; i < 10; ++i) static_cast<void>(process_memory());
    x.after = kernel_mark();
    return x;
  });
  CHECK(r.after >= r.before);
}

TEST_CASE("the peak outlives a reset by someone else") {
  struct result {
    std::int64_t before, kernel, after, later;
  };
  const result r = in_child([] {
    warm_up();
    result x{};
    static_cast<void>(reset_peak_resident());
    touch_and_unmap(24 * MiB);
    x.before = process_memory().peak_resident_bytes.value_or(-1);
    reset_kernel_mark();
    x.kernel = kernel_mark();
    x.after = process_memory().peak_resident_bytes.value_or(-1);
    touch_and_unmap(4 * MiB);
    x.later = process_memory().peak_resident_bytes.value_or(-1);
    return x;
  });
  if (!has_noise) CHECK(r.kernel < r.before - 16 * MiB);
  CHECK(r.after >= r.before);
  CHECK(r.later >= r.before);
  CHECK(r.later <= r.before + noise);
}

TEST_CASE("a fork child's peak is its own") {
  struct result {
    std::int64_t peak, kernel;
  };
  struct both {
    std::int64_t parent;
    result child;
  };
  const both r = in_child([] {
    warm_up();
    touch_and_unmap(24 * MiB);
    both x{};
    x.parent = process_memory().peak_resident_bytes.value_or(-1);
    x.child = in_child([] {
      result c{};
      for (int i = 0; i < 2; ++i) c = {process_memory().peak_resident_bytes.value_or(-1), kernel_mark()};
      return c;
    });
    return x;
  });
  CHECK(is_near(r.child.peak, r.child.kernel, noise));
  if (!has_noise) CHECK(r.child.peak < r.parent - 16 * MiB);
}

// ---- what may be refused ----

TEST_CASE("without a file descriptor left there is a reason that says so, and afterwards all is well") {
  struct result {
    told_memory during, after;
    told_bytes reset;
  };
  const result r = in_child([] {
    result x;
    rlimit limit;
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none = {0, limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    x.during = told_memory(process_memory());
    x.reset = reset_peak_resident();
    ::setrlimit(RLIMIT_NOFILE, &limit);
    x.after = told_memory(process_memory());
    return x;
  });
  CHECK(r.during.says("no file descriptor is left"));
  CHECK(r.reset.says("no file descriptor is left"));
  CHECK(r.after.is_present());
}

namespace {

struct refusal {
  bool was_possible = false;
  told_memory memory;
  told_bytes reset;
  std::int64_t mark_before = 0, mark_after = 0;
};

/// What is told once `spoil` has done its work, which it says.
template <class F>
refusal told_after(F spoil) {
  return in_child([&spoil] {
    refusal r;
    static_cast<void>(process_memory());
    touch_and_unmap(8 * MiB);
    r.mark_before = kernel_mark();
    r.was_possible = spoil();
    r.reset = reset_peak_resident();
    r.memory = told_memory(process_memory());
    r.mark_after = kernel_mark();
    return r;
  });
}

}  // namespace

TEST_CASE("where the files of /proc cannot be opened, the reason names /proc") {
  for (const int error : {ENOENT, EACCES}) {
    CAPTURE(error);
    const refusal r = told_after([error] { return refuse_call(SYS_openat, error); });
    if (!r.was_possible) MESSAGE("left out: no system call filter here");
    if (!r.was_possible) return;
    CHECK(r.memory.says("/proc"));
    CHECK(r.memory.says("cannot be opened"));
    CHECK(r.reset.says("/proc"));
  }
  const refusal full = told_after([] { return refuse_call(SYS_openat, ENFILE); });
  CHECK(full.memory.says("no file descriptor is left"));
  const refusal unreadable = told_after([] { return refuse_call(SYS_read, EIO); });
  CHECK(unreadable.memory.says("status cannot be read"));
  CHECK(unreadable.reset.says("status cannot be read"));
}

TEST_CASE("where /proc is not mounted, the reason asks for it") {
  const refusal elsewhere = told_after([] { return ::chroot("/dev") == 0 && ::chdir("/") == 0; });
  const refusal unmounted = told_after([] {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::umount2("/proc", MNT_DETACH) == 0;
  });
  for (const refusal* r : {&elsewhere, &unmounted}) {
    if (!r->was_possible) MESSAGE("left out: this user may not take /proc away");
    if (!r->was_possible) continue;
    CHECK(r->memory.says("is /proc mounted?"));
    CHECK(r->reset.says("is /proc mounted?"));
  }
}

TEST_CASE("a refused reset says why, and leaves the peak as it was") {
  const char* const may_not = "clear_refs may not be written";
  const auto check = [](const refusal& r, const char* why) {
    if (!r.was_possible) MESSAGE("left out: this system cannot refuse it");
    if (!r.was_possible) return;
    CAPTURE(why);
    CAPTURE(r.reset.why);
    CHECK(r.reset.says(why));
    CHECK(r.reset.says("reset"));
    CHECK(r.memory.is_present());
    CHECK(is_near(r.memory.peak.value, r.mark_before, noise));
    CHECK(is_near(r.mark_after, r.mark_before, noise));
  };
  check(told_after(drop_rights), may_not);
  check(told_after([] { return refuse_call(SYS_openat, EACCES, true); }), may_not);
  check(told_after([] { return refuse_call(SYS_openat, EPERM, true); }), may_not);
  check(told_after([] { return refuse_call(SYS_openat, EROFS, true); }), may_not);
  check(told_after([] { return refuse_call(SYS_openat, ENOENT, true); }), "there is no ");
  check(told_after([] { return refuse_call(SYS_openat, EIO, true); }), "clear_refs cannot be opened");
  check(told_after([] { return refuse_call(SYS_write, EPERM); }), "writing 5");
}

// ---- what stays as it is ----

TEST_CASE("errno is left as it was, also where the answer is a reason") {
  struct result {
    bool is_kept[8] = {};
  };
  const result r = in_child([] {
    result x;
    int i = 0;
    const auto keeps = [&](auto f) {
      errno = 12'345;
      f();
      x.is_kept[i++] = errno == 12'345;
    };
    keeps([] { tidemark::allow_peak_resident_reset(true); });
    keeps([] { static_cast<void>(process_memory()); });
    keeps([] { static_cast<void>(reset_peak_resident()); });
    keeps([] { static_cast<void>(tidemark::detail::os::resident_error_bytes()); });
    keeps([] { static_cast<void>(tidemark::detail::os::reset_mark()); });
    const bool is_refused = refuse_call(SYS_openat, EACCES, true);
    keeps([] { static_cast<void>(reset_peak_resident()); });
    keeps([] { static_cast<void>(tidemark::detail::os::reset_mark()); });
    if (is_refused) refuse_call(SYS_openat, ENOENT);
    keeps([] { static_cast<void>(process_memory()); });
    return x;
  });
  for (const bool is_kept : r.is_kept) CHECK(is_kept);
}

namespace {

// Frames of their own: ASan takes what a cancelled one leaves behind for an error.
[[gnu::noinline]] bool can_read() { return process_memory().resident_bytes.has_value(); }
[[gnu::noinline]] bool can_reset() { return reset_peak_resident().has_value(); }

}  // namespace

TEST_CASE("a thread that is to be cancelled is not cancelled in here, and can be afterwards") {
  struct result {
    bool had_value = false, could_reset = false, was_cancelled = false;
  };
  const result r = in_child([] {
    static result x;
    pthread_t t;
    const auto body = [](void*) -> void* {
      ::pthread_cancel(::pthread_self());
      x.had_value = can_read();
      x.could_reset = can_reset();
      ::pthread_testcancel();
      return nullptr;
    };
    void* end = nullptr;
    if (::pthread_create(&t, nullptr, body, nullptr) == 0) ::pthread_join(t, &end);
    x.was_cancelled = end == PTHREAD_CANCELED;
    return x;
  });
  CHECK(r.had_value);
  CHECK(r.could_reset);
  CHECK(r.was_cancelled);
}

TEST_CASE("no file stays open, whatever the answer is") {
  struct result {
    int before, after, after_refusals;
  };
  const result r = in_child([] {
    const auto lowest_free = [] {
      const int f = ::dup(2);
      ::close(f);
      return f;
    };
    result x{};
    x.before = lowest_free();
    for (int i = 0; i < 50; ++i) {
      static_cast<void>(process_memory());
      static_cast<void>(reset_peak_resident());
    }
    x.after = lowest_free();
    refuse_call(SYS_write, EPERM);
    for (int i = 0; i < 50; ++i) static_cast<void>(reset_peak_resident());
    refuse_call(SYS_read, EIO);
    for (int i = 0; i < 50; ++i) static_cast<void>(process_memory());
    x.after_refusals = lowest_free();
    return x;
  });
  CHECK(r.before >= 0);
  CHECK(r.after == r.before);
  CHECK(r.after_refusals == r.before);
}
