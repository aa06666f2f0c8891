// SPDX-License-Identifier: MIT
// Why sys/limit does not know something, in words for people. They live for ever.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/cgroup_files_linux.hpp>
#include <tidemark/sys/detail/cgroup_linux.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

inline constexpr char no_total[] = "/proc/meminfo has no MemTotal: it ends early, or is another system's";
inline constexpr char no_available[] =
    "/proc/meminfo has no MemAvailable: it ends early, or the kernel is older than 3.14";
inline constexpr char no_own_cgroup[] =
    "the cgroups of this process are not known: /proc/self/cgroup cannot be read, or not whole";
inline constexpr char no_mounts[] = "where cgroups are mounted is not known: /proc/self/mountinfo cannot be read";
inline constexpr char too_deep[] =
    "the cgroups of this process lie deeper than 32 folders: the outermost were left out";
inline constexpr char unused_limit[] = "what is used of a further limit is not known";

/// A file of a memory cgroup.
[[nodiscard]] inline const char* why_unread(int error) noexcept {
  switch (error) {
    case not_asked:
      return "a cgroup's files were not read yet: the process has just been moved, or the limit has just been set";
    case ENOENT:
      return "a cgroup's folder lacks files that say what it uses: is it gone, or another system's?";
    case EACCES:
    case EPERM:
      return "a cgroup's files may not be read: the system does not permit it";
    case EMFILE:
    case ENFILE:
      return "a cgroup's files cannot be read: no file descriptor is left";
    case EBADMSG:
      return "a cgroup's file holds no number where one belongs: it ends early, or is another system's";
    default:
      return "a cgroup's files cannot be read";
  }
}

[[nodiscard]] inline const char* why_no_kills(bool has_cgroup, int error) noexcept {
  if (!has_cgroup) return "no memory cgroup is seen, and only they count what was killed";
  if (error == EBADMSG) return "the cgroup's file has no oom_kill: it ends early, or the kernel is older than 4.13";
  if (error == ENOENT) return "the cgroup's folder has no file that counts what was killed";
  return why_unread(error);
}

[[nodiscard]] inline const char* why_no_high(bool has_cgroup_v2) noexcept {
  return has_cgroup_v2 ? "no cgroup of this process throttles it: memory.high is max, or cannot be read"
                       : "no memory cgroup of version 2 is seen, and others do not throttle";
}

[[nodiscard]] inline const char* why_no_process(int error) noexcept {
  switch (error) {
    case 0:
      return "/proc/self/status lacks VmSize or VmData: it ends early, or is another system's";
    case EMFILE:
    case ENFILE:
      return "/proc/self/status cannot be read: no file descriptor is left";
    default:
      return "/proc/self/status cannot be read: is /proc mounted?";
  }
}

[[nodiscard]] inline const char* why_no_pressure(int error) noexcept {
  switch (error) {
    case not_asked:
      return "who waits for memory was not asked yet: the process has just been moved";
    case ENOENT:
    case EOPNOTSUPP:
      return "neither the cgroup nor /proc/pressure says: the kernel measures pressure from 4.20 on, with psi=1";
    case EBADMSG:
      return "/proc/pressure/memory holds no averages: it ends early, or is another system's";
    case EMFILE:
    case ENFILE:
      return "/proc/pressure/memory cannot be read: no file descriptor is left";
    default:
      return "/proc/pressure/memory cannot be read: the system does not permit it";
  }
}

/// Null where the way up to the mount point is seen.
[[nodiscard]] inline const char* why_not_in(cgroup_sight sight) noexcept {
  switch (sight) {
    case cgroup_sight::none:
    case cgroup_sight::whole:
      return nullptr;
    case cgroup_sight::unmounted:
      return "the cgroups of this process are not mounted here, and their limits not seen";
    case cgroup_sight::outside:
      return "this process's cgroup is outside of what is mounted here, and its limits are not seen";
    case cgroup_sight::too_long:
      return "the path of this process's cgroup is longer than 900 bytes, and its limits are not seen";
    case cgroup_sight::partial:
      return "cgroups between the mount point and this process's namespace have no names here, and their limits are "
             "not seen";
  }
  return nullptr;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
