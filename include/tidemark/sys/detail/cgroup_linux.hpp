// SPDX-License-Identifier: MIT
// Which folder a process's cgroup is. Mount points are found, not assumed: containers, hybrid systems and namespaces
// each have them elsewhere. No allocation on the heap, errno untouched; texts that are kept live for ever.
// Source: cgroups(7), cgroup_namespaces(7), proc_pid_mountinfo(5).
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/names.hpp>
#include <tidemark/sys/detail/process_figures.hpp>
#include <tidemark/sys/detail/small_file_linux.hpp>
#include <tidemark/sys/detail/status_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <cstring>
  #include <string_view>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// What a process sees of the hierarchy that its cgroup is in.
enum class cgroup_sight {
  none,       // it is in none
  unmounted,  // no mount shows the hierarchy
  outside,    // none shows this cgroup
  too_long,   // its path is
  partial,    // the mount begins above the namespace, and the folders between have no names here
  whole,
};

/// A hierarchy of cgroups. Every text is interned.
struct cgroup_hierarchy {
  bool is_v2;
  std::string_view own{};    // the process's cgroup as /proc/self/cgroup names it; empty: it is in none
  std::string_view root{};   // which cgroup is mounted, named alike
  std::string_view point{};  // where; empty: none is
  cgroup_sight sight = cgroup_sight::none;
  std::string_view folder{};  // of the own cgroup, or of what is seen above it; empty: nothing is
};

// ---- the process's own ----

/// Whether a list with commas has that word.
[[nodiscard]] inline bool has_word(std::string_view list, std::string_view word) noexcept {
  for (;;) {
    const std::size_t size = list.find(',');
    if (list.substr(0, size) == word) return true;
    if (size == std::string_view::npos) return false;
    list.remove_prefix(size + 1);
  }
}

/// "0::/a/b" of version 2, "4:cpu,memory:/a/b" of version 1: whether the line is that of version 2, or the memory
/// controller's.
[[nodiscard]] inline bool take_own_cgroup(std::string_view line, bool is_v2, std::string_view& own) noexcept {
  if (is_v2) {
    if (!take_prefix(line, "0::")) return false;
  } else {
    std::uint64_t hierarchy = 0;
    if (!take_number(line, hierarchy) || !take_prefix(line, ":")) return false;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !has_word(line.substr(0, colon), "memory")) return false;
    line.remove_prefix(colon + 1);
  }
  if (line.empty() || line.front() != '/') return false;
  own = line;
  return true;
}

/// Three system calls, and one or two for the memory of new names. Returns 0, an errno value, or EBADMSG where the list
/// is not whole. `has_changed`: the process is in other cgroups than before.
[[nodiscard]] inline int find_own_cgroups(cgroup_hierarchy& v2, cgroup_hierarchy& v1, bool& has_changed) noexcept {
  has_changed = false;
  small_file<16'384> file(process_file(this_process_id, "cgroup"));
  if (file.error() != 0) return file.error();
  std::string_view own_v2;
  std::string_view own_v1;
  std::string_view line;
  while (file.next(line)) {
    static_cast<void>(take_own_cgroup(line, true, own_v2) || take_own_cgroup(line, false, own_v1));
  }
  if (file.is_cut()) return EBADMSG;
  has_changed = own_v2 != v2.own || own_v1 != v1.own;
  if (has_changed) {
    v2.own = intern(own_v2);
    v1.own = intern(own_v1);
  }
  return 0;
}

// ---- what is mounted ----

/// One line of mountinfo, its texts as the kernel writes them.
struct mount_entry {
  std::string_view root, point, type, options;
};

[[nodiscard]] inline bool take_mount(std::string_view line, mount_entry& m) noexcept {
  for (int field = 0; field < 3; ++field) take_word(line);
  m.root = take_word(line);
  m.point = take_word(line);
  constexpr std::string_view separator = " - ";
  const std::size_t at = line.find(separator);
  if (m.root.empty() || m.point.empty() || at == std::string_view::npos) return false;
  line.remove_prefix(at + separator.size());
  m.type = take_word(line);
  m.options = line.substr(line.rfind(' ') + 1);
  return true;
}

