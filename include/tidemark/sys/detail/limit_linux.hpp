// SPDX-License-Identifier: MIT
// The contract of sys/limit on Linux:
//   limit_tracker{}   knows nothing yet
//   t.read_all()      looks at every source
//   t.read_some()     at one file in turn and at the use of the nearest limit: at most nine system calls
//   t.found()         what is known now
// No descriptor is kept, nothing is allocated on the heap, errno is untouched.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/cgroup_files_linux.hpp>
#include <tidemark/sys/detail/figure.hpp>
#include <tidemark/sys/detail/host_figures.hpp>
#include <tidemark/sys/detail/host_linux.hpp>
#include <tidemark/sys/detail/limit_reasons_linux.hpp>
#include <tidemark/sys/detail/memory_cgroups_linux.hpp>
#include <tidemark/sys/detail/process_figures.hpp>
#include <tidemark/sys/detail/small_file_linux.hpp>
#include <tidemark/sys/detail/status_linux.hpp>
#include <tidemark/sys/detail/system_file_linux.hpp>
#include <tidemark/sys/limit_reading.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cstdint>
  #include <string_view>

  #include <sys/resource.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// A limit and what is used of it.
struct known_limit {
  limit_source source = limit_source::none;
  int group = -1;  // which cgroup
  std::int64_t limit = unread;
  std::int64_t used = unread;
  const char* why_not_used = nullptr;

  /// The least room that there can be: a limit whose use is not known leaves at most all of it.
  [[nodiscard]] std::int64_t room() const noexcept { return used < 0 ? limit : limit - used; }
};

class limit_tracker {
 public:
  void read_all() noexcept {
    groups_.find();
    for (int t = 0; t < turns(); ++t) static_cast<void>(take(t));
  }

  void read_some() noexcept {
    bool has_read = false;
    for (int tried = 0; tried < turns() && !has_read; ++tried) {
      const int now = next_ < turns() ? next_ : 0;
      next_ = now + 1;
      has_read = take(now);
    }
    read_use(nearest());
  }

  [[nodiscard]] memory_limit_reading found() const noexcept {
    const known_limit least = nearest();
    const bool has_cgroup = groups_.innermost() != nullptr;
    const char* const why_no_limit = why_no_host_ != nullptr ? why_no_host_ : no_total;
    memory_limit_reading r;
    r.limit_bytes = figure(least.limit, why_no_limit);
    r.used_bytes = figure(least.used, least.limit >= 0 ? least.why_not_used : why_no_limit);
    r.headroom_bytes = least.used >= 0 ? memory_limit_reading::bytes(least.limit - least.used) : r.used_bytes;
    r.source = least.source;
    if (least.group >= 0) r.cgroup = groups_[least.group].folder;
    r.high_bytes = figure(least_high(), why_no_high(has_cgroup && groups_.is_v2()));
    r.oom_kills = figure(kills_.value, why_no_kills(has_cgroup, kills_.error));
    fill_pressure(r);
    if (const char* why = why_not_seen(least)) r.not_seen = why;
    return r;
  }

 private:
  // ---- turns: each reads one file at the most ----

  enum turn : int {  // those that follow the files of the cgroups
    own_cgroups,
    resource_limits,
    process,
    host,
    own_pressure,
    host_pressure,
    kill_count,
    further_turns
  };

  [[nodiscard]] int turns() const noexcept { return groups_.count() * memory_cgroups::files + further_turns; }

  /// False: the turn has nothing to read.
  [[nodiscard]] bool take(int t) noexcept {
    const int files = groups_.count() * memory_cgroups::files;
    if (t < files) return groups_.read(t / memory_cgroups::files, memory_cgroups::file(t % memory_cgroups::files));
    switch (static_cast<turn>(t - files)) {
      case own_cgroups:
        if (groups_.follow()) next_ = 0;
        return true;
      case resource_limits:
        address_limit_ = resource_limit(RLIMIT_AS);
        data_limit_ = resource_limit(RLIMIT_DATA);
        return true;
      case process:
        if (!is_limit(address_limit_) && !is_limit(data_limit_)) return false;
        read_process();
        return true;
      case host:
        why_no_host_ = read_host(host_);
        return true;
      case own_pressure:
        own_pressure_ = groups_.read_own_pressure();
        return own_pressure_.error != not_asked;
      case host_pressure:
        if (own_pressure_.error == 0) return false;
        host_pressure_ = read_pressure(system_path("/proc/pressure/memory"));
        return true;
      case kill_count:
        kills_ = groups_.read_kills();
        return kills_.error != not_asked;
      case further_turns:
        break;
    }
    return false;
  }

