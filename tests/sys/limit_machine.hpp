// SPDX-License-Identifier: MIT
// A machine of a test's own, with memory cgroups of either version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fake_tree.hpp"

inline const std::string mountinfo_head =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n";
inline const std::string v2_mount = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
inline const std::string v1_mount =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";

/// A machine with 8 GB, of which 6 are available, and no cgroups yet.
class fake_machine : public fake_tree {
 public:
  fake_machine() {
    put_host(8'000, 6'000);
    put("/proc/thread-self/cgroup", "");
    mount(v2_mount);
    put("/proc/pressure/memory",
        "some avg10=1.50 avg60=2.00 avg300=3.25 total=9\nfull avg10=0.50 avg60=0.25 avg300=0.00 total=4\n");
    put("/proc/thread-self/status", "VmSize:\t 1000 kB\nVmData:\t 500 kB\n");
  }
  /// Units: MB of 1,024,000 bytes.
  void put_host(std::int64_t total, std::int64_t available) const {
    put("/proc/meminfo", "MemTotal: " + std::to_string(total * 1'000) +
                             " kB\nMemFree: 1 kB\nMemAvailable: " + std::to_string(available * 1'000) + " kB\n");
  }
  void mount(const std::string& lines) const { put("/proc/thread-self/mountinfo", mountinfo_head + lines); }
  void be_in_v2(const std::string& path) const { put("/proc/thread-self/cgroup", "0::" + path + "\n"); }
  void be_in_v1(const std::string& path) const {
    put("/proc/thread-self/cgroup", "9:name=systemd:/\n7:cpu,memory,pids:" + path + "\n0::/\n");
  }
  void v2(const std::string& folder, const std::string& limit, std::int64_t usage, std::int64_t inactive) const {
    put("/sys/fs/cgroup" + folder + "/memory.max", limit + "\n");
    put("/sys/fs/cgroup" + folder + "/memory.high", "max\n");
    put("/sys/fs/cgroup" + folder + "/memory.current", std::to_string(usage) + "\n");
    put("/sys/fs/cgroup" + folder + "/memory.stat",
        "anon 1\nfile 2\ninactive_anon 3\ninactive_file " + std::to_string(inactive) + "\nactive_file 4\n");
    put("/sys/fs/cgroup" + folder + "/memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 0\n");
  }
  void v1(const std::string& folder, const std::string& limit, std::int64_t usage, std::int64_t inactive,
          const std::string& hierarchical = "9223372036854771712") const {
    const std::string at = "/sys/fs/cgroup/memory" + folder;
    put(at + "/memory.limit_in_bytes", limit + "\n");
    put(at + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    put(at + "/memory.stat", "cache 7\ninactive_file 1\nhierarchical_memory_limit " + hierarchical +
                                 "\ntotal_cache 7\ntotal_inactive_file " + std::to_string(inactive) + "\n");
    put(at + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n");
  }
};

inline constexpr std::int64_t MB = 1'024'000;

[[nodiscard]] inline bool says(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
