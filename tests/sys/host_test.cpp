// SPDX-License-Identifier: MIT
// The machine's memory is compared with another system call, and with files that lie or end early. psutil_check.py
// compares it with free(1) and psutil.
#include <tidemark/sys/host.hpp>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/sysinfo.h>
#include <unistd.h>

#include "fake_tree.hpp"
#include "resident_support.hpp"
#include "test.hpp"

using namespace tidemark;

namespace {

constexpr std::int64_t KiB = 1'024;

const std::string meminfo =
    "MemTotal:       1000 kB\nMemFree:         300 kB\nMemAvailable:    600 kB\nBuffers:          50 kB\nCached:       "
    "   250 "
    "kB\nSwapCached:        0 kB\nSwapTotal:       80 kB\nSwapFree:        70 kB\nHugePages_Total:       0\n";

}  // namespace

TEST_CASE("the total is the kernel's own by another call, and errno stays") {
  struct sysinfo info = {};
  REQUIRE(::sysinfo(&info) == 0);
  errno = 77;
  const host_memory_reading h = host_memory();
  CHECK(errno == 77);
  CHECK(h.total_bytes.value() == static_cast<std::int64_t>(info.totalram) * info.mem_unit);
  CHECK(h.swap_total_bytes.value() == static_cast<std::int64_t>(info.totalswap) * info.mem_unit);
  CHECK(h.used_bytes.value() + h.available_bytes.value() == h.total_bytes.value());
}

TEST_CASE("each figure is computed from its own lines") {
  const fake_tree tree;
  tree.put("/proc/meminfo", meminfo);
  const host_memory_reading h = host_memory();
  CHECK(h.total_bytes.value() == 1'000 * KiB);
  CHECK(h.available_bytes.value() == 600 * KiB);
  CHECK(h.used_bytes.value() == 400 * KiB);
  CHECK(h.swap_total_bytes.value() == 80 * KiB);
  CHECK(h.swap_free_bytes.value() == 70 * KiB);
  CHECK(h.swap_used_bytes.value() == 10 * KiB);
  // More available than there is: what is not free is used, as free(1) has it.
  tree.put("/proc/meminfo",
           "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 1200 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
  CHECK(host_memory().used_bytes.value() == 700 * KiB);
  CHECK(host_memory().swap_total_bytes.value() == 0);
  CHECK(host_memory().swap_used_bytes.value() == 0);
}

TEST_CASE("a file that ends early or lies gives whole figures or reasons, never a zero") {
  const fake_tree tree;
  for (std::size_t size = 0; size <= meminfo.size(); ++size) {
    tree.put("/proc/meminfo", meminfo.substr(0, size));
    const host_memory_reading h = host_memory();
    CAPTURE(size);
    const auto is_sound = [](const reading<std::int64_t>& r, std::int64_t whole) {
      return r ? *r == whole * KiB : !r.why().empty();
    };
    CHECK(is_sound(h.total_bytes, 1'000));
    CHECK(is_sound(h.available_bytes, 600));
    CHECK(is_sound(h.used_bytes, 400));
    CHECK(is_sound(h.swap_total_bytes, 80));
    CHECK(is_sound(h.swap_used_bytes, 10));
    CHECK(h.total_bytes.has_value() == (size > meminfo.find('\n')));
  }
  for (const std::string& bad :
       {std::string("binary \0\x01\xff\n", 11), std::string("MemTotal: 99999999999999999999 kB\nMemAvailable: -4 kB\n"),
        std::string("MemTotal: 10 MB\nMemAvailable: kB\n"), std::string("MemTotal: 9007199254740993 kB\n"),
        std::string(1 << 16, 'x'), std::string(5'000, '\n')}) {
    tree.put("/proc/meminfo", bad);
    const host_memory_reading h = host_memory();
    for (const auto* r : {&h.total_bytes, &h.available_bytes, &h.used_bytes, &h.swap_total_bytes, &h.swap_free_bytes,
                          &h.swap_used_bytes}) {
      CHECK(!r->has_value());
      CHECK(!r->why().empty());
    }
  }
}

TEST_CASE("without a /proc, a descriptor or the permission the reason is that one") {
  {
    const fake_tree empty;
    CHECK(host_memory().total_bytes.why().find("is /proc mounted?") != std::string_view::npos);
    CHECK(host_memory().used_bytes.why().find("is /proc mounted?") != std::string_view::npos);
  }
  const auto refused = [](int error) {
    return in_child([error]() -> told_bytes {
      if (!refuse_call(SYS_openat, error)) return {};
      return host_memory().available_bytes;
    });
  };
  if (has_noise) return;
  CHECK(refused(EMFILE).says("no file descriptor"));
  CHECK(refused(EACCES).says("does not permit"));
}
