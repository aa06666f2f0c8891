// SPDX-License-Identifier: MIT
// Memory figures in Google Benchmark: one line in a benchmark adds them to the console, the JSON and the CSV alike.
//
//   void bm_tokenize(benchmark::State& state) {
//     const std::string text = read_text();
//     const tidemark::bridge::memory_counters memory(state);  // directly before the loop
//     for (auto _ : state) tokenize(text);
//   }
//   BENCHMARK(bm_tokenize)->Threads(4);
//
//   const tidemark::bridge::memory_registration registered;  // optional: the library's own memory fields in the JSON
//
// The program needs a heap hook. Tested with Google Benchmark 1.7.1. Written for 1.5 to 1.9 from their public sources:
// unverified with any but 1.7.1.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/core/usage.hpp>
#include <tidemark/scope/meter/process_heap.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace gbench {

// ---- what differs between versions of Google Benchmark ----

// Functions since 1.6, members before.
template <class State>
[[nodiscard]] auto thread_count(const State& s, int) -> decltype(static_cast<int>(s.threads())) {
  return s.threads();
}
template <class State>
[[nodiscard]] int thread_count(const State& s, long) {
  return s.threads;
}

// A run is also skipped without an error since 1.8.
template <class State>
[[nodiscard]] auto is_skipped(const State& s, int) -> decltype(static_cast<bool>(s.skipped())) {
  return s.skipped();
}
template <class State>
[[nodiscard]] bool is_skipped(const State& s, long) {
  return s.error_occurred();
}

// What TombstoneValue is where there is one. Itself it is no symbol of a shared library of 1.7.1.
inline constexpr std::int64_t not_set = INT64_MAX;

// Two fields are there since 1.6.1.
template <class Result>
auto set_totals(Result& r, std::int64_t allocated, std::int64_t net, int) -> decltype(void(r.total_allocated_bytes)) {
  r.total_allocated_bytes = allocated;
  r.net_heap_growth = net;
}
template <class Result>
void set_totals(Result&, std::int64_t, std::int64_t, long) {}

/// How a window's balance moved.
struct growth {
  std::int64_t net;
  std::int64_t peak;
  std::int64_t peak_error_bound;
};

/// Sums of events are exact also where several threads ran, whose balances are known within a bound only. So net is
/// taken from them, and they narrow the peak: it is no lower than net, and no higher than what was allocated.
[[nodiscard]] inline growth growth_of(const window_usage& u) noexcept {
  const auto allocated = static_cast<std::int64_t>(u.allocated_bytes);
  const std::int64_t net = allocated - static_cast<std::int64_t>(u.freed_bytes);
  const std::int64_t least = net > 0 ? net : 0;
  growth g{net, u.peak_growth(), 2 * u.error_bound_bytes};  // the entry's and the peak's
  if (g.peak > allocated) g.peak = allocated;
  if (g.peak < least) g.peak = least;
  if (g.peak_error_bound > allocated - least) g.peak_error_bound = allocated - least;
  return g;
}

inline namespace TIDEMARK_TAG {

/// Registry of the one run that is going on: Google Benchmark runs one benchmark at a time. Its window begins when the
/// last of its threads has arrived, and ends when the first leaves: the library lets no thread into the loop before all
/// are at its door, and none out before all are through. So nothing waits here, and no thread's set-up is inside.
class TIDEMARK_EXPORT current_run {
 public:
  static constexpr std::uint64_t key = registry_key("benchmark run");

  void arrive(int threads) noexcept {
    const spin_guard held(lock_);
    if (inside_++ == 0) arrived_ = 0;
    ++arrived_;
    // The library's run for a memory manager has one thread, whatever the state says.
    expected_ = is_for_manager_ ? 1 : threads;
    if (arrived_ == expected_) window_.emplace();
  }

  struct departure {
    std::optional<reading<window_usage>> usage;  // of the thread that closed the window
    int missing = 0;                             // threads that never arrived, where no window was opened
    int expected = 0;
  };
  [[nodiscard]] departure leave() {
    const spin_guard held(lock_);
    departure d;
    if (window_) {
      d.usage = window_->close();
      window_.reset();
      if (is_for_manager_) of_manager_ = *d.usage;
    }
    if (--inside_ == 0 && arrived_ < expected_) d.missing = expected_ - arrived_;
    d.expected = expected_;
    return d;
  }

  void begin_for_manager() noexcept {
    const spin_guard held(lock_);
    is_for_manager_ = true;
    of_manager_.reset();
  }
  /// What the loop of that run took, where it had a `memory_counters`.
  [[nodiscard]] std::optional<reading<window_usage>> end_for_manager() {
    const spin_guard held(lock_);
    is_for_manager_ = false;
    return of_manager_;
  }

  /// Whether this is the first time that it is said.
  [[nodiscard]] bool is_news() noexcept {
    const spin_guard held(lock_);
    const bool is_first = !has_said_;
    has_said_ = true;
    return is_first;
  }

  void on_fork(fork_moment moment) noexcept {
    if (moment == fork_moment::before) {
      lock_.lock();
    } else {
      lock_.unlock();
    }
  }

 private:
  spin_lock lock_;
  int arrived_ = 0;
  int inside_ = 0;
  int expected_ = 0;
  bool is_for_manager_ = false;
  bool has_said_ = false;
  std::optional<meter::process_heap::window> window_;
  std::optional<reading<window_usage>> of_manager_;
};

/// Says once in a program why its benchmarks go without memory figures. Nothing, where that was asked for.
inline void say_why_not([[maybe_unused]] std::string_view why) noexcept {
#if !TIDEMARK_OPT_DISABLE
  current_run* run = registry<current_run>();
  if (run == nullptr || run->is_news()) os::say("benchmarks run without memory figures: ", why);
#endif
}

}  // namespace TIDEMARK_TAG
}  // namespace gbench
}  // namespace detail

