// SPDX-License-Identifier: MIT
// The nearest limit is computed by hand on trees of the test's own, and compared with what the kernel enforces on real
// ones: a mapping that just fits and one that does not, a cgroup with a limit, a process that the kernel kills in it.
#include <tidemark/sys/limit.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "limit_machine.hpp"
#include "resident_support.hpp"
#include "test.hpp"

using namespace tidemark;

// ---- which limit ----

TEST_CASE("without a limit of any kind it is the host's") {
  const fake_machine m;
  const memory_limit_reading r = memory_limit();
  CHECK(r.source == limit_source::host);
  CHECK(name_of(r.source) == "host");
  CHECK(r.limit_bytes.value() == 8'000 * MB);
  CHECK(r.used_bytes.value() == 2'000 * MB);
  CHECK(r.headroom_bytes.value() == 6'000 * MB);
  CHECK(r.cgroup.empty());
  CHECK(!r.oom_kills.has_value());
  CHECK(!r.high_bytes.has_value());
  CHECK(r.not_seen.empty());
  CHECK(r.some_pressure.value().average_10_s == doctest::Approx(1.5));
  CHECK(r.some_pressure.value().average_300_s == doctest::Approx(3.25));
  CHECK(r.full_pressure.value().average_60_s == doctest::Approx(0.25));
  CHECK(!r.is_pressure_of_cgroup);
}

TEST_CASE("of nested cgroups of version 2 the one with the least room wins, its inactive file cache left out") {
  const fake_machine m;
  m.be_in_v2("/a.slice/b.scope");
  m.v2("/a.slice/b.scope", "max", 100 * MiB, 10 * MiB);
  m.v2("/a.slice", "1073741824", 600 * MiB, 200 * MiB);
  m.put("/sys/fs/cgroup/a.slice/b.scope/memory.pressure",
        "some avg10=12.34 avg60=5.00 avg300=0.07 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  memory_limit_reading r = memory_limit();
  CHECK(r.source == limit_source::cgroup_v2);
  CHECK(name_of(r.source) == "cgroup_v2");
  CHECK(r.limit_bytes.value() == 1'024 * MiB);
  CHECK(r.used_bytes.value() == 400 * MiB);
  CHECK(r.headroom_bytes.value() == 624 * MiB);
  CHECK(r.cgroup == "/sys/fs/cgroup/a.slice");
  CHECK(r.oom_kills.value() == 4);
  CHECK(says(r.high_bytes.why(), "memory.high is max"));
  CHECK(r.not_seen.empty());
  CHECK(r.is_pressure_of_cgroup);
  CHECK(r.some_pressure.value().average_10_s == doctest::Approx(12.34));
  CHECK(r.some_pressure.value().average_300_s == doctest::Approx(0.07));

  m.v2("/a.slice/b.scope", "524288000", 100 * MiB, 10 * MiB);  // 410 MiB are left
  m.put("/sys/fs/cgroup/a.slice/b.scope/memory.high", "471859200\n");
  m.put("/sys/fs/cgroup/a.slice/memory.high", "314572800\n");  // slows down, and limits nothing
  r = memory_limit();
  CHECK(r.cgroup == "/sys/fs/cgroup/a.slice/b.scope");
  CHECK(r.headroom_bytes.value() == 410 * MiB);
  CHECK(r.high_bytes.value() == 300 * MiB);
  m.put("/sys/fs/cgroup/a.slice/b.scope/memory.high", "157286400\n");
  CHECK(memory_limit().high_bytes.value() == 150 * MiB);

  m.put_host(8'000, 300);
  CHECK(memory_limit().source == limit_source::host);
  m.put_host(8'000, 6'000);

  m.v2("/a.slice", "209715200", 600 * MiB, 200 * MiB);  // lowered below what is used
  r = memory_limit();
  CHECK(r.headroom_bytes.value() == -200 * MiB);
  CHECK(r.limit_bytes.value() == 200 * MiB);
}

TEST_CASE("of nested cgroups of version 1 too, and its number for none is none for every page size") {
  const fake_machine m;
  m.mount(v1_mount);
  m.be_in_v1("/docker/abc");
  m.v1("/docker/abc", "9223372036854771712", 100 * MiB, 30 * MiB);  // pages of 4 KiB
  m.v1("/docker", "9223372036854710272", 200 * MiB, 30 * MiB);      // of 64 KiB
  m.v1("", "9223372036854775807", 300 * MiB, 30 * MiB);
  memory_limit_reading r = memory_limit();
  CHECK(r.source == limit_source::host);
  CHECK(r.oom_kills.value() == 6);
  CHECK(r.not_seen.empty());
  CHECK(says(r.high_bytes.why(), "version 2"));
  const std::string host = content(m.path("/proc/meminfo"));
  m.remove_all("/proc/meminfo");
  CHECK(memory_limit().source == limit_source::none);
  m.put("/proc/meminfo", host);

  m.v1("/docker/abc", "268435456", 100 * MiB, 30 * MiB);
  r = memory_limit();
  CHECK(r.source == limit_source::cgroup_v1);
  CHECK(name_of(r.source) == "cgroup_v1");
  CHECK(r.used_bytes.value() == 70 * MiB);
  CHECK(r.headroom_bytes.value() == 186 * MiB);
  CHECK(r.cgroup == "/sys/fs/cgroup/memory/docker/abc");

  m.v1("/docker", "262144000", 200 * MiB, 30 * MiB);
  CHECK(memory_limit().cgroup == "/sys/fs/cgroup/memory/docker");
  CHECK(memory_limit().headroom_bytes.value() == 80 * MiB);
}

TEST_CASE("a limit of version 1 above what is mounted counts, with what is seen to be used of it") {
  const fake_machine m;
  m.mount("35 31 0:32 /kubepods/pod1/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  m.be_in_v1("/kubepods/pod1/abc");
  m.v1("", "9223372036854771712", 100 * MiB, 30 * MiB, "536870912");
  memory_limit_reading r = memory_limit();
  CHECK(r.source == limit_source::cgroup_v1);
  CHECK(r.limit_bytes.value() == 512 * MiB);
  CHECK(r.used_bytes.value() == 70 * MiB);
  CHECK(r.cgroup == "/sys/fs/cgroup/memory");
  m.v1("", "268435456", 100 * MiB, 30 * MiB, "268435456");
  CHECK(memory_limit().limit_bytes.value() == 256 * MiB);
}

TEST_CASE("on a hybrid system the memory controller is version 1's, the pressure version 2's") {
  const fake_machine m;
  m.mount(v1_mount + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  m.put("/proc/thread-self/cgroup", "4:memory:/a\n1:cpu:/\n0::/b\n");
  m.v1("/a", "268435456", 100 * MiB, 30 * MiB);
  m.v1("", "9223372036854771712", 100 * MiB, 30 * MiB);
  m.put("/sys/fs/cgroup/unified/b/memory.pressure",
        "some avg10=7.00 avg60=5.00 avg300=0.07 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  const memory_limit_reading r = memory_limit();
  CHECK(r.source == limit_source::cgroup_v1);
  CHECK(r.headroom_bytes.value() == 186 * MiB);
  CHECK(r.oom_kills.value() == 6);
  CHECK(r.some_pressure.value().average_10_s == doctest::Approx(7));
  CHECK(r.is_pressure_of_cgroup);
  CHECK(r.not_seen.empty());
}

// ---- where the cgroup is ----

TEST_CASE("the cgroup's folder is found through namespaces, binds and odd mount points") {
  struct variant {
    std::string mounts, own, folder;
    const char* not_seen;
  };
  const auto v2_at = [](const std::string& root, const std::string& point) {
    return "31 23 0:28 " + root + " " + point + " rw - cgroup2 cgroup2 rw\n";
  };
  const std::vector<variant> variants = {
      {v2_at("/", "/sys/fs/cgroup"), "/", "/sys/fs/cgroup", ""},
      {v2_at("/", "/sys/fs/cgroup"), "/x", "/sys/fs/cgroup/x", ""},
      {v2_at("/x/y", "/sys/fs/cgroup"), "/x/y", "/sys/fs/cgroup", ""},
      {v2_at("/x/y", "/sys/fs/cgroup"), "/x/y/z", "/sys/fs/cgroup/z", ""},
      {v2_at("/x/y", "/sys/fs/cgroup"), "/x/yz", "", "outside of what is mounted"},
      {v2_at("/x/y", "/sys/fs/cgroup"), "/x", "", "outside of what is mounted"},
      {v2_at("/", "/sys/fs/cgroup"), "/../x", "", "outside of what is mounted"},
      {v2_at("/", "/sys/fs/cgroup"), "/..", "", "outside of what is mounted"},
      {v2_at("/", "/sys/fs/cgroup"), "/..x", "/sys/fs/cgroup/..x", ""},
      {v2_at("/..", "/sys/fs/cgroup"), "/../x", "/sys/fs/cgroup/x", ""},
      {v2_at("/../..", "/sys/fs/cgroup"), "/../../x/y", "/sys/fs/cgroup/x/y", ""},
      {v2_at("/../..", "/sys/fs/cgroup"), "/x", "/sys/fs/cgroup", "have no names here"},
      {v2_at("/../..", "/sys/fs/cgroup"), "/../x", "/sys/fs/cgroup", "have no names here"},
      {v2_at("/../..", "/sys/fs/cgroup"), "/", "/sys/fs/cgroup", "have no names here"},
      {v2_at("/../../a", "/sys/fs/cgroup"), "/", "", "outside of what is mounted"},
      {v2_at("/", "/mnt/my\\040groups\\134x"), "/x", "/mnt/my groups\\x/x", ""},
      {v2_at("/my\\040pod", "/sys/fs/cgroup"), "/my pod/a:b", "/sys/fs/cgroup/a:b", ""},
      // The host's hierarchy bound to another place shows more; a later mount lies over an earlier.
      {v2_at("/x", "/sys/fs/cgroup") + v2_at("/", "/host/cgroup"), "/x/y", "/host/cgroup/x/y", ""},
      {v2_at("/", "/host/cgroup") + v2_at("/x", "/sys/fs/cgroup"), "/x/y", "/host/cgroup/x/y", ""},
      {v2_at("/", "/old") + v2_at("/", "/new"), "/x", "/new/x", ""},
      {v2_at("/../..", "/host/cgroup") + v2_at("/", "/sys/fs/cgroup"), "/x", "/sys/fs/cgroup/x", ""},
      // A layered file system's line is longer than what one read gives.
      {"40 27 0:44 / /merged rw - overlay overlay rw,lowerdir=" + std::string(9'000, 'l') + "\n" +
           v2_at("/", "/sys/fs/cgroup"),
       "/x", "/sys/fs/cgroup/x", ""},
      {"garbage\n\n- - -\n1 2 3\n" + v2_at("/", "/sys/fs/cgroup"), "/x", "/sys/fs/cgroup/x", ""},
      {"", "/x", "", "are not mounted here"},
  };
  for (const variant& v : variants) {
    const fake_machine m;
    CAPTURE(v.mounts.substr(0, 200));
    CAPTURE(v.own);
    m.mount(v.mounts);
    m.be_in_v2(v.own);
    if (!v.folder.empty()) {
      m.put(v.folder + "/memory.max", "104857600\n");
      m.put(v.folder + "/memory.current", "20971520\n");
      m.put(v.folder + "/memory.stat", "inactive_file 1048576\n");
    }
    const memory_limit_reading r = memory_limit();
    CHECK(r.cgroup == v.folder);
    CHECK((r.source == limit_source::cgroup_v2) == !v.folder.empty());
    CHECK(r.headroom_bytes.value() == (v.folder.empty() ? 6'000 * MB : 81 * MiB));
    if (*v.not_seen == '\0') {
      CHECK(r.not_seen == "");
    } else {
      CHECK(says(r.not_seen, v.not_seen));
    }
  }
}

TEST_CASE("a long list of mounts is read whole, and a path that is too long or too deep says so") {
  const fake_machine m;
  std::string many;
  for (int i = 0; i < 300; ++i) {
    many += std::to_string(100 + i) + " 27 0:44 / /data/volume" + std::to_string(i) + " rw,relatime - ext4 /dev/x rw\n";
  }
  m.mount(many + v2_mount + many);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "/d" + std::to_string(i);
  m.be_in_v2(deep);
  m.v2(deep, "1000000000", 300, 100);
  memory_limit_reading r = memory_limit();
  CHECK(r.cgroup == "/sys/fs/cgroup" + deep);
  CHECK(says(r.not_seen, "deeper than 32"));
  m.be_in_v2("/" + std::string(3'000, 'x'));
  r = memory_limit();
  CHECK(r.source == limit_source::host);
  CHECK(says(r.not_seen, "longer than 900 bytes"));
}

// ---- what is missing, and what lies ----

TEST_CASE("a limit whose use is not known is the nearest only where all of it is less than the others leave") {
  const fake_machine m;
  m.be_in_v2("/a/b");
  m.v2("/a/b", "1000000000", 100, 0);
  m.v2("/a", "800000000", 700'000'000, 0);
  m.remove_all("/sys/fs/cgroup/a/b/memory.stat");
  memory_limit_reading r = memory_limit();
  CHECK(r.cgroup == "/sys/fs/cgroup/a");
  CHECK(r.headroom_bytes.value() == 100'000'000);
  CHECK(says(r.not_seen, "what is used of a further limit is not known"));
  m.put("/sys/fs/cgroup/a/b/memory.max", "90000000\n");
  r = memory_limit();
  CHECK(r.cgroup == "/sys/fs/cgroup/a/b");
  CHECK(r.limit_bytes.value() == 90'000'000);
  CHECK(says(r.used_bytes.why(), "lacks files"));
  CHECK(says(r.headroom_bytes.why(), "lacks files"));
  m.put("/sys/fs/cgroup/a/b/memory.stat", "anon 5\n");
  CHECK(says(memory_limit().used_bytes.why(), "holds no number"));
  m.v2("/a/b", "90000000", 100, 0);
  m.remove_all("/sys/fs/cgroup/a/b/memory.current");
  CHECK(says(memory_limit().used_bytes.why(), "lacks files"));
}

TEST_CASE("whatever file is missing, cut or hostile, what is told is right or has a reason") {
  const std::string files[] = {
      "/proc/thread-self/cgroup",     "/proc/thread-self/mountinfo",  "/proc/meminfo",
      "/proc/pressure/memory",        "/sys/fs/cgroup/a/memory.max",  "/sys/fs/cgroup/a/memory.current",
      "/sys/fs/cgroup/a/memory.stat", "/sys/fs/cgroup/a/memory.high", "/sys/fs/cgroup/a/memory.events"};
  const std::string hostile[] = {"",
                                 "\n",
                                 "999999999999999999999999\n",
                                 "-5\n",
                                 "12",
                                 "max",
                                 "12 max\n",
                                 std::string("bin\0\xff\x01\n", 7),
                                 std::string(70'000, '9'),
                                 std::string(9'000, '\n'),
                                 "0::\n",
                                 "0::relative\n",
                                 "0:memory:/x\n",
                                 ":::\n",
                                 "4:memory\n",
                                 "inactive_file -1\n",
                                 "inactive_file 99999999999999999999\n",
                                 "oom_kill x\n",
                                 "some avg10=nan avg60=1e5 avg300=,\n",
                                 "some avg10=999.0 avg60=0 avg300=0\n"};
  const auto is_sound = [](const memory_limit_reading& r) {
    const auto one = [](const reading<std::int64_t>& x, std::initializer_list<std::int64_t> may_be) {
      if (!x) return !x.why().empty();
      for (const std::int64_t v : may_be) {
        if (*x == v) return true;
      }
      return false;
    };

    const auto percent = [](const reading<memory_pressure>& x) {
      return x ? x->average_10_s >= 0 && x->average_10_s <= 100 && x->average_300_s <= 100 : !x.why().empty();
    };
    const bool is_group = r.source == limit_source::cgroup_v2;
    return one(r.limit_bytes, {is_group ? 1'000'000'000 : 8'000 * MB}) &&
           one(r.used_bytes, {is_group ? 299'999'000 : 2'000 * MB}) &&
           one(r.headroom_bytes, {is_group ? 700'001'000 : 6'000 * MB}) && one(r.high_bytes, {777'777'777}) &&
           one(r.oom_kills, {4}) && percent(r.some_pressure) && percent(r.full_pressure) &&
           r.limit_bytes.has_value() == (r.source != limit_source::none);
  };
  for (const std::string& file : files) {
    const fake_machine m;
    m.be_in_v2("/a");
    m.v2("/a", "1000000000", 300'000'000, 1'000);
    m.put("/sys/fs/cgroup/a/memory.high", "777777777\n");
    const std::string good = content(m.path(file));
    limit_watch w;
    REQUIRE(is_sound(w.last()));
    REQUIRE(w.last().headroom_bytes.value() == 700'001'000);
    const auto try_it = [&] {
      CHECK(is_sound(memory_limit()));
      for (int i = 0; i < 12; ++i) CHECK(is_sound(w.read()));
    };
    CAPTURE(file);
    for (std::size_t size = 0; size < good.size(); ++size) {
      CAPTURE(size);
      m.put(file, good.substr(0, size));
      try_it();
    }
    for (const std::string& text : hostile) {
      // A well-formed number is what it is.
      if (says(file, "memory.max") && (text == "-5\n" || says(text, "99999999999"))) continue;
      CAPTURE(text.substr(0, 60));
      m.put(file, text);
      try_it();
    }
    m.remove_all(file);
    try_it();
    m.put(file, good);
    int reads = 0;
    while (reads < 100 && w.read().headroom_bytes.value_or(0) != 700'001'000) ++reads;
    CHECK(reads < 60);  // and all is well again
  }
}

TEST_CASE("a list of cgroups that is not whole is none, and one kind of pressure alone neither") {
  const fake_machine m;
  for (const std::string& list : {std::string("9:x:/\n0::/a"), "0::/a\n9:" + std::string(16'384, 'x') + ":/\n"}) {
    m.put("/proc/thread-self/cgroup", list);
    CHECK(says(memory_limit().not_seen, "not whole"));
  }
  m.put("/proc/pressure/memory", "some avg10=1.50 avg60=2.00 avg300=3.25 total=9\n");
  CHECK(says(memory_limit().some_pressure.why(), "holds no averages"));
  CHECK(says(memory_limit().full_pressure.why(), "holds no averages"));
}

TEST_CASE("with nothing to read there are reasons, and resource limits still count") {
  const fake_tree empty;
  const memory_limit_reading r = memory_limit();
  CHECK(r.source == limit_source::none);
  CHECK(name_of(r.source) == "none");
  CHECK(says(r.limit_bytes.why(), "is /proc mounted?"));
  CHECK(!r.used_bytes.has_value());
  CHECK(!r.headroom_bytes.has_value());
  CHECK(says(r.not_seen, "/proc/self/cgroup cannot be read"));
  CHECK(says(r.some_pressure.why(), "psi=1"));
  CHECK(says(r.oom_kills.why(), "no memory cgroup"));
  if (has_noise) return;
  struct result {
    told_bytes limit, used;
    limit_source source;
  };
  const result limited = in_child([] {
    const rlimit l = {std::uint64_t{1} << 40, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &l);
    const memory_limit_reading now = memory_limit();
    return result{now.limit_bytes, now.used_bytes, now.source};
  });
  CHECK(limited.source == limit_source::rlimit_as);
  CHECK(limited.limit.value == std::int64_t{1} << 40);
  CHECK(limited.used.says("is /proc mounted?"));
}

TEST_CASE("an unprivileged process is told what it may not read") {
  if (::getuid() != 0) return;
  const fake_machine m;
  m.be_in_v2("/a");
  m.v2("/a", "1000000000", 300'000'000, 1'000);
  ::chmod(m.path("").c_str(), 0755);
  ::chmod(m.path("/sys/fs/cgroup/a/memory.current").c_str(), 0);
  struct result {
    told_bytes limit, used;
    char not_seen[100];
    bool has_dropped;
  };
  const auto ask = [] {
    return in_child([] {
      result r{};
      r.has_dropped = drop_rights();
      const memory_limit_reading now = memory_limit();
      r.limit = now.limit_bytes;
      r.used = now.used_bytes;
      now.not_seen.copy(r.not_seen, sizeof r.not_seen - 1);
      return r;
    });
  };
  result r = ask();
  REQUIRE(r.has_dropped);
  CHECK(r.limit.value == 1'000'000'000);
  CHECK(r.used.says("may not be read"));
  ::chmod(m.path("/sys/fs/cgroup/a/memory.max").c_str(), 0);
  r = ask();
  CHECK(r.limit.value == 8'000 * MB);
  CHECK(says(r.not_seen, "may not be read"));
}

TEST_CASE("without descriptors every reading has that reason, and a watch comes back") {
  if (has_noise) return;
  const fake_machine m;
  m.be_in_v2("/a");
  m.v2("/a", "1000000000", 300'000'000, 1'000);
  struct result {
    told_bytes fresh, watched, after;
    int error;
  };
  const result r = in_child([] {
    result x{};
    limit_watch w;
    rlimit files = {};
    ::getrlimit(RLIMIT_NOFILE, &files);
    const rlim_t before = files.rlim_cur;
    files.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &files);
    errno = 77;
    x.fresh = memory_limit().limit_bytes;
    x.watched = w.read().headroom_bytes;
    for (int i = 0; i < 40; ++i) static_cast<void>(w.read());
    x.error = errno;
    files.rlim_cur = before;
    ::setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < 40; ++i) static_cast<void>(w.read());
    x.after = w.last().headroom_bytes;
    return x;
  });
  CHECK(r.fresh.says("no file descriptor"));
  CHECK(!r.watched.is_present);
  CHECK(r.after.value == 700'001'000);
  CHECK(r.error == 77);
}

// ---- what the kernel enforces ----

TEST_CASE("a resource limit leaves exactly the room that the kernel gives") {
  if (has_noise) return;
  struct result {
    limit_source source;
    told_bytes limit, headroom;
    bool fits, fits_not;
  };
  for (const bool is_data : {false, true}) {
    CAPTURE(is_data);
    const result r = in_child([is_data] {
      const auto which = is_data ? RLIMIT_DATA : RLIMIT_AS;
      static_cast<void>(memory_limit());
      const std::int64_t used = kernel_line("/proc/self/status", is_data ? "VmData:" : "VmSize:");
      const rlimit l = {static_cast<rlim_t>(used + 200 * MiB), RLIM_INFINITY};
      ::setrlimit(which, &l);
      const memory_limit_reading now = memory_limit();
      result x{now.source, now.limit_bytes, now.headroom_bytes, false, true};
      const auto map = [](std::int64_t bytes) {
        void* const p = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return false;
        ::munmap(p, static_cast<std::size_t>(bytes));
        return true;
      };
      x.fits_not = map(x.headroom.value + page_bytes());
      x.fits = map(x.headroom.value);
      return x;
    });
    CHECK(r.source == (is_data ? limit_source::rlimit_data : limit_source::rlimit_as));
    CHECK(name_of(r.source) == (is_data ? "rlimit_data" : "rlimit_as"));
    CHECK(is_near(r.headroom.value, 200 * MiB, MiB));
    CHECK(r.fits);
    CHECK(!r.fits_not);
  }
}

namespace {

/// The folder of this process's memory cgroup of version 1, empty where it has none in the usual place.
std::string own_v1_folder() {
  const std::string own = content("/proc/self/cgroup");
  std::size_t at = own.find(":memory:");
  if (at == std::string::npos) return {};
  at += 8;
  const std::string path = own.substr(at, own.find('\n', at) - at);
  const std::string folder = "/sys/fs/cgroup/memory" + (path == "/" ? "" : path);
  return ::access((folder + "/cgroup.procs").c_str(), W_OK) == 0 ? folder : "";
}

bool write_to(const std::string& path, const std::string& text) {
  const int f = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool is_done = f >= 0 && ::write(f, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (f >= 0) ::close(f);
  return is_done;
}

}  // namespace

TEST_CASE(
    "a real cgroup's limit, what is used of it and what the kernel kills in it are found, once the process is in it") {
  const std::string parent = own_v1_folder();
  const std::string folder = parent + "/tidemark_test_" + std::to_string(::getpid());
  if (parent.empty() || has_noise || ::mkdir(folder.c_str(), 0755) != 0 ||
      !write_to(folder + "/memory.limit_in_bytes", "67108864")) {
    if (!parent.empty()) ::rmdir(folder.c_str());
    MESSAGE("left out: no cgroup of version 1 can be made here");
    return;
  }
  struct result {
    bool has_moved, is_there, not_seen;
    limit_source source;
    told_bytes limit, used, headroom, kills, kills_after, watched;
    std::int64_t usage, inactive;
    int reads;
    int killed_by;
  };
  const result r = in_child([&] {
    result x{};
    limit_watch w;
    const limit_source before = w.read().source;
    x.has_moved = write_to(folder + "/cgroup.procs", "0");
    const pages p(24 * MiB);
    p.touch();
    const memory_limit_reading now = memory_limit();
    x.source = now.source;
    x.limit = now.limit_bytes;
    x.used = now.used_bytes;
    x.headroom = now.headroom_bytes;
    x.kills = now.oom_kills;
    x.is_there = now.cgroup == folder;
    x.not_seen = !now.not_seen.empty();
    x.usage = number_at(file_text((folder + "/memory.usage_in_bytes").c_str()));
    x.inactive = kernel_line((folder + "/memory.stat").c_str(), "total_inactive_file") / 1'024;
    while (x.reads < 100 && (w.last().source == before || !w.last().used_bytes)) {
      static_cast<void>(w.read());
      ++x.reads;
    }
    x.watched = w.last().used_bytes;
    const pid_t victim = ::fork();
    if (victim == 0) {
      write_to("/proc/self/oom_score_adj", "1000");
      touch_and_unmap(128 * MiB);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(victim, &status, 0);
    x.killed_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    x.kills_after = memory_limit().oom_kills;
    return x;
  });
  for (int tries = 0; ::rmdir(folder.c_str()) != 0 && tries < 100; ++tries) ::usleep(10'000);
  REQUIRE(r.has_moved);
  CHECK(r.source == limit_source::cgroup_v1);
  CHECK(r.is_there);
  CHECK(!r.not_seen);
  CHECK(r.limit.value == 64 * MiB);
  CHECK(r.used.value >= 24 * MiB);
  CHECK(is_near(r.used.value, r.usage - r.inactive, MiB));  // the kernel counts in batches
  CHECK(r.headroom.value == r.limit.value - r.used.value);
  CHECK(r.reads <= 30);
  CHECK(is_near(r.watched.value, r.used.value, 2 * MiB));
  CHECK(r.killed_by == SIGKILL);
  CHECK(r.kills.value == 0);
  CHECK(r.kills_after.value == 1);
}

TEST_CASE("without /proc, and in a cgroup namespace of its own, a process is told what is not seen") {
  struct result {
    bool is_permitted;
    limit_source source;
    told_bytes limit;
    char not_seen[160];
  };
  const auto ask = [](int flags, bool has_proc) {
    return in_child([=] {
      result x{};
      limit_watch w;
      x.is_permitted = ::unshare(flags) == 0;
      if (x.is_permitted && !has_proc) {
        x.is_permitted =
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && ::umount2("/proc", MNT_DETACH) == 0;
      }
      const memory_limit_reading now = memory_limit();
      x.source = now.source;
      x.limit = now.limit_bytes;
      now.not_seen.copy(x.not_seen, sizeof x.not_seen - 1);
      for (int i = 0; i < 30; ++i) static_cast<void>(w.read());
      return x;
    });
  };
  const result bare = ask(CLONE_NEWNS, false);
  if (bare.is_permitted) {
    CHECK(bare.source == limit_source::none);
    CHECK(bare.limit.says("is /proc mounted?"));
    CHECK(says(bare.not_seen, "/proc/self/cgroup cannot be read"));
  }
  const std::string own = own_v1_folder();
  const result apart = ask(CLONE_NEWCGROUP, true);
  if (apart.is_permitted && own.size() > std::string_view("/sys/fs/cgroup/memory/").size()) {
    CHECK(apart.limit.is_present);
    CHECK(says(apart.not_seen, "have no names here"));
  }
}