/// Takes off what stands for one character: "\040" is a blank.
[[nodiscard]] inline char take_escaped(std::string_view& text) noexcept {
  const char c = text.front();
  const auto digit = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7' ? text[at] - '0' : -1; };
  const bool is_escape =
      c == '\\' && text.size() >= 4 && digit(1) >= 0 && digit(1) <= 3 && digit(2) >= 0 && digit(3) >= 0;
  const int code = is_escape ? digit(1) * 64 + digit(2) * 8 + digit(3) : 0;
  text.remove_prefix(is_escape ? 4 : 1);
  return is_escape ? static_cast<char>(code) : c;
}

[[nodiscard]] inline std::string_view intern_unescaped(std::string_view text) noexcept {
  char plain[4'096];
  std::size_t size = 0;
  while (!text.empty() && size < sizeof plain) plain[size++] = take_escaped(text);
  return intern({plain, size});
}

/// How the own cgroup lies to a mount of `root`: outside, partial or whole; then `rest` is its path below the mount.
[[nodiscard]] inline cgroup_sight relate(std::string_view own, std::string_view root, std::string_view& rest) noexcept {
  if (own == "/") own = {};
  if (root == "/") root = {};
  const auto is_up = [](std::string_view path) {
    return path.substr(0, 3) == "/.." && (path.size() == 3 || path[3] == '/');
  };
  rest = {};
  if (own.substr(0, root.size()) == root && (own.size() == root.size() || own[root.size()] == '/')) {
    if (is_up(own.substr(root.size()))) return cgroup_sight::outside;
    rest = own.substr(root.size());
    return cgroup_sight::whole;
  }
  while (is_up(root)) root.remove_prefix(3);
  return root.empty() ? cgroup_sight::partial : cgroup_sight::outside;
}

/// Of several mounts the one that shows most of the hierarchy is taken; of equal ones the later, which may lie over the
/// earlier.
inline void offer_mount(cgroup_hierarchy& h, const mount_entry& m) noexcept {
  std::string_view rest;
  const std::string_view root = intern_unescaped(m.root);
  const cgroup_sight sight = relate(h.own, root, rest);
  if (!h.point.empty()) {
    const cgroup_sight before = relate(h.own, h.root, rest);
    if (sight < before || (sight == before && root.size() > h.root.size())) return;
  }
  h.root = root;
  h.point = intern_unescaped(m.point);
}

/// As many system calls as the list of mounts is long. Returns 0 or an errno value; then some may be found.
[[nodiscard]] inline int find_mounts(cgroup_hierarchy& v2, cgroup_hierarchy& v1) noexcept {
  v2.point = v1.point = {};
  const system_file file(process_file(this_process_id, "mountinfo"));
  line_reader<> lines(file);
  std::string_view line;
  while (lines.next(line)) {
    mount_entry m;
    if (!take_mount(line, m)) continue;
    if (m.type == "cgroup2") offer_mount(v2, m);
    if (m.type == "cgroup" && has_word(m.options, "memory")) offer_mount(v1, m);
  }
  return lines.error();
}

/// Finds the folder of the own cgroup below the mount point. No system call, but for the memory of a new name.
inline void place(cgroup_hierarchy& h) noexcept {
  h.folder = {};
  h.sight = h.own.empty() ? cgroup_sight::none : cgroup_sight::unmounted;
  if (h.own.empty() || h.point.empty()) return;
  std::string_view rest;
  h.sight = relate(h.own, h.root, rest);
  if (h.sight == cgroup_sight::outside) return;
  char folder[900];  // with a file's name it fits a system_path
  const std::size_t size = h.point.size() + rest.size();
  if (size > sizeof folder) {
    h.sight = cgroup_sight::too_long;
    return;
  }
  std::memcpy(folder, h.point.data(), h.point.size());
  if (!rest.empty()) std::memcpy(folder + h.point.size(), rest.data(), rest.size());
  h.folder = intern({folder, size});
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