  void read_use(const known_limit& l) noexcept {
    switch (l.source) {
      case limit_source::none:
        break;
      case limit_source::cgroup_v2:
      case limit_source::cgroup_v1:
        groups_.read(l.group, memory_cgroups::usage_file);
        groups_.read(l.group, memory_cgroups::stat_file);
        break;
      case limit_source::rlimit_as:
      case limit_source::rlimit_data:
        read_process();
        break;
      case limit_source::host:
        why_no_host_ = read_host(host_);
        break;
    }
  }

  /// In one read: the user's groups, which may be many, come before the sizes.
  void read_process() noexcept {
    virtual_ = data_ = unread;
    small_file<16'384> file(process_file(this_process_id, "status"));
    process_error_ = file.error();
    std::string_view line;
    while (file.next(line)) {
      static_cast<void>(take_kibibytes(line, "VmSize:", virtual_) || take_kibibytes(line, "VmData:", data_));
    }
  }

  template <class Resource>
  [[nodiscard]] static std::int64_t resource_limit(Resource which) noexcept {
    rlimit found{};
    if (::getrlimit(which, &found) != 0) return unread;
    return found.rlim_cur >= std::uint64_t{1} << 62 ? no_limit : static_cast<std::int64_t>(found.rlim_cur);
  }

  // ---- what is nearest ----

  template <class F>
  void for_each_limit(F f) const noexcept {
    const auto offer = [&f](const known_limit& l) {
      if (is_limit(l.limit)) f(l);
    };
    const limit_source of_groups = groups_.is_v2() ? limit_source::cgroup_v2 : limit_source::cgroup_v1;
    for (int i = 0; i < groups_.count(); ++i) {
      const memory_cgroup& g = groups_[i];
      offer({of_groups, i, g.least_limit(), g.used(), g.why_not_used()});
    }
    offer({limit_source::rlimit_as, -1, address_limit_, virtual_, why_no_process(process_error_)});
    offer({limit_source::rlimit_data, -1, data_limit_, data_, why_no_process(process_error_)});
    offer({limit_source::host, -1, host_.total, host_.used(), no_available});
  }

  [[nodiscard]] known_limit nearest() const noexcept {
    known_limit least;
    for_each_limit([&least](const known_limit& l) {
      if (least.source == limit_source::none || l.room() < least.room()) least = l;
    });
    return least;
  }

  [[nodiscard]] std::int64_t least_high() const noexcept {
    std::int64_t least = unread;
    for (int i = 0; i < groups_.count(); ++i) {
      const std::int64_t high = groups_[i].high.value;
      if (is_limit(high) && (least < 0 || high < least)) least = high;
    }
    return least;
  }

  void fill_pressure(memory_limit_reading& r) const noexcept {
    using pressure = memory_limit_reading::pressure;
    r.is_pressure_of_cgroup = own_pressure_.error == 0;
    const bool is_own = r.is_pressure_of_cgroup || host_pressure_.error == not_asked;
    const pressure_figures& p = is_own ? own_pressure_ : host_pressure_;
    const pressure none = pressure::absent_because(why_no_pressure(p.error));
    r.some_pressure = p.error == 0 ? pressure(p.some) : none;
    r.full_pressure = p.error == 0 ? pressure(p.full) : none;
  }

  /// Why a limit other than the one found may be nearer; null where all were looked at.
  [[nodiscard]] const char* why_not_seen(const known_limit& found) const noexcept {
    if (const char* why = groups_.why_not_seen()) return why;
    bool has_unused = false;
    for_each_limit([&](const known_limit& l) {
      const bool is_other = l.source != found.source || l.group != found.group;
      has_unused = has_unused || (is_other && l.used < 0);
    });
    return has_unused ? unused_limit : why_no_host_;
  }

  memory_cgroups groups_;
  std::int64_t address_limit_ = unread;
  std::int64_t data_limit_ = unread;
  std::int64_t virtual_ = unread;
  std::int64_t data_ = unread;
  int process_error_ = not_asked;
  host_figures host_;
  const char* why_no_host_ = nullptr;
  pressure_figures own_pressure_;
  pressure_figures host_pressure_;
  file_figure kills_;
  int next_ = 0;  // turn
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
