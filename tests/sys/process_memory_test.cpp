// SPDX-License-Identifier: MIT
// Known amounts are touched, mapped, locked, shared and forked, and must be found in the right field; the kernel is asked by
// other ways too. Files that lie or end early lie in a folder of the test's own.
#include <tidemark/sys/mappings.hpp>
#include <tidemark/sys/process.hpp>
#include <tidemark/sys/process_tree.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/scope/scope.hpp>

#include "barrier.hpp"
#include "fake_tree.hpp"
#include "files.hpp"
#include "resident_support.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

/// A child that does `prepare`, waits, and dies with the object.
class waiting_child {
 public:
  template <class F>
  explicit waiting_child(F prepare) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    std::fflush(nullptr);
    id_ = ::fork();
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      const char c = 1;
      if (::write(ready[1], &c, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char c = 0;
    REQUIRE(::read(ready[0], &c, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~waiting_child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  waiting_child(const waiting_child&) = delete;
  waiting_child& operator=(const waiting_child&) = delete;
  [[nodiscard]] std::int64_t id() const { return id_; }

 private:
  pid_t id_ = 0;
};

std::string process_path(std::int64_t pid, const char* name) {
  return "/proc/" + (pid == this_process ? std::string("self") : std::to_string(pid)) + "/" + name;
}

const std::string status_text =
    "Name:\tVmRSS: 5\nState:\tS (sleeping)\nVmPeak:\t  900 kB\nVmSize:\t  800 kB\nVmLck:\t   16 kB\nVmHWM:\t  700 kB\n"
    "VmRSS:\t  600 kB\nRssAnon:\t  300 kB\nRssFile:\t  200 kB\nRssShmem:\t  100 kB\nVmData:\t  400 kB\nVmSwap:\t   50 "
    "kB\n";

std::string smaps_entry(const std::string& head, int resident, int proportional, int clean, int dirty, int huge = 0) {
  const auto line = [](const char* key, int n) { return std::string(key) + "  " + std::to_string(n) + " kB\n"; };
  return head + "\n" + line("Size:", 100) + line("KernelPageSize:", 4) + line("Rss:", resident) +
         line("Pss:", proportional) + line("Pss_Dirty:", 7) + line("Private_Clean:", clean) +
         line("Private_Dirty:", dirty) + line("Anonymous:", dirty) + line("AnonHugePages:", huge) + line("Swap:", 3) +
         line("SwapPss:", 2) + line("Locked:", 0) + "VmFlags: rd wr\n";
}

std::int64_t resident_of(const std::vector<mapping_group>& groups, mapping_kind kind) {
  std::int64_t sum = 0;
  for (const mapping_group& g : groups) sum += g.kind == kind ? g.resident_bytes : 0;
  return sum;
}

}  // namespace

// ---- known amounts ----

TEST_CASE("what is mapped, touched, locked and shared is found in its own field") {
  struct result {
    std::int64_t before[6], after[6];
    bool is_locked;
  };
  const result r = in_child([] {
    result all{};
    const auto look = [](std::int64_t(&to)[6]) {
      const process_memory_reading m = process_memory();
      to[0] = m.resident_bytes.value_or(-1);
      to[1] = m.virtual_bytes.value_or(-1);
      to[2] = m.shared_bytes.value_or(-1);
      to[3] = m.data_bytes.value_or(-1);
      to[4] = m.locked_bytes.value_or(-1);
      to[5] = m.minor_faults.value_or(-1);
    };
    look(all.before);
    look(all.before);
    const pages p(32 * MiB);
    p.touch(0, 16 * MiB);
    const pages shared(8 * MiB, MAP_SHARED);
    shared.touch();
    void* const locked = ::mmap(nullptr, 64 * 1'024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    all.is_locked = ::mlock(locked, 64 * 1'024) == 0;
    look(all.after);
    return all;
  });
  if (has_noise) return;
  const std::int64_t slack = counters_error() + noise;
  CHECK(is_near(r.after[0] - r.before[0], 24 * MiB, 2 * slack));
  CHECK(is_near(r.after[1] - r.before[1], 40 * MiB, noise));
  CHECK(is_near(r.after[2] - r.before[2], 8 * MiB, 2 * slack));
  CHECK(is_near(r.after[3] - r.before[3], 32 * MiB, noise));
  if (r.is_locked) CHECK(r.after[4] - r.before[4] == 64 * 1'024);
  CHECK(r.after[5] - r.before[5] >= 24 * MiB / page_bytes());  // one for each page
}

TEST_CASE("every field of a process is what its files in /proc say") {
  const waiting_child child([] {
    static const pages p(12 * MiB);
    p.touch();
  });
  for (const std::int64_t pid : {this_process, child.id()}) {
    CAPTURE(pid);
    const std::string status = process_path(pid, "status");
    const process_memory_full_reading m = process_memory_full(pid);
    // This one changes while it is read; the other may not have reached its pause() yet.
    const std::int64_t slack = pid == this_process ? 4 * MiB : noise;
    CHECK(is_near(m.resident_bytes.value(), kernel_line(status.c_str(), "VmRSS:"), slack));
    CHECK(is_near(m.peak_resident_bytes.value(), kernel_line(status.c_str(), "VmHWM:"), slack));
    CHECK(is_near(m.virtual_bytes.value(), kernel_line(status.c_str(), "VmSize:"), slack));
    CHECK(is_near(m.shared_bytes.value(),
                  kernel_line(status.c_str(), "RssFile:") + kernel_line(status.c_str(), "RssShmem:"), slack));
    CHECK(is_near(m.data_bytes.value(), kernel_line(status.c_str(), "VmData:"), slack));
    CHECK(m.swap_bytes.value() == kernel_line(status.c_str(), "VmSwap:"));
    CHECK(m.locked_bytes.value() == kernel_line(status.c_str(), "VmLck:"));
    const std::string rollup = process_path(pid, "smaps_rollup");
    // Whoever else starts or ends meanwhile changes the share of every file they have in common.
    const std::int64_t shares = slack + m.shared_bytes.value();
    CHECK(is_near(m.proportional_bytes.value(), kernel_line(rollup.c_str(), "Pss:"), shares));
    CHECK(is_near(m.unique_bytes.value(),
                  kernel_line(rollup.c_str(), "Private_Clean:") + kernel_line(rollup.c_str(), "Private_Dirty:"),
                  shares));
    if (pid == child.id()) CHECK(m.unique_bytes.value() >= 12 * MiB);
    std::int64_t huge = 0;
    for (const char* key :
         {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"}) {
      const std::int64_t part = kernel_line(rollup.c_str(), key);
      huge += part > 0 ? part : 0;  // an older kernel has no such line
    }
    CHECK(is_near(m.huge_page_bytes.value(), huge, slack));
  }
  CHECK(process_memory(child.id()).minor_faults.value() >= 12 * MiB / page_bytes());
}

TEST_CASE("a tree counts the pages that a fork shares once") {
  const std::int64_t shared_bytes = 48 * MiB;
  const pages shared(shared_bytes);
  shared.touch();
  const process_tree_reading alone = process_tree_memory();
  REQUIRE(alone.proportional_bytes.has_value());
  {
    const waiting_child first([] {});
    const waiting_child second([] {
      static const pages own(20 * MiB);
      own.touch();
    });
    const process_tree_reading all = process_tree_memory();
    REQUIRE(all.proportional_bytes.has_value());
    REQUIRE(all.processes.size() == 3);
    CHECK(all.processes[0].pid == ::getpid());
    std::int64_t resident = 0;
    std::int64_t proportional = 0;
    for (const process_share& p : all.processes) {
      resident += p.memory.resident_bytes.value();
      proportional += p.memory.proportional_bytes.value();
      CHECK(p.name == all.processes[0].name);
      if (&p != &all.processes[0]) CHECK(p.parent == ::getpid());
    }
    CHECK(proportional == *all.proportional_bytes);
    if (!has_noise) {
      CHECK(resident >= 3 * shared_bytes);
      CHECK(is_near(*all.proportional_bytes, *alone.proportional_bytes + 20 * MiB, 8 * MiB));
    }
    CHECK(process_tree_memory(first.id()).processes.size() == 1);
  }
  const waiting_child ended([] {});
  ::kill(static_cast<pid_t>(ended.id()), SIGKILL);
  siginfo_t how = {};
  ::waitid(P_PID, static_cast<id_t>(ended.id()), &how, WEXITED | WNOWAIT);
  const process_tree_reading after = process_tree_memory();
  CHECK(after.processes.size() == 1);  // the dead are left out, and those that wait for their parent
  CHECK(after.proportional_bytes.has_value());
}

// ---- mappings ----

TEST_CASE("every mapping is in one group, and their resident bytes sum to what the page tables hold") {
  const pages anonymous(16 * MiB);
  anonymous.touch();
  const reading<std::vector<mapping_group>> groups = mappings();
  const std::int64_t present = pages_present();
  REQUIRE(groups.has_value());
  std::int64_t resident = 0;
  std::int64_t proportional = 0;
  for (const mapping_group& g : *groups) {
    resident += g.resident_bytes;
    proportional += g.proportional_bytes;
    CHECK(g.mappings > 0);
    CHECK(g.unique_bytes <= g.resident_bytes);
  }
  CHECK(is_near(resident, present, 2 * MiB));
  CHECK(is_near(proportional, process_memory_full().proportional_bytes.value(), 2 * MiB));
  CHECK(resident_of(*groups, mapping_kind::anonymous) >= 16 * MiB);
  CHECK(resident_of(*groups, mapping_kind::code) > 0);
  char program[4'096];
  const ssize_t size = ::readlink("/proc/self/exe", program, sizeof program);
  REQUIRE(size > 0);
  bool has_this_program = false;
  for (const mapping_group& g : *groups) {
    has_this_program = has_this_program || (g.kind == mapping_kind::code &&
                                            g.name == std::string_view(program, static_cast<std::size_t>(size)));
  }
  CHECK(has_this_program);
}

TEST_CASE("the stack of a thread that the library knows is a stack") {
  constexpr std::size_t touched = 2 * 1'024 * 1'024;
  barrier both(2);
  const auto stacks = [] { return resident_of(mappings().value(), mapping_kind::stack); };
  const std::int64_t before = stacks();
  std::thread t([&] {
    const scope known("known");
    volatile char deep[touched];
    for (std::size_t i = 0; i < touched; i += 1'024) deep[i] = 1;
    escape(const_cast<const char*>(deep));
    both.arrive_and_wait();
    both.arrive_and_wait();
  });
  both.arrive_and_wait();
  const std::int64_t during = stacks();
  both.arrive_and_wait();
  t.join();
  if (!has_noise) CHECK(during - before >= static_cast<std::int64_t>(touched));
}

TEST_CASE("mappings are told apart by name and use") {
  const fake_tree root;
  std::string text;
  text += smaps_entry("1000-2000 r--p 00000000 fe:00 11                       /bin/a b", 8, 8, 4, 0);
  text += smaps_entry("2000-3000 r-xp 00001000 fe:00 11                       /bin/a b", 16, 4, 0, 0);
  text += smaps_entry("3000-4000 rw-p 00000000 00:00 0                        [heap]", 32, 32, 0, 32);
  text += smaps_entry("4000-5000 rw-p 00000000 00:00 0 ", 64, 64, 0, 64, 64);
  text += smaps_entry("5000-6000 rw-p 00000000 00:00 0                        [anon:arena]", 12, 12, 0, 12);
  text +=
      smaps_entry("6000-7000 r--p 00000000 fe:00 12                       /data/we\\012ights (deleted)", 128, 64, 0, 0);
  text += smaps_entry("7000-8000 rw-s 00000000 00:01 13                       /memfd:ring (deleted)", 4, 4, 0, 4);
  text += smaps_entry("7ff000-800000 rw-p 00000000 00:00 0                    [stack]", 20, 20, 0, 20);
  text += smaps_entry("800000-801000 r-xp 00000000 00:00 0                    [vdso]", 4, 0, 0, 0);
  root.put("/proc/77/smaps", text);
  const reading<std::vector<mapping_group>> found = mappings(77);
  REQUIRE(found.has_value());
  const auto group = [&](mapping_kind kind, std::string_view name) {
    for (const mapping_group& g : *found) {
      if (g.kind == kind && g.name == name) return g;
    }
    return mapping_group{kind, "none"};
  };
  const mapping_group code = group(mapping_kind::code, "/bin/a b");
  CHECK(code.mappings == 2);
  CHECK(code.size_bytes == 8'192);
  CHECK(code.resident_bytes == 24 * 1'024);
  CHECK(code.proportional_bytes == 12 * 1'024);
  CHECK(code.unique_bytes == 4 * 1'024);
  CHECK(code.swap_bytes == 6 * 1'024);
  CHECK(group(mapping_kind::heap, "[heap]").resident_bytes == 32 * 1'024);
  CHECK(group(mapping_kind::anonymous, "").huge_page_bytes == 64 * 1'024);
  CHECK(group(mapping_kind::anonymous, "[anon:arena]").resident_bytes == 12 * 1'024);
  CHECK(group(mapping_kind::file, "/data/we\nights (deleted)").resident_bytes == 128 * 1'024);
  CHECK(group(mapping_kind::shared_memory, "/memfd:ring (deleted)").resident_bytes == 4 * 1'024);
  CHECK(group(mapping_kind::stack, "[stack]").resident_bytes == 20 * 1'024);
  CHECK(group(mapping_kind::kernel, "[vdso]").resident_bytes == 4 * 1'024);
  const process_memory_full_reading sums = process_memory_full(77);  // there is no rolled-up list, as before Linux 4.14
  CHECK(sums.proportional_bytes.value() == 208 * 1'024);
  CHECK(sums.unique_bytes.value() == 136 * 1'024);
  CHECK(sums.huge_page_bytes.value() == 64 * 1'024);
  CHECK(found->front().name == "/data/we\nights (deleted)");  // most resident first

  // Wherever it is cut, there is no list, and no sum of a part of it.
  for (std::size_t size = text.size() - 1; size > 0; size -= size > 40 ? 37 : 1) {
    if (text.compare(size >= 6 ? size - 6 : 0, 6, "rd wr\n") == 0) continue;  // between two mappings
    CAPTURE(size);
    root.put("/proc/77/smaps", text.substr(0, size));
    CHECK(!mappings(77).has_value());
    CHECK(!process_memory_full(77).proportional_bytes.has_value());
  }
  root.put("/proc/77/smaps", text.substr(0, text.rfind("Locked:")));  // whole lines, and the rest is missing
  CHECK(!mappings(77).has_value());
  for (const std::string bad : {"binary \x01\xff", "Rss: 5 kB\n", "1000-2000\n", "zz-2000 r--p 0 fe:00 1\n"}) {
    root.put("/proc/77/smaps", bad);
    CHECK(!mappings(77).has_value());
  }
}

TEST_CASE("two files whose long paths differ in their last character are two") {
  const fake_tree root;
  const std::string path = "/" + std::string(4'094, 'x');  // 4,095 bytes: the longest
  const std::string head = "7f0000000000-7f0000001000 rw-p 00000000 fe:00 123456789   ";
  root.put("/proc/78/smaps",
           smaps_entry(head + path, 4, 4, 0, 4) + smaps_entry(head + path.substr(0, 4'094) + "y", 8, 8, 0, 8));
  const reading<std::vector<mapping_group>> found = mappings(78);
  REQUIRE(found.has_value());
  REQUIRE(found->size() == 2);
  CHECK(found->at(0).name == path.substr(0, 4'094) + "y");
  CHECK(found->at(1).name == path);
}

// ---- status files that lie or end early ----

TEST_CASE("a status file gives each field that it has, and a reason for each other") {
  const fake_tree root;
  root.put("/proc/88/status", status_text);
  root.put("/proc/88/stat", "88 (a) b) (c) S 1 88 88 0 -1 4194304 123 9 45 6 7 8\n");
  const process_memory_reading m = process_memory(88);
  CHECK(m.resident_bytes.value() == 600 * 1'024);
  CHECK(m.peak_resident_bytes.value() == 700 * 1'024);
  CHECK(m.virtual_bytes.value() == 800 * 1'024);
  CHECK(m.shared_bytes.value() == 300 * 1'024);
  CHECK(m.data_bytes.value() == 400 * 1'024);
  CHECK(m.swap_bytes.value() == 50 * 1'024);
  CHECK(m.locked_bytes.value() == 16 * 1'024);
  CHECK(m.minor_faults.value() == 123);
  CHECK(m.major_faults.value() == 45);
  for (std::size_t size = 0; size < status_text.size(); ++size) {
    root.put("/proc/88/status", status_text.substr(0, size));
    const process_memory_reading part = process_memory(88);
    CAPTURE(size);
    CHECK(!part.swap_bytes.has_value());
    CHECK(!part.swap_bytes.why().empty());
    for (const auto* r : {&part.resident_bytes, &part.virtual_bytes, &part.locked_bytes, &part.data_bytes}) {
      if (*r) CHECK(**r % (8 * 1'024) == 0);  // whole or not at all: 600, 800, 16 and 400 KiB
      if (!*r) CHECK(!r->why().empty());
    }
  }
  root.put("/proc/88/status", "State:\tZ (zombie)\n");
  CHECK(process_memory(88).resident_bytes.why().find("has ended") != std::string_view::npos);
  root.put("/proc/88/status", "VmRSS:\t1152921504606846976 kB\n");  // 2^60
  CHECK(!process_memory(88).resident_bytes.has_value());
  root.put("/proc/88/status", "VmRSS:\t99999999999999999999 kB\nVmHWM:\t-5 kB\nVmSize:\t5 MB\n");
  CHECK(!process_memory(88).resident_bytes.has_value());
  CHECK(!process_memory(88).peak_resident_bytes.has_value());
  CHECK(!process_memory(88).virtual_bytes.has_value());
  root.put("/proc/88/stat", "88 (a");
  CHECK(!process_memory(88).minor_faults.has_value());
}

TEST_CASE("a rolled-up list gives its sums, and none where it ends early") {
  const fake_tree root;
  const std::string text =
      smaps_entry("1000-7ffc00000000 ---p 00000000 00:00 0                          [rollup]", 80, 60, 10, 30, 20);
  const std::string whole = text.substr(0, text.find("VmFlags"));
  root.put("/proc/99/smaps_rollup", whole);
  const process_memory_full_reading m = process_memory_full(99);
  CHECK(m.proportional_bytes.value() == 60 * 1'024);
  CHECK(m.unique_bytes.value() == 40 * 1'024);
  CHECK(m.huge_page_bytes.value() == 20 * 1'024);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    root.put("/proc/99/smaps_rollup", whole.substr(0, size));
    const process_memory_full_reading part = process_memory_full(99);
    CHECK(!part.proportional_bytes.has_value());
    CHECK(part.unique_bytes.why().find("ends early") != std::string_view::npos);
  }
}

// ---- what may not be read ----

TEST_CASE("no /proc, no such process, an ended one and another user's: each says which") {
  {
    const fake_tree empty;
    CHECK(process_memory().resident_bytes.why().find("is /proc mounted?") != std::string_view::npos);
    CHECK(process_memory_full().proportional_bytes.why().find("is /proc mounted?") != std::string_view::npos);
    CHECK(mappings().why().find("is /proc mounted?") != std::string_view::npos);
    CHECK(process_tree_memory().proportional_bytes.why().find("is it mounted?") != std::string_view::npos);
  }
  std::int64_t gone = 0;
  {
    const waiting_child child([] {});
    gone = child.id();
    ::kill(static_cast<pid_t>(gone), SIGKILL);
    siginfo_t ended = {};
    ::waitid(P_PID, static_cast<id_t>(gone), &ended, WEXITED | WNOWAIT);
    CHECK(process_memory(gone).resident_bytes.why().find("has ended") != std::string_view::npos);
  }
  CHECK(process_memory(gone).resident_bytes.why().find("no process has this number") != std::string_view::npos);
  CHECK(process_memory_full(gone).unique_bytes.why().find("no process has this number") != std::string_view::npos);
  CHECK(mappings(gone).why().find("no process has this number") != std::string_view::npos);
  CHECK(process_tree_memory(gone).proportional_bytes.why().find("no process has this number") !=
        std::string_view::npos);
  CHECK(!process_memory(-5).resident_bytes.has_value());

  if (::getuid() != 0) MESSAGE("left out: another user is tried by root alone");
  if (::getuid() != 0) return;
  struct result {
    told_bytes resident, proportional, tree;
    bool has_dropped;
  };
  const auto parent = static_cast<std::int64_t>(::getpid());
  const result other = in_child([&] {
    result r{};
    r.has_dropped = drop_rights();
    r.resident = process_memory(parent).resident_bytes;
    r.proportional = process_memory_full(parent).proportional_bytes;
    r.tree = process_tree_memory(parent).proportional_bytes;
    return r;
  });
  REQUIRE(other.has_dropped);
  CHECK(other.resident.is_present);  // anybody may read a status file
  CHECK(other.proportional.says("another process, which the kernel does not show"));
  CHECK(other.tree.says("cannot be counted"));
}
