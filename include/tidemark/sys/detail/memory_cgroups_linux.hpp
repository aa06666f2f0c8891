// SPDX-License-Identifier: MIT
// The memory cgroups of this process, from its own up to the mount point, and what their files said when they were last
// read.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/cgroup_files_linux.hpp>
#include <tidemark/sys/detail/cgroup_linux.hpp>
#include <tidemark/sys/detail/limit_reasons_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// One of them.
struct memory_cgroup {
  std::string_view folder;  // lives for ever
  file_figure limit;
  file_figure inherited;  // of version 1's topmost: the least limit from it upwards, out of sight too
  file_figure usage;
  file_figure inactive;  // file cache that goes first
  file_figure high;

  /// The controller is off, or it is the root.
  [[nodiscard]] bool is_bare() const noexcept { return limit.error == ENOENT; }
  [[nodiscard]] std::int64_t least_limit() const noexcept {
    const bool is_inherited = inherited.value >= 0 && (limit.value < 0 || inherited.value < limit.value);
    return is_inherited ? inherited.value : limit.value;
  }
  [[nodiscard]] std::int64_t used() const noexcept {
    if (usage.value < 0 || inactive.value < 0) return unread;
    return usage.value > inactive.value ? usage.value - inactive.value : 0;  // they are read one after the other
  }
  [[nodiscard]] const char* why_not_used() const noexcept {
    return why_unread(usage.error != 0 ? usage.error : inactive.error);
  }
};

class memory_cgroups {
 public:
  enum file : int { limit_file, inherited_file, usage_file, stat_file, high_file, files };

  [[nodiscard]] bool is_v2() const noexcept { return controller().is_v2; }
  [[nodiscard]] int count() const noexcept { return count_; }
  /// The process's own is the first.
  [[nodiscard]] const memory_cgroup& operator[](int i) const noexcept { return groups_[i]; }

  /// The innermost that has the controller's files; null where none has.
  [[nodiscard]] const memory_cgroup* innermost() const noexcept {
    for (int i = 0; i < count_; ++i) {
      if (groups_[i].limit.error == 0) return &groups_[i];
    }
    return nullptr;
  }

  /// Finds them, and what is mounted. None of their files is read yet.
  void find() noexcept {
    bool has_moved = false;
    own_error_ = find_own_cgroups(v2_, v1_, has_moved);
    mounts_error_ = find_mounts(v2_, v1_);
    list();
  }

  /// Finds them again if the process is in another one now, as far as the known mounts show it. False: it is not.
  /// Three system calls, and one or two for the memory of a new name.
  bool follow() noexcept {
    bool has_moved = false;
    own_error_ = find_own_cgroups(v2_, v1_, has_moved);
    if (has_moved) list();
    return has_moved;
  }

  /// Three system calls, or false: there is no such file, or nothing in it counts.
  bool read(int i, file which) noexcept {
    memory_cgroup& g = groups_[i];
    switch (which) {
      case limit_file:
        g.limit = read_figure(system_path(g.folder, is_v2() ? "/memory.max" : "/memory.limit_in_bytes"));
        return true;
      case inherited_file:
        if (is_v2() || i != count_ - 1) return false;
        g.inherited = read_figure(system_path(g.folder, "/memory.stat"), "hierarchical_memory_limit");
        return true;
      case usage_file:
        if (!is_limit(g.least_limit())) return false;
        g.usage = read_figure(system_path(g.folder, is_v2() ? "/memory.current" : "/memory.usage_in_bytes"));
        return true;
      case stat_file:
        if (!is_limit(g.least_limit())) return false;
        g.inactive =
            read_figure(system_path(g.folder, "/memory.stat"), is_v2() ? "inactive_file" : "total_inactive_file");
        return true;
      case high_file:
        if (!is_v2() || g.is_bare()) return false;
        g.high = read_figure(system_path(g.folder, "/memory.high"));
        return true;
      case files:
        break;
    }
    return false;
  }

  [[nodiscard]] file_figure read_kills() const noexcept {
    const memory_cgroup* const own = innermost();
    if (own == nullptr) return {};
    return read_figure(system_path(own->folder, is_v2() ? "/memory.events" : "/memory.oom_control"), "oom_kill");
  }

  /// On a hybrid system too it is version 2 that measures it.
  [[nodiscard]] pressure_figures read_own_pressure() const noexcept {
    if (v2_.folder.empty()) return {};
    return read_pressure(system_path(v2_.folder, "/memory.pressure"));
  }

  /// Why there may be a limit that nobody has seen; null where every one is.
  [[nodiscard]] const char* why_not_seen() const noexcept {
    if (own_error_ != 0) return no_own_cgroup;
    if (mounts_error_ != 0) return no_mounts;
    if (const char* why = why_not_in(controller().sight)) return why;
    if (!is_complete_) return too_deep;
    for (int i = 0; i < count_; ++i) {
      if (groups_[i].limit.error != 0 && !groups_[i].is_bare()) return why_unread(groups_[i].limit.error);
    }
    return nullptr;
  }

 private:
  /// The hierarchy that has the memory controller: on a hybrid system it is version 1's.
  [[nodiscard]] const cgroup_hierarchy& controller() const noexcept { return v1_.own.empty() ? v2_ : v1_; }

  void list() noexcept {
    place(v2_);
    place(v1_);
    const cgroup_hierarchy& h = controller();
    std::size_t size = h.folder.size();
    for (count_ = 0; size > 0 && count_ < capacity; ++count_) {
      groups_[count_] = memory_cgroup();
      groups_[count_].folder = h.folder.substr(0, size);
      size = size > h.point.size() ? h.folder.substr(0, size).rfind('/') : 0;
    }
    is_complete_ = size == 0;
  }

  static constexpr int capacity = 32;

  cgroup_hierarchy v2_{true};
  cgroup_hierarchy v1_{false};
  int own_error_ = not_asked;
  int mounts_error_ = not_asked;
  int count_ = 0;
  bool is_complete_ = true;  // every one has a place
  memory_cgroup groups_[capacity];
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
