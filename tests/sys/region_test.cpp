// SPDX-License-Identifier: MIT
// Known pages are touched, read, shared and mapped from files, and what is said of them is compared with smaps,
// numa_maps and /sys/devices/system/node. Several nodes, old kernels and containers are made of files in a folder of
// the test's own and of system calls that fail.
#include <tidemark/sys/region.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fake_tree.hpp"
#include "files.hpp"
#include "resident_support.hpp"
#include "test.hpp"
#include "traced_calls.hpp"

using namespace tidemark;

namespace {

std::size_t page() { return static_cast<std::size_t>(page_bytes()); }

/// Writable pages in a mapping of their own, which grows together with none beside it.
class island {
 public:
  explicit island(std::size_t bytes, int advice = MADV_NOHUGEPAGE, std::size_t alignment = 0)
      : bytes_(bytes), whole_(bytes + 2 * page() + alignment) {
    whole_at_ = static_cast<char*>(::mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(whole_at_ != MAP_FAILED);
    first_ = whole_at_ + page();
    if (alignment != 0) first_ += (alignment - reinterpret_cast<std::uintptr_t>(first_) % alignment) % alignment;
    REQUIRE(::mprotect(first_, bytes_, PROT_READ | PROT_WRITE) == 0);
    ::madvise(first_, bytes_, advice);
  }
  ~island() { ::munmap(whole_at_, whole_); }
  island(const island&) = delete;
  island& operator=(const island&) = delete;

  [[nodiscard]] char* at(std::size_t offset = 0) const { return first_ + offset; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  void write(std::size_t from, std::size_t bytes) const {
    for (std::size_t i = from; i < from + bytes; i += page()) *static_cast<volatile char*>(at(i)) = 1;
  }
  void read(std::size_t from, std::size_t bytes) const {
    for (std::size_t i = from; i < from + bytes; i += page()) static_cast<void>(*static_cast<volatile char*>(at(i)));
  }

 private:
  std::size_t bytes_;
  std::size_t whole_;
  char* whole_at_ = nullptr;
  char* first_ = nullptr;
};

/// A file of weights: its pages are all in memory, though not in this process.
class mapped_file {
 public:
  explicit mapped_file(std::size_t bytes) : path_(folder_.file("weights")), bytes_(bytes) {
    std::ofstream(path_, std::ios::binary) << std::string(bytes, 'w');
    const int f = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    first_ = static_cast<char*>(::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, f, 0));
    ::close(f);
    REQUIRE(first_ != MAP_FAILED);
  }
  ~mapped_file() { ::munmap(first_, bytes_); }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  [[nodiscard]] char* at(std::size_t offset = 0) const { return first_ + offset; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  temporary_directory folder_;
  std::string path_;
  std::size_t bytes_;
  char* first_ = nullptr;
};

/// A /proc of the test's own, for as long as it stands.
class fake_root {
 public:
  /// The file is the system's own.
  void link(const std::string& name) const { tree_.link(folder + name, folder + name); }
  void put(const std::string& name, const std::string& text) const { tree_.put(folder + name, text); }

 private:
  const std::string folder = "/proc/thread-self/";
  fake_tree tree_;
};

std::string hex(const void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%zx", static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(p)));
  return text;
}

/// "begin-end rw-p ..." as in maps.
std::string maps_line(const void* begin, const void* end, const std::string& name = "") {
  return hex(begin) + "-" + hex(end) + " rw-p 00000000 00:00 0 " + name + "\n";
}

/// A figure of the mapping that begins there, as the kernel counts it; -1 without one. Units: bytes.
std::int64_t smaps_figure(const void* begin, const std::string& key) {
  std::istringstream text(content("/proc/self/smaps"));
  std::string line;
  bool is_there = false;
  while (std::getline(text, line)) {
    const bool begins = line.find(':') == std::string::npos || line.find(':') > line.find(' ');
    if (begins) is_there = line.rfind(hex(begin) + "-", 0) == 0;
    if (is_there && line.rfind(key + ":", 0) == 0)
      return number_at(std::string_view(line).substr(key.size() + 1)) * 1'024;
  }
  return -1;
}

/// The nodes with memory, as /sys lists them: "0-1,3".
std::vector<int> nodes_of_system() {
  std::vector<int> nodes;
  std::istringstream text(content("/sys/devices/system/node/has_memory"));
  std::string range;
  while (std::getline(text, range, ',')) {
    const std::size_t dash = range.find('-');
    const int first = std::atoi(range.c_str());
    const int last = dash == std::string::npos ? first : std::atoi(range.c_str() + dash + 1);
    for (int n = first; n <= last; ++n) nodes.push_back(n);
  }
  return nodes;
}

/// "N0=5 N1=3" of the mapping that begins there.
std::vector<numa_share> numa_maps_shares(const void* begin) {
  std::vector<numa_share> shares;
  std::istringstream text(content("/proc/self/numa_maps"));
  std::string line;
  while (std::getline(text, line)) {
    if (line.rfind(hex(begin) + " ", 0) != 0) continue;
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      int node = 0;
      long count = 0;
      if (std::sscanf(word.c_str(), "N%d=%ld", &node, &count) == 2) shares.push_back({node, count});
    }
  }
  return shares;
}

std::int64_t pages_in(const std::vector<numa_share>& shares) {
  std::int64_t sum = 0;
  for (const numa_share& s : shares) sum += s.pages;
  return sum;
}

std::string as_text(const std::vector<numa_share>& shares) {
  std::string text;
  for (const numa_share& s : shares) text += std::to_string(s.node) + ":" + std::to_string(s.pages) + " ";
  return text;
}

/// Whether the kernel is at least that old, or young.
bool is_linux_since(int first, int second) {
  utsname u = {};
  int has_first = 0;
  int has_second = 0;
  return ::uname(&u) == 0 && std::sscanf(u.release, "%d.%d", &has_first, &has_second) == 2 &&
         (has_first > first || (has_first == first && has_second >= second));
}

bool says(std::string_view why, std::string_view part) { return why.find(part) != std::string_view::npos; }

const int initialized_data[4'096] = {1, 2, 3};
int written_data[4'096] = {1, 2, 3};

}  // namespace

// ---- pages ----

TEST_CASE("of a region, the bytes in pages that were touched are resident, and the kernel's own list agrees") {
  const island p(64 * page());
  const auto resident = [&](std::size_t from, std::size_t n) {
    return describe_region(p.at(from), n).resident_bytes.value();
  };
  CHECK(resident(0, p.size()) == 0);
  p.write(8 * page(), 16 * page());
  p.write(63 * page(), page());
  CHECK(resident(0, p.size()) == 17 * page_bytes());
  CHECK(resident(0, p.size()) == smaps_figure(p.at(), "Rss"));
  CHECK(resident(8 * page(), 16 * page()) == 16 * page_bytes());
  CHECK(resident(24 * page(), 39 * page()) == 0);
  CHECK(resident(8 * page() - 5, 10) == 5);
  CHECK(resident(8 * page() + 5, 10) == 10);
  CHECK(resident(24 * page() - 7, 3 * page()) == 7);
  const region_reading all = describe_region(p.at(), p.size());
  CHECK(all.resident_source == "pagemap");
  CHECK(all.zero_page_bytes.value() == 0);
  CHECK(all.huge_page_bytes.value() == 0);
  CHECK(all.page_size_bytes.value() == page_bytes());
  CHECK(all.kind.value() == mapping_kind::anonymous);
  CHECK(says(all.file.why(), "no file"));
}

TEST_CASE("a region of many thousand pages is counted whole") {
  const island p(5'000 * page());
  p.write(0, p.size());
  const region_reading r = describe_region(p.at(3), p.size() - 3);
  CHECK(r.resident_bytes.value() == static_cast<std::int64_t>(p.size()) - 3);
  CHECK(pages_in(r.numa_nodes.value()) == 5'000);
}

TEST_CASE("pages that were read but never written are those of zeros, which the resident set leaves out") {
  const island p(32 * page());
  p.read(8 * page(), 20 * page());
  p.write(8 * page(), 4 * page());
  const region_reading r = describe_region(p.at(), p.size());
  CHECK(r.resident_bytes.value() == 20 * page_bytes());
  CHECK(r.zero_page_bytes.value() == 16 * page_bytes());
  CHECK(smaps_figure(p.at(), "Rss") == 4 * page_bytes());
  CHECK(pages_in(r.numa_nodes.value()) == 4);
}

TEST_CASE("huge pages are found in any part of a region, and a huge page of zeros is none") {
  const auto huge = static_cast<std::size_t>(kernel_line("/proc/meminfo", "Hugepagesize:"));
  const island p(4 * huge, MADV_HUGEPAGE, huge);
  p.write(huge, 2 * huge);
  if (smaps_figure(p.at(), "AnonHugePages") != static_cast<std::int64_t>(2 * huge)) {
    MESSAGE("left out: the system gives no huge pages");
    return;
  }
  p.read(0, huge);
  p.read(3 * huge, huge);
  const region_reading r = describe_region(p.at(), p.size());
  CHECK(r.huge_page_bytes.value() == static_cast<std::int64_t>(2 * huge));
  CHECK(r.zero_page_bytes.value() == static_cast<std::int64_t>(2 * huge));
  CHECK(r.resident_bytes.value() == static_cast<std::int64_t>(4 * huge));
  CHECK(r.page_size_bytes.value() == page_bytes());
  if (!is_linux_since(6, 7)) return;
  CHECK(describe_region(p.at(huge + 5), 100).huge_page_bytes.value() == 100);
  CHECK(describe_region(p.at(3 * huge - 5), 100).huge_page_bytes.value() == 5);
  CHECK(describe_region(p.at(0), huge).huge_page_bytes.value() == 0);
}

TEST_CASE("a page of hugetlbfs is as large as it says") {
  const auto huge = static_cast<std::size_t>(kernel_line("/proc/meminfo", "Hugepagesize:"));
  void* const p = ::mmap(nullptr, huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (p == MAP_FAILED) {
    MESSAGE("left out: no page of hugetlbfs is to be had");
    return;
  }
  *static_cast<volatile char*>(p) = 1;
  const region_reading r = describe_region(p, huge);
  CHECK(r.page_size_bytes.value() == static_cast<std::int64_t>(huge));
  CHECK(r.resident_bytes.value() == static_cast<std::int64_t>(huge));
  CHECK(r.huge_page_bytes.value() == static_cast<std::int64_t>(huge));
  CHECK(pages_in(r.numa_nodes.value()) == static_cast<std::int64_t>(huge / page()));
  ::munmap(p, huge);
}

TEST_CASE("of a file, what this process has mapped in is resident, whatever lies in memory for others") {
  const mapped_file f(4 * MiB);
  unsigned char in_memory[4 * MiB / 4'096];
  static_cast<void>(*static_cast<volatile char*>(f.at()));
  const region_reading r = describe_region(f.at(), 4 * MiB);
  CHECK(r.resident_bytes.value() >= page_bytes());
  CHECK(r.resident_bytes.value() < 4 * MiB);
  CHECK(r.resident_bytes.value() == smaps_figure(f.at(), "Rss"));
  REQUIRE(::mincore(f.at(), 4 * MiB, in_memory) == 0);
  CHECK((in_memory[4 * MiB / page_bytes() - 1] & 1) == 1);
  CHECK(r.kind.value() == mapping_kind::file);
  CHECK(r.file.value() == f.path());
  CHECK(r.zero_page_bytes.value() == 0);
}

TEST_CASE("shared memory that only a child has touched is not resident here") {
  void* const p = ::mmap(nullptr, 64 * page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(p != MAP_FAILED);
  const std::int64_t in_the_child = in_child([&] {
    for (std::size_t i = 0; i < 16; ++i) static_cast<volatile char*>(p)[i * page()] = 1;
    return describe_region(p, 64 * page()).resident_bytes.value_or(-1);
  });
  CHECK(in_the_child == 16 * page_bytes());
  const region_reading r = describe_region(p, 64 * page());
  CHECK(r.resident_bytes.value() == 0);
  CHECK(r.kind.value() == mapping_kind::shared_memory);
  ::munmap(p, 64 * page());
}

// ---- what is mapped there ----

TEST_CASE("the stack, the heap, a program's code and its data are told apart") {
  const int local = 1;
  CHECK(describe_region(detail::os::stack_address() == 0 ? &local : &local, sizeof local).alignment.value() >= 4);
  const auto on_stack = describe_region(reinterpret_cast<const void*>(detail::os::stack_address()), 8);
  CHECK(on_stack.kind.value() == mapping_kind::stack);
  char program[4'096];
  const ssize_t size = ::readlink("/proc/self/exe", program, sizeof program);
  REQUIRE(size > 0);
  const std::string_view path(program, static_cast<std::size_t>(size));
  written_data[5] = 5;
  const void* const code = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(&pages_in));
  for (const void* p : {code, static_cast<const void*>(initialized_data), static_cast<const void*>(written_data)}) {
    const region_reading r = describe_region(p, 4);
    CHECK(r.kind.value() == mapping_kind::code);
    CHECK(r.file.value() == path);
    CHECK(r.resident_bytes.value() == 4);
  }
  void* const block = std::malloc(1'000);
  escape(block);
  const region_reading r = describe_region(block, 1'000);
  const bool is_of_heap = r.kind.value() == mapping_kind::heap || r.kind.value() == mapping_kind::anonymous;
  CHECK(is_of_heap);
  std::free(block);
}

TEST_CASE("the alignment is the largest power of two that divides the address") {
  const auto alignment = [](std::uintptr_t at) {
    return describe_region(reinterpret_cast<const void*>(at), 1).alignment.value();
  };
  CHECK(alignment(1) == 1);
  CHECK(alignment(24) == 8);
  CHECK(alignment(4'096 * 3) == 4'096);
  CHECK(alignment(std::uintptr_t{1} << 40) == std::int64_t{1} << 40);
  CHECK(!describe_region(nullptr, 1).alignment.has_value());
}

TEST_CASE("what is no region, or not wholly mapped, has no figures but a reason") {
  const island p(8 * page());
  p.write(0, p.size());
  const auto why = [](const void* at, std::size_t n) {
    const region_reading r = describe_region(at, n);
    CHECK(!r.resident_bytes.has_value());
    CHECK(!r.zero_page_bytes.has_value());
    CHECK(!r.huge_page_bytes.has_value());
    CHECK(!r.page_size_bytes.has_value());
    CHECK(!r.numa_nodes.has_value());
    CHECK(!r.kind.has_value());
    CHECK(!r.file.has_value());
    CHECK(r.resident_source.empty());
    return std::string(r.resident_bytes.why());
  };
  CHECK(says(why(nullptr, 10), "null pointer"));
  CHECK(says(why(p.at(), 0), "no bytes"));
  CHECK(says(why(p.at(), SIZE_MAX), "beyond the last address"));
  CHECK(says(why(p.at(), SIZE_MAX / 2), "a part of the region is not mapped"));
  ::munmap(p.at(4 * page()), page());
  CHECK(says(why(p.at(), p.size()), "a part of the region is not mapped"));
  CHECK(says(why(p.at(4 * page()), 2 * page()), "nothing is mapped"));
  CHECK(describe_region(p.at(), 4 * page()).resident_bytes.value() == 4 * page_bytes());
  CHECK(describe_region(p.at(5 * page()), 3 * page()).resident_bytes.value() == 3 * page_bytes());
}

TEST_CASE("a region in several mappings has a kind and a file only where all have the same") {
  const island p(16 * page());
  p.write(0, p.size());
  ::mprotect(p.at(8 * page()), page(), PROT_READ);  // now three mappings
  const region_reading same = describe_region(p.at(), p.size());
  CHECK(same.resident_bytes.value() == 16 * page_bytes());
  CHECK(same.kind.value() == mapping_kind::anonymous);
  const mapped_file f(4 * page());
  REQUIRE(::mmap(p.at(4 * page()), 4 * page(), PROT_READ, MAP_SHARED | MAP_FIXED,
                 ::open(f.path().c_str(), O_RDONLY | O_CLOEXEC), 0) != MAP_FAILED);
  p.read(4 * page(), 4 * page());
  const region_reading mixed = describe_region(p.at(), p.size());
  CHECK(mixed.resident_bytes.value() == 16 * page_bytes());
  CHECK(says(mixed.kind.why(), "more than one kind"));
  CHECK(says(mixed.file.why(), "more than one mapping"));
}

// ---- NUMA ----

TEST_CASE("every page is on a node that the system has, and numa_maps counts the same") {
  const std::vector<int> nodes = nodes_of_system();
  if (nodes.empty()) {
    MESSAGE("left out: this kernel knows no nodes");
    return;
  }
  const island p(300 * page());
  p.write(0, 200 * page());
  const region_reading r = describe_region(p.at(), p.size());
  if (!r.numa_nodes) MESSAGE("left out: ", std::string(r.numa_nodes.why()));
  if (!r.numa_nodes) return;
  CHECK(pages_in(*r.numa_nodes) == 200);
  for (const numa_share& s : *r.numa_nodes) {
    bool is_known = false;
    for (const int n : nodes) is_known = is_known || n == s.node;
    CHECK(is_known);
  }
  CHECK(as_text(*r.numa_nodes) == as_text(numa_maps_shares(p.at())));
}

TEST_CASE("where move_pages() is refused, numa_maps counts whole mappings") {
  struct result {
    bool is_refused;
    char whole[100];
    told_bytes zero, resident;
    char why_of_part[300];
  };
  const island p(64 * page());
  p.write(0, 40 * page());
  const std::string expected = as_text(numa_maps_shares(p.at()));
  if (expected.empty()) MESSAGE("left out: there is no numa_maps");
  if (expected.empty()) return;
  const result r = in_child([&] {
    result told{};
    told.is_refused = refuse_call(SYS_move_pages, EPERM);
    const region_reading whole = describe_region(p.at(), p.size() - 5);
    const region_reading part = describe_region(p.at(), 20 * page());
    std::snprintf(told.whole, sizeof told.whole, "%s",
                  whole.numa_nodes ? as_text(*whole.numa_nodes).c_str() : whole.numa_nodes.why().data());
    std::snprintf(told.why_of_part, sizeof told.why_of_part, "%s", part.numa_nodes.why().data());
    told.zero = whole.zero_page_bytes;
    told.resident = part.resident_bytes;
    return told;
  });
  if (!r.is_refused) MESSAGE("left out: no system call can be refused");
  if (!r.is_refused) return;
  CHECK(std::string(r.whole) == expected);
  CHECK(says(r.why_of_part, "CAP_SYS_NICE"));
  CHECK(r.zero.says("not permitted"));
  CHECK(r.resident.value == 20 * page_bytes());
}

TEST_CASE("several nodes are counted each") {
  const island p(32 * page());
  p.write(0, p.size());
  char* const middle = p.at(16 * page());
  const std::string maps = maps_line(p.at(), middle) + maps_line(middle, p.at(32 * page()), "[anon:b]");
  const std::string first =
      hex(p.at()) + " default anon=9 dirty=9 N2=2 N0=7 kernelpagesize_kB=" + std::to_string(page() / 1'024) + "\n";
  const std::string second =
      hex(middle) + " interleave:0-3 file=/N9=8 anon=5 active=0 N0=1 N3=4 kernelpagesize_kB=2048\n";
  const std::string before = "10000 default N1=77 kernelpagesize_kB=4\n";
  const std::string after = hex(p.at(32 * page())) + " default N1=77 kernelpagesize_kB=4\n";
  struct result {
    bool is_refused;
    char text[200];
  };
  const auto histogram = [&](const std::string& numa_maps) {
    const result r = in_child([&] {
      const fake_root root;
      root.put("maps", maps);
      root.put("numa_maps", numa_maps);
      result told{};
      told.is_refused = refuse_call(SYS_move_pages, EPERM);
      const region_reading found = describe_region(p.at(), p.size());
      std::snprintf(told.text, sizeof told.text, "%s",
                    found.numa_nodes ? as_text(*found.numa_nodes).c_str() : found.numa_nodes.why().data());
      return told;
    });
    return r.is_refused ? std::string(r.text) : std::string();
  };
  const std::string found = histogram(before + first + second + after);
  if (found.empty()) MESSAGE("left out: no system call can be refused");
  if (found.empty()) return;
  const auto huge = static_cast<std::int64_t>(2'048 * 1'024 / page());
  CHECK(found == as_text({{0, 7 + huge}, {2, 2}, {3, 4 * huge}}));
  CHECK(says(histogram(before + first), "not list every mapping"));
  CHECK(says(histogram(""), "not list every mapping"));
  CHECK(says(histogram(before + first + second.substr(0, second.size() - 1)), "ends early"));
  CHECK(says(histogram(before + first + hex(middle) + " default N0=4\n"), "size of pages"));
  CHECK(says(histogram("binary \x01\xff\n" + first + second), "ends early"));
  CHECK(histogram(first + hex(middle) + " default N99999999=4 N1=99999999999999999999 N=2 N1 kernelpagesize_kB=4\n") ==
        "0:7 2:2 ");
}

// ---- other kernels ----

TEST_CASE("without pagemap, mincore() answers for anonymous memory, by name, and not for files") {
  const island p(32 * page());
  const mapped_file f(64 * page());
  p.write(4 * page(), 8 * page());
  const std::string maps = content("/proc/self/maps");
  const std::string smaps = content("/proc/self/smaps");
  const fake_root root;
  root.put("maps", maps);
  const region_reading r = describe_region(p.at(), p.size());
  CHECK(r.resident_bytes.value() == 8 * page_bytes());
  CHECK(r.resident_source == "mincore");
  CHECK(pages_in(r.numa_nodes.value()) == 8);
  CHECK(says(r.huge_page_bytes.why(), "neither pagemap nor smaps"));
  CHECK(says(r.page_size_bytes.why(), "smaps"));
  const region_reading of_file = describe_region(f.at(), 64 * page());
  CHECK(says(of_file.resident_bytes.why(), "mincore()"));
  CHECK(says(of_file.numa_nodes.why(), "mincore()"));
  CHECK(of_file.resident_source.empty());
  CHECK(of_file.file.value() == f.path());
  root.put("smaps", smaps);
  CHECK(describe_region(p.at(), p.size()).huge_page_bytes.value() == 0);
  CHECK(describe_region(p.at(), p.size()).page_size_bytes.value() == page_bytes());
}

TEST_CASE("before Linux 6.7, huge pages are those of whole mappings") {
  const island p(32 * page());
  p.write(0, p.size());
  char* const middle = p.at(16 * page());
  const auto figures = [](int huge, int page_size) {
    return "Size: 1 kB\nKernelPageSize: " + std::to_string(page_size) +
           " kB\nRss: 1 kB\nAnonHugePages: " + std::to_string(huge) + " kB\n";
  };
  const auto kibibytes = static_cast<int>(page() / 1'024);
  const std::string first = maps_line(p.at(), middle);
  const std::string second = maps_line(middle, p.at(32 * page()));
  const fake_root root;
  const auto look = [&](const std::string& smaps, std::size_t from, std::size_t n) {
    root.put("maps", first + second);
    root.put("smaps", smaps);
    return describe_region(p.at(from), n);
  };
  const std::string some = first + figures(8, kibibytes) + second + figures(4, kibibytes);
  CHECK(look(some, 0, 32 * page()).huge_page_bytes.value() == 12 * 1'024);
  CHECK(look(some, 0, 16 * page()).huge_page_bytes.value() == 8 * 1'024);
  CHECK(says(look(some, 0, 24 * page()).huge_page_bytes.why(), "before Linux 6.7"));
  const std::string all = first + figures(16 * kibibytes, kibibytes) + second + figures(0, kibibytes);
  CHECK(look(all, page(), 24 * page()).huge_page_bytes.value() == 15 * page_bytes());
  CHECK(look(all, 0, 32 * page()).page_size_bytes.value() == page_bytes());
  const std::string sizes = first + figures(0, kibibytes) + second + figures(0, 2'048);
  CHECK(says(look(sizes, 0, 32 * page()).page_size_bytes.why(), "different sizes"));
  CHECK(look(sizes, 16 * page(), 100).page_size_bytes.value() == 2'048 * 1'024);
  CHECK(says(look(first + "Rss: 1 kB\n", 0, page()).page_size_bytes.why(), "does not"));
  CHECK(says(look(first + "Rss: 1 kB\n", 0, page()).huge_page_bytes.why(), "does not say"));
  for (std::size_t size = 0; size < some.size(); ++size) {
    CAPTURE(size);
    const region_reading r = look(some.substr(0, size), 0, 32 * page());
    const bool ends_between_lines = size == 0 || some[size - 1] == '\n';
    if (!ends_between_lines) CHECK(!r.huge_page_bytes.has_value());
    if (r.huge_page_bytes) CHECK(*r.huge_page_bytes == 12 * 1'024);
  }
}

TEST_CASE("the size of pages is asked for where a file may be one of hugetlbfs") {
  if (!is_linux_since(6, 7)) return;
  constexpr std::size_t round = 0x1'0000;
  const island p(2 * round, MADV_NOHUGEPAGE, round);
  p.write(0, p.size());
  const fake_root root;
  root.link("pagemap");
  const auto page_size = [&](const std::string& line) {
    root.put("maps", line);
    root.put("smaps", line + "KernelPageSize: 64 kB\n");
    return describe_region(p.at(), page()).page_size_bytes.value();
  };
  CHECK(page_size(maps_line(p.at(), p.at(round), "/dev/hugepages/weights")) == 64 * 1'024);
  CHECK(page_size(maps_line(p.at(), p.at(round), "/anon_hugepage (deleted)")) == 64 * 1'024);
  CHECK(page_size(maps_line(p.at(), p.at(round))) == page_bytes());
  CHECK(page_size(maps_line(p.at(), p.at(round + page()), "/data/weights")) == page_bytes());
}

TEST_CASE("anonymous memory is described without a walk over the whole process") {
#if CAN_TRACE_CALLS()
  const island p(16 * page());
  p.write(0, p.size());
  static_cast<void>(describe_region(p.at(), p.size()));
  const std::vector<traced_part> parts = traced([&] {
    next_part();
    static_cast<void>(describe_region(p.at(), p.size()));
    next_part();
  });
  if (parts.size() < 2 || !is_linux_since(6, 7)) return;
  INFO(names(parts[1]));
  CHECK(count(parts[1], SYS_openat) == 2);  // maps and pagemap
#endif
}

TEST_CASE(
    "without /proc, or with files that are none, there is a reason, and a process that may not read its own pagemap "
    "asks mincore()") {
  const island p(4 * page());
  const fake_root root;
  CHECK(says(describe_region(p.at(), page()).resident_bytes.why(), "is /proc mounted?"));
  for (const std::string bad :
       {"binary \x01\xff\n", "Rss: 5 kB\n", "1000-2000\n", "zz-2000 r--p 0 fe:00 1\n", "1000-"}) {
    root.put("maps", bad);
    CHECK(!describe_region(p.at(), page()).resident_bytes.has_value());
    CHECK(!describe_region(p.at(), page()).kind.has_value());
  }
  const std::string line = maps_line(p.at(), p.at(4 * page()));
  for (std::size_t size = 0; size < line.size(); ++size) {
    root.put("maps", line.substr(0, size));
    CHECK(!describe_region(p.at(), page()).resident_bytes.has_value());
  }
  root.put("maps", line);
  CHECK(describe_region(p.at(), page()).resident_bytes.has_value());
  detail::os::use_system_root("");
  if (::getuid() != 0) MESSAGE("left out: another user is tried by root alone");
  if (::getuid() != 0) return;
  p.write(0, page());
  struct result {
    bool has_dropped, is_by_mincore;
    told_bytes resident;
  };
  const result r = in_child([&] {
    result told{};
    told.has_dropped = drop_rights();  // pagemap is its owner's alone, and maps anybody's
    const region_reading found = describe_region(p.at(), p.size());
    told.is_by_mincore = found.resident_source == "mincore";
    told.resident = found.resident_bytes;
    return told;
  });
  REQUIRE(r.has_dropped);
  CHECK(r.is_by_mincore);
  CHECK(r.resident.value == page_bytes());
}

TEST_CASE("errno is as before") {
  const island p(4 * page());
  errno = 77;
  static_cast<void>(describe_region(p.at(), p.size()));
  static_cast<void>(describe_region(nullptr, 5));
  CHECK(errno == 77);
}
