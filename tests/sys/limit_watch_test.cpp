// SPDX-License-Identifier: MIT
// A watch is compared with a model on trees that change between its reads; its system calls are counted from outside,
// its allocations by the hook.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/sys/limit.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "dice.hpp"
#include "limit_machine.hpp"
#include "resident_support.hpp"
#include "test.hpp"
#include "traced_calls.hpp"

using namespace tidemark;

// ---- a model ----

namespace {

struct modelled {
  struct group {
    std::int64_t limit = -1, usage = 0, inactive = 0;
  };
  bool is_v2 = true;
  std::vector<group> groups;              // the topmost first; group 0 is the mount point
  std::int64_t total = 0, available = 0;  // MB

  void roll(dice& d) {
    is_v2 = d.below(2) == 0;
    groups.assign(1 + d.below(5), {});
    for (std::size_t i = 0; i < groups.size(); ++i) change(d, i);
    change_host(d);
  }
  void change(dice& d, std::size_t i) {
    group& g = groups[i];
    g.limit = d.below(3) == 0 ? -1 : static_cast<std::int64_t>(1 + d.below(4'000'000'000));
    g.usage = static_cast<std::int64_t>(d.below(2'000'000'000));
    g.inactive = static_cast<std::int64_t>(d.below(1'000'000'000));
  }
  void change_host(dice& d) {
    total = static_cast<std::int64_t>(1'000 + d.below(4'000));
    available = static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(total)));
  }
  [[nodiscard]] std::string path(std::size_t i) const {
    std::string p;
    for (std::size_t k = 1; k <= i; ++k) p += "/g" + std::to_string(k);
    return p;
  }
  void write(const fake_machine& m, std::size_t i) const {
    const group& g = groups[i];
    const std::string limit = g.limit >= 0 ? std::to_string(g.limit) : is_v2 ? "max" : "9223372036854771712";
    std::int64_t least = g.limit;
    for (std::size_t k = 0; k < i; ++k) {
      if (groups[k].limit >= 0 && (least < 0 || groups[k].limit < least)) least = groups[k].limit;
    }
    if (is_v2) m.v2(path(i), limit, g.usage, g.inactive);
    if (!is_v2) {
      m.v1(path(i), limit, g.usage, g.inactive, least >= 0 ? std::to_string(least) : "9223372036854771712");
    }
  }
  void write(const fake_machine& m) const {
    m.mount(v2_mount + v1_mount);
    const std::string own = path(groups.size() - 1);
    is_v2 ? m.be_in_v2(own.empty() ? "/" : own) : m.be_in_v1(own.empty() ? "/" : own);
    for (std::size_t i = 0; i < groups.size(); ++i) write(m, i);
    m.put_host(total, available);
  }
  /// The least room, and the limit that leaves it.
  void nearest(std::int64_t& room, std::int64_t& limit) const {
    room = available * MB;
    limit = total * MB;
    for (const group& g : groups) {
      const std::int64_t used = g.usage > g.inactive ? g.usage - g.inactive : 0;
      if (g.limit >= 0 && g.limit - used < room) {
        room = g.limit - used;
        limit = g.limit;
      }
    }
  }
  [[nodiscard]] bool holds(const memory_limit_reading& r) const {
    std::int64_t room = 0;
    std::int64_t limit = 0;
    nearest(room, limit);
    return r.headroom_bytes.value_or(-1) == room && r.limit_bytes.value_or(-1) == limit &&
           r.used_bytes.value_or(-1) == limit - room && r.not_seen.empty();
  }
};

/// How many it takes, of at most 100.
template <class F>
int reads_until(limit_watch& w, F is_so) {
  for (int i = 1; i < 100; ++i) {
    if (is_so(w.read())) return i;
  }
  return 100;
}

}  // namespace

TEST_CASE("200 trees have the nearest limit that a model finds, and a watch follows every change of them") {
  dice d(1);
  int slowest = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const fake_machine m;
    modelled tree;
    tree.roll(d);
    tree.write(m);
    CHECK(tree.holds(memory_limit()));
    limit_watch w;
    CHECK(tree.holds(w.last()));
    CHECK(tree.holds(w.read()));
    const std::size_t i = d.below(tree.groups.size() + 1);
    i == tree.groups.size() ? tree.change_host(d) : tree.change(d, i);
    tree.write(m);
    const auto follow = [&] {
      slowest = std::max(slowest, reads_until(w, [&](const auto& r) { return tree.holds(r); }));
    };
    follow();
    CHECK(tree.holds(w.read()));
    // Everything at once, as by a move.
    tree.roll(d);
    m.remove_all("/sys");
    tree.write(m);
    follow();
    w.refresh();
    CHECK(tree.holds(w.last()));
  }
  MESSAGE("the slowest change took " << slowest << " reads");
  CHECK(slowest <= 35);
}

TEST_CASE("what is used of the nearest limit is of the very read, a limit nearby of one of the next fourteen") {
  const fake_machine m;
  m.be_in_v2("/a/b");
  m.v2("/a/b", "1000000000", 500'000'000, 0);
  m.v2("/a", "1200000000", 500'000'000, 0);
  m.v2("", "max", 0, 0);
  limit_watch w;
  for (std::int64_t used = 500'000'000; used < 700'000'000; used += 9'000'001) {
    m.put("/sys/fs/cgroup/a/b/memory.current", std::to_string(used) + "\n");
    m.put("/sys/fs/cgroup/a/b/memory.stat", "inactive_file 777\n");
    const memory_limit_reading r = w.read();
    CHECK(r.used_bytes.value() == used - 777);
    CHECK(r.headroom_bytes.value() == 1'000'000'000 - used + 777);
  }
  const auto reads = [&w](const std::string& folder, std::int64_t limit) {
    return reads_until(w, [&](const auto& r) { return r.cgroup == folder && r.limit_bytes.value_or(0) == limit; });
  };
  m.put("/sys/fs/cgroup/a/b/memory.max", "900000000\n");
  CHECK(reads("/sys/fs/cgroup/a/b", 900'000'000) <= 14);
  m.put("/sys/fs/cgroup/a/memory.current", "1190000000\n");  // by a neighbour
  CHECK(reads("/sys/fs/cgroup/a", 1'200'000'000) <= 14);
  m.put_host(8'000, 1);
  CHECK(reads("", 8'000 * MB) <= 14);
  m.put_host(8'000, 6'000);
  CHECK(reads("/sys/fs/cgroup/a", 1'200'000'000) == 1);
  m.put("/sys/fs/cgroup/memory.max", "1000\n");  // where there was none
  CHECK(reads("/sys/fs/cgroup", 1'000) <= 40);
}

TEST_CASE("a watch follows its process to another cgroup, also where the old one is gone") {
  for (const bool is_removed : {false, true}) {
    const fake_machine m;
    m.be_in_v2("/old");
    m.v2("/old", "1000000000", 100, 0);
    m.v2("", "max", 0, 0);
    limit_watch w;
    CHECK(w.read().cgroup == "/sys/fs/cgroup/old");
    m.v2("/new/place", "2000000000", 100, 0);
    m.be_in_v2("/new/place");
    if (is_removed) m.remove_all("/sys/fs/cgroup/old");
    CAPTURE(is_removed);
    CHECK(reads_until(w, [](const auto& r) { return r.cgroup == "/sys/fs/cgroup/new/place"; }) <= 20);
    m.be_in_v2("/");
    for (int i = 0; i < 60; ++i) static_cast<void>(w.read());
    CHECK(w.last().source == limit_source::host);
    CHECK(w.last().not_seen.empty());
  }
}

TEST_CASE("pressure, kills and what throttles follow too, and a new mount after a refresh") {
  const fake_machine m;
  m.be_in_v2("/a");
  m.v2("/a", "1000000000", 100, 0);
  limit_watch w;
  CHECK(w.last().oom_kills.value() == 4);
  m.put("/sys/fs/cgroup/a/memory.events", "oom 9\noom_kill 5\n");
  m.put("/sys/fs/cgroup/a/memory.high", "900000000\n");
  m.put("/proc/pressure/memory",
        "some avg10=99.00 avg60=2.00 avg300=3.25 total=9\nfull avg10=44.50 avg60=0 avg300=0 total=4\n");
  const auto is_new = [](const memory_limit_reading& r) {
    return r.oom_kills.value() == 5 && r.high_bytes.value_or(0) == 900'000'000 &&
           r.some_pressure.value().average_10_s == doctest::Approx(99) &&
           r.full_pressure.value().average_10_s == doctest::Approx(44.5);
  };
  CHECK(reads_until(w, is_new) <= 20);
  m.put("/sys/fs/cgroup/a/memory.pressure",
        "some avg10=7.00 avg60=2.00 avg300=3.25 total=9\nfull avg10=0 avg60=0 avg300=0 total=4\n");
  CHECK(reads_until(w, [](const auto& r) { return r.is_pressure_of_cgroup; }) <= 20);
  m.remove_all("/sys");
  m.mount("31 23 0:28 / /other cgroup2 rw - cgroup2 cgroup2 rw\n");
  m.put("/other/a/memory.max", "2000\n");
  m.put("/other/a/memory.current", "1000\n");
  m.put("/other/a/memory.stat", "inactive_file 0\n");
  CHECK(reads_until(w, [](const auto& r) { return r.cgroup == "/other/a"; }) == 100);
  CHECK(w.last().source == limit_source::host);
  w.refresh();
  CHECK(w.last().cgroup == "/other/a");
  CHECK(w.last().headroom_bytes.value() == 1'000);
}

// ---- what it costs ----

#if CAN_TRACE_CALLS()

TEST_CASE("a read of a watch is at most nine system calls, whatever changes, and keeps nothing open") {
  const auto most_of = [](bool is_real, bool is_limited) {
    const std::vector<traced_part> parts = traced([=] {
      static limit_watch* w = nullptr;
      if (is_limited) {
        const rlimit l = {std::uint64_t{1} << 42, RLIM_INFINITY};
        ::setrlimit(RLIMIT_AS, &l);
        ::setrlimit(RLIMIT_DATA, &l);
      }
      if (is_real) {
        static limit_watch real;
        w = &real;
        for (int i = 0; i < 100; ++i) {
          next_part();
          static_cast<void>(w->read());
          next_part();
        }
        return;
      }
      const fake_machine m;
      modelled tree;
      dice d(7);
      tree.roll(d);
      tree.write(m);
      static limit_watch watch;
      w = &watch;
      for (int i = 0; i < 400; ++i) {
        if (i % 20 == 19) {
          tree.roll(d);
          if (i % 40 == 39) m.remove_all("/sys");
          tree.write(m);
        }
        next_part();
        static_cast<void>(w->read());
        next_part();
      }
    });
    if (parts.size() < 2) MESSAGE("left out: no process may be traced here");
    std::size_t most = 0;
    std::size_t least = 100;
    for (std::size_t i = 1; i < parts.size(); i += 2) {
      const traced_part& p = parts[i];
      CAPTURE(names(p));
      CHECK(p.size() <= 9);
      most = p.size() > most ? p.size() : most;
      least = p.size() < least ? p.size() : least;
    }
    MESSAGE("from " << least << " to " << most << " system calls");
  };
  most_of(false, false);
  most_of(false, true);
  most_of(true, false);
  most_of(true, true);
}

#endif

TEST_CASE("neither form allocates, leaves a descriptor open or touches errno") {
  if (!thread_usage()) return;
  const fake_machine m;
  m.be_in_v2("/a");
  m.v2("/a", "1000000000", 300'000'000, 1'000);
  static_cast<void>(memory_limit());
  const int lowest = ::dup(0);
  ::close(lowest);
  errno = 99;
  const std::uint64_t before = thread_usage().value().allocations;
  static_cast<void>(memory_limit());
  limit_watch w;
  for (int i = 0; i < 100; ++i) static_cast<void>(w.read());
  const limit_watch copy = w;
  static_cast<void>(copy.last());
  CHECK(thread_usage().value().allocations == before);
  CHECK(errno == 99);
  const int again = ::dup(0);
  ::close(again);
  CHECK(again == lowest);
}