namespace bridge {
inline namespace TIDEMARK_TAG {

/// Adds what a benchmark's loop allocates to `state.counters`, from which every reporter writes it:
///
///   allocs/iter        allocations of all threads, divided by the iterations of all threads; exact
///   bytes/iter         the same for the bytes allocated; exact
///   net_bytes          allocated minus freed bytes of the whole loop: what stays, over all its iterations; exact
///   peak_bytes         the most that the process had live in the loop above the start; not a sum of threads' peaks
///   peak_error_bound   peak_bytes is off by at most this; 0 where one thread ran
///
/// Make one directly before the loop, in every thread. It counts until its end: what is declared after it ends before
/// it. The figures are the process's: threads that the benchmark starts are in them, and so are any others. PauseTiming
/// stops the clock and not the count: see `untimed`. What the library allocates is outside, but for what
/// --benchmark_perf_counters may have it store at the end of the loop. Without a hook there are no counters, the timing
/// is as ever, and the reason is said once on the standard error. The CSV reporter aborts (1.7.1 as Debian builds it)
/// at counters that the first benchmark it runs has not.
/// Threads: begins and ends on the benchmark's. Cost: outside the time of the loop.
class [[nodiscard]] memory_counters {
 public:
  explicit memory_counters(::benchmark::State& state) noexcept : state_(state) {
#if !TIDEMARK_OPT_DISABLE
    run_ = detail::registry<detail::gbench::current_run>();
    if (run_ != nullptr) run_->arrive(detail::gbench::thread_count(state, 0));
#endif
  }
  ~memory_counters() {
    const quiet map_and_names;
#if TIDEMARK_HAS_EXCEPTIONS()
    try {
      leave();
    } catch (...) {
      detail::gbench::say_why_not("no memory is left for the counters");
    }
#else
    leave();
#endif
  }
  memory_counters(const memory_counters&) = delete;
  memory_counters& operator=(const memory_counters&) = delete;

 private:
  void leave() {
    if (run_ == nullptr) return;
    const auto left = run_->leave();
    // The library sums each counter over the threads: the one that closed the window has the figures of all.
    if (left.usage) {
      add(*left.usage);
    } else if (left.missing > 0 && !detail::gbench::is_skipped(state_, 0)) {
      char why[160];
      std::snprintf(
          why, sizeof why,
          "%d of the %d threads of a benchmark made no memory_counters: make one in every thread, before the loop",
          left.missing, left.expected);
      detail::gbench::say_why_not(why);
    }
  }

  void add(const reading<window_usage>& usage) {
    if (!usage) return detail::gbench::say_why_not(usage.why());
    const detail::gbench::growth moved = detail::gbench::growth_of(*usage);
    using counter = ::benchmark::Counter;
    const auto put = [this](const char* name, auto figure, counter::Flags flags, counter::OneK thousand) {
      state_.counters[name] = counter(static_cast<double>(figure), flags, thousand);
    };
    put("allocs/iter", usage->allocations, counter::kAvgIterations, counter::kIs1000);
    put("bytes/iter", usage->allocated_bytes, counter::kAvgIterations, counter::kIs1024);
    put("net_bytes", moved.net, counter::kDefaults, counter::kIs1024);
    put("peak_bytes", moved.peak, counter::kDefaults, counter::kIs1024);
    put("peak_error_bound", moved.peak_error_bound, counter::kDefaults, counter::kIs1024);
  }

  ::benchmark::State& state_;
  detail::gbench::current_run* run_ = nullptr;
};

/// Set-up inside the loop: neither timed nor counted. What is allocated meanwhile is never counted, whoever frees it
/// and when; what the loop allocated and this frees is subtracted.
///
///   for (auto _ : state) {
///     std::optional<tidemark::bridge::untimed> set_up(state);
///     std::vector<int> input = make_input();
///     set_up.reset();
///     sort(input);
///   }
class [[nodiscard]] untimed {
 public:
  explicit untimed(::benchmark::State& state) : state_(state) {
    if (!detail::gbench::is_skipped(state_, 0)) state_.PauseTiming();  // a skipped run has no clock
  }
  ~untimed() {
    if (!detail::gbench::is_skipped(state_, 0)) state_.ResumeTiming();
  }
  untimed(const untimed&) = delete;
  untimed& operator=(const untimed&) = delete;

 private:
  quiet quiet_;  // around the library's own calls
  ::benchmark::State& state_;
};

/// What Google Benchmark asks for the memory fields of its JSON, in a run of its own of at most 16 iterations on one
/// thread: num_allocs, max_bytes_used (the peak above the start), total_allocated_bytes, net_heap_growth. Where the
/// benchmark has a `memory_counters` they are those of its loop; otherwise everything that the run allocates is in
/// them, the library's own included (1.7.1: one block of 400 bytes). A figure that cannot be had is `TombstoneValue`,
/// never 0.
class memory_manager : public ::benchmark::MemoryManager {
 public:
  // No `override`: which Stop is virtual, and whether both are, depends on the version.
  void Start() {
#if !TIDEMARK_OPT_DISABLE
    if (auto* run = detail::registry<detail::gbench::current_run>()) run->begin_for_manager();
#endif
    window_.emplace();
  }

  /// Called since 1.8; before 1.6.1 there is no such function to override.
  void Stop(Result& result) {
    reading<window_usage> usage = window_ ? window_->close() : reading<window_usage>::absent("Stop without Start");
    window_.reset();
#if !TIDEMARK_OPT_DISABLE
    if (auto* run = detail::find_registry<detail::gbench::current_run>()) {
      if (const auto of_loop = run->end_for_manager()) usage = *of_loop;
    }
#endif
    fill(result, usage);
  }
  void Stop(Result* result) { Stop(*result); }

 private:
  static void fill(Result& result, const reading<window_usage>& usage) {
    if (!usage) {
      constexpr std::int64_t unknown = detail::gbench::not_set;
      result.num_allocs = unknown;
      result.max_bytes_used = unknown;
      detail::gbench::set_totals(result, unknown, unknown, 0);
      return detail::gbench::say_why_not(usage.why());
    }
    const detail::gbench::growth moved = detail::gbench::growth_of(*usage);
    result.num_allocs = static_cast<std::int64_t>(usage->allocations);
    result.max_bytes_used = moved.peak;
    detail::gbench::set_totals(result, static_cast<std::int64_t>(usage->allocated_bytes), moved.net, 0);
  }

  std::optional<meter::process_heap::window> window_;
};

/// Registers a `memory_manager` while it lives; a global object in any file will do. Without a hook it registers none,
/// says why once on the standard error, and the JSON has no memory fields. A benchmark whose threads wait for each
/// other never ends under any memory manager: its run has one of them.
class [[nodiscard]] memory_registration {
 public:
  memory_registration() {
    if (hook_state() == hook_kind::none) {
      detail::gbench::say_why_not(hook_reason());
    } else {
      ::benchmark::RegisterMemoryManager(&manager_);
      is_registered_ = true;
    }
  }
  ~memory_registration() {
    if (is_registered_) ::benchmark::RegisterMemoryManager(nullptr);
  }
  memory_registration(const memory_registration&) = delete;
  memory_registration& operator=(const memory_registration&) = delete;

 private:
  memory_manager manager_;
  bool is_registered_ = false;
};

}  // namespace TIDEMARK_TAG
}  // namespace bridge
}  // namespace v0
}  // namespace tidemark
