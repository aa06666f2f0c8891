// SPDX-License-Identifier: MIT
// Every number is compared with one computed from the list of all events of the domain and of those inside it.
// domain_budget_test.cpp has the limits.
#include <tidemark/core/domain.hpp>
#include <tidemark/hook/global_new.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#if TIDEMARK_HAS_POSIX()
  #include <sys/wait.h>
  #include <unistd.h>
#endif

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

using tidemark::domain;
using tidemark::domain_options;
using tidemark::usage;
using tidemark::window_usage;
using tidemark::detail::domain_window;

namespace {

/// Everything that counts in one domain, and the answers worked out from it.
class history {
 public:
  void allocated(std::int64_t n) { add(true, n); }
  void freed(std::int64_t n) { add(false, n); }
  [[nodiscard]] std::size_t now() const { return events_.size(); }
  [[nodiscard]] std::int64_t live() const { return live_.back(); }

  [[nodiscard]] window_usage since(std::size_t start) const {
    window_usage u;
    u.entry_bytes = u.peak_bytes = live_[start];
    u.exit_bytes = live_.back();
    for (std::size_t i = start; i < events_.size(); ++i) {
      const auto n = static_cast<std::uint64_t>(events_[i].bytes);
      (events_[i].is_allocation ? u.allocations : u.deallocations) += 1;
      (events_[i].is_allocation ? u.allocated_bytes : u.freed_bytes) += n;
      if (events_[i].is_allocation) u.largest_bytes = std::max(u.largest_bytes, n);
      u.peak_bytes = std::max(u.peak_bytes, live_[i + 1]);
    }
    return u;
  }

 private:
  struct event {
    bool is_allocation;
    std::int64_t bytes;
  };
  void add(bool is_allocation, std::int64_t n) {
    events_.push_back({is_allocation, n});
    live_.push_back(live_.back() + (is_allocation ? n : -n));
  }

  std::vector<event> events_;
  std::vector<std::int64_t> live_{0};  // before the first event, and after each
};

bool same(const window_usage& a, const window_usage& b) {
  return a.entry_bytes == b.entry_bytes && a.exit_bytes == b.exit_bytes && a.peak_bytes == b.peak_bytes &&
         a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes &&
         a.largest_bytes == b.largest_bytes && a.counts_events && b.counts_events && a.error_bound_bytes == 0 &&
         b.error_bound_bytes == 0;
}

/// A life is a window from the beginning.
bool same(const usage& life, const window_usage& w) {
  return life.live_bytes == w.exit_bytes && life.peak_bytes == w.peak_bytes &&
         life.live_blocks == static_cast<std::int64_t>(w.allocations) - static_cast<std::int64_t>(w.deallocations) &&
         life.allocations == w.allocations && life.deallocations == w.deallocations &&
         life.allocated_bytes == w.allocated_bytes && life.freed_bytes == w.freed_bytes && life.error_bound_bytes == 0;
}

bool same(const usage& a, const usage& b) {
  return a.live_bytes == b.live_bytes && a.peak_bytes == b.peak_bytes && a.live_blocks == b.live_blocks &&
         a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

constexpr std::size_t no_parent = SIZE_MAX;

/// Domains inside each other, each with its history by the book.
class tree {
 public:
  struct member {
    domain d;
    std::size_t parent;
    history past;
    std::int64_t own = 0;  // fed here, and not further in
  };

  void add(std::string name, std::size_t parent) {
    domain_options options;
    options.parent = parent == no_parent ? nullptr : &at(parent).d;
    members_.push_back(std::make_unique<member>(member{domain(std::move(name), options), parent, {}}));
  }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] member& at(std::size_t i) { return *members_[i]; }

  /// One event, in the book.
  void note(std::size_t i, bool is_allocation, std::int64_t n) {
    at(i).own += is_allocation ? n : -n;
    for (; i != no_parent; i = at(i).parent) is_allocation ? at(i).past.allocated(n) : at(i).past.freed(n);
  }

 private:
  std::vector<std::unique_ptr<member>> members_;
};

/// A root, two inside it, one further in, and one apart.
void plant(tree& all) {
  all.add("root", no_parent);
  all.add("left", 0);
  all.add("right", 0);
  all.add("leaf", 1);
  all.add("apart", no_parent);
}

struct open_window {
  std::unique_ptr<domain_window> node = std::make_unique<domain_window>();
  std::size_t of = 0;
  std::size_t start = 0;
};

std::int64_t some_size(dice& d) {
  const auto small = static_cast<std::int64_t>(d.below(50));  // 0 is a size too
  return d.below(20) == 0 ? (small + 1) << 40 : small;
}

}  // namespace

// First, while there are few domains whose pages a fork copies.
// ThreadSanitizer does not follow a process with threads through a fork.
#if TIDEMARK_HAS_POSIX() && !TIDEMARK_HAS_TSAN()

namespace {

/// What must hold in a child: every domain can be used, and counts. Returns what does not hold, or 0.
int use_all(std::vector<domain>& all, domain& root) {
  domain_options options;
  options.parent = &root;
  domain made("made in the child", options);
  for (domain& d : all) {
    const usage before = d.current();
    domain_window w;
    d.node().open(w);
    d.allocated(1'000);
    const usage with = d.current();
    d.freed(1'000);
    const window_usage u = d.node().close(w);
    if (with.live_bytes - before.live_bytes != 1'000) return 1;
    if (u.entry_bytes != before.live_bytes || u.net_bytes() != 0 || u.peak_growth() != 1'000) return 2;
    d.limit(with.live_bytes);
    d.limit(-1);
  }
  const std::int64_t before = root.current().live_bytes;
  made.allocated(5);
  if (root.current().live_bytes - before != 5) return 3;
  made.freed(5);
  const std::vector<domain> listed = tidemark::domains();
  for (const domain& d : all) {
    if (std::find(listed.begin(), listed.end(), d) == listed.end()) return 4;
  }
  return std::find(listed.begin(), listed.end(), made) == listed.end() ? 5 : 0;
}

}  // namespace

TEST_CASE("a child forked while 4 threads feed domains inside each other can use them all") {
  tree planted;
  plant(planted);
  std::vector<domain> all;
  for (std::size_t i = 0; i < planted.size(); ++i) all.push_back(planted.at(i).d);
  // With many windows a reading holds the lock for long: forks come while it is held.
  std::vector<std::unique_ptr<domain_window>> windows;
  for (int i = 0; i < 500; ++i) {
    windows.push_back(std::make_unique<domain_window>());
    all.back().node().open(*windows.back());
  }
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::vector<std::thread> feeders;
  for (std::size_t i = 0; i < 4; ++i) {
    feeders.emplace_back([&, i] {
      dice d(i);
      while (!stop.load()) {
        // One has the last to itself, and holds its lock most of the time; the others wait for each other.
        domain& fed = i == 0 ? all.back() : all[d.below(all.size() - 1)];
        const auto n = static_cast<std::int64_t>(d.below(100));
        fed.allocated(n);
        static_cast<void>(fed.current());
        fed.freed(n);
        rounds.fetch_add(1);
        if (i != 0 || d.below(64) == 0) std::this_thread::yield();
      }
    });
  }
  while (rounds.load() < 100) std::this_thread::yield();
  int bad = 0;
  for (int i = 0; i < 100 && bad == 0; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // a lock that nobody gives back
      ::_exit(use_all(all, all[0]));
    }
    int status = -1;
    const bool is_over = child > 0 && ::waitpid(child, &status, 0) == child;
    if (!is_over || status != 0) ++bad;
  }
  stop.store(true);
  for (std::thread& t : feeders) t.join();
  CHECK(bad == 0);
  for (const auto& w : windows) static_cast<void>(w->node->close(*w));
  for (const domain& d : all) CHECK(d.current().live_bytes == 0);
}

#endif

TEST_CASE("domains inside each other, and windows over them, equal the history whatever order they close in") {
  std::uint64_t compared = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t trace = 0; trace < 1'000; ++trace) {
    CAPTURE(trace);
    dice d(trace);
    tree all;
    for (std::uint64_t i = 0, n = 1 + d.below(5); i < n; ++i) {
      all.add("traced " + std::to_string(i), i == 0 || d.below(4) == 0 ? no_parent : d.below(i));
    }
    std::vector<open_window> windows;
    const auto close_one = [&] {
      const auto at = static_cast<std::ptrdiff_t>(d.below(windows.size()));
      const open_window w = std::move(windows[static_cast<std::size_t>(at)]);
      windows.erase(windows.begin() + at);
      tree::member& m = all.at(w.of);
      CHECK(same(m.d.node().close(*w.node), m.past.since(w.start)));
      ++compared;
    };
    for (std::uint64_t step = 0, steps = 1 + d.below(250); step < steps; ++step) {
      const std::size_t i = d.below(all.size());
      tree::member& m = all.at(i);
      const std::uint64_t x = d.below(100);
      if (x < 40) {
        const std::int64_t n = some_size(d);
        m.d.allocated(n);
        all.note(i, true, n);
      } else if (x < 65) {
        const auto n = static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(m.own) + 1));
        m.d.freed(n);
        all.note(i, false, n);
      } else if (x < 70) {
        // Also where those inside it hold enough.
        CHECK(!m.d.node().try_freed(m.own + 1 + some_size(d)));
        ++refused;
      } else if (x < 80) {
        open_window w;
        w.of = i;
        w.start = m.past.now();
        m.d.node().open(*w.node);
        windows.push_back(std::move(w));
      } else if (x < 90 && !windows.empty()) {
        close_one();
      } else {
        CHECK(same(m.d.node().whole_life(), m.past.since(0)));
        CHECK(same(m.d.current(), m.past.since(0)));
      }
    }
    while (!windows.empty()) close_one();
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(same(all.at(i).d.current(), all.at(i).past.since(0)));
      CHECK(same(all.at(i).d.node().whole_life(), all.at(i).past.since(0)));
    }
  }
  CHECK(compared > 10'000);
  CHECK(refused > 5'000);
}

TEST_CASE("a window knows nothing of what was before it, and its largest block is its own") {
  const domain d("windowed");
  domain feeding = d;
  feeding.allocated(1'000);
  domain_window w;
  d.node().open(w);
  feeding.freed(900);
  feeding.allocated(30);
  feeding.allocated(20);
  const window_usage u = d.node().close(w);
  CHECK(u.entry_bytes == 1'000);
  CHECK(u.exit_bytes == 150);
  CHECK(u.peak_bytes == 1'000);
  CHECK(u.largest_bytes == 30);
  CHECK(u.allocations == 2);
  CHECK(u.deallocations == 1);
  CHECK(u.allocated_bytes == 50);
  CHECK(u.freed_bytes == 900);
}

namespace {

constexpr bool is_slow = TIDEMARK_HAS_TSAN();

/// `one_at_a_time`: an event and its note in the book are one step, so that the book is exact at every moment.
void run_threads(std::size_t threads, bool one_at_a_time) {
  CAPTURE(threads);
  CAPTURE(one_at_a_time);
  tree all;
  plant(all);
  std::mutex turns;
  std::vector<open_window> windows(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all.at(i).d.node().open(*windows[i].node);

  struct share {
    std::vector<std::pair<std::size_t, std::int64_t>> blocks;
    std::vector<std::int64_t> live, peak;  // of each domain, this thread's part
    std::vector<std::uint64_t> allocations, deallocations, allocated, freed;
  };
  std::vector<share> shares(threads);
  barrier start(threads + 1);
  std::atomic<std::size_t> running{threads};
  const auto work = [&](std::size_t self) {
    share& mine = shares[self];
    mine.live.assign(all.size(), 0);
    mine.peak = mine.live;
    mine.allocations.assign(all.size(), 0);
    mine.deallocations = mine.allocated = mine.freed = mine.allocations;
    const auto note = [&](std::size_t of, bool is_allocation, std::int64_t n) {
      for (std::size_t i = of; i != no_parent; i = all.at(i).parent) {
        mine.live[i] += is_allocation ? n : -n;
        mine.peak[i] = std::max(mine.peak[i], mine.live[i]);
        (is_allocation ? mine.allocations : mine.deallocations)[i] += 1;
        (is_allocation ? mine.allocated : mine.freed)[i] += static_cast<std::uint64_t>(n);
      }
      if (one_at_a_time) all.note(of, is_allocation, n);
    };
    dice d(self * 100 + threads);
    start.arrive_and_wait();
    for (int i = 0; i < (is_slow ? 500 : one_at_a_time ? 4'000 : 50'000); ++i) {
      std::unique_lock<std::mutex> turn(turns, std::defer_lock);
      if (one_at_a_time) turn.lock();
      if (mine.blocks.empty() || d.below(100) < 52) {
        const std::size_t of = d.below(all.size());
        const auto n = static_cast<std::int64_t>(d.below(5'000));
        all.at(of).d.allocated(n);
        note(of, true, n);
        mine.blocks.emplace_back(of, n);
      } else {
        std::swap(mine.blocks.back(), mine.blocks[d.below(mine.blocks.size())]);
        const auto [of, n] = mine.blocks.back();
        mine.blocks.pop_back();
        all.at(of).d.freed(n);
        note(of, false, n);
      }
    }
    running.fetch_sub(1);
  };
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) workers.emplace_back(work, i);
  start.arrive_and_wait();

  // Meanwhile others look: at the whole, and through windows of their own.
  std::vector<std::int64_t> seen(all.size(), 0);
  dice d(threads);
  bool is_ordered = true;
  bool is_exact = true;
  while (running.load() > 0) {
    const std::size_t i = d.below(all.size());
    tree::member& m = all.at(i);
    open_window w;
    {
      std::unique_lock<std::mutex> turn(turns, std::defer_lock);
      if (one_at_a_time) turn.lock();
      const usage u = m.d.current();
      is_ordered = is_ordered && u.peak_bytes >= u.live_bytes && u.peak_bytes >= seen[i] && u.live_bytes >= 0 &&
                   u.live_bytes == static_cast<std::int64_t>(u.allocated_bytes - u.freed_bytes);
      seen[i] = std::max(seen[i], u.live_bytes);
      m.d.node().open(*w.node);
      w.start = m.past.now();
    }
    std::this_thread::yield();
    std::unique_lock<std::mutex> turn(turns, std::defer_lock);
    if (one_at_a_time) turn.lock();
    const window_usage u = m.d.node().close(*w.node);
    is_ordered = is_ordered && u.peak_bytes >= u.entry_bytes && u.peak_bytes >= u.exit_bytes &&
                 u.net_bytes() == static_cast<std::int64_t>(u.allocated_bytes - u.freed_bytes);
    if (one_at_a_time) is_exact = is_exact && same(u, m.past.since(w.start));
  }
  for (std::thread& t : workers) t.join();
  CHECK(is_ordered);
  CHECK(is_exact);

  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    usage sum;
    for (const share& s : shares) {
      sum.live_bytes += s.live[i];
      sum.peak_bytes += s.peak[i];  // at different moments: no less than the true one
      sum.allocations += s.allocations[i];
      sum.deallocations += s.deallocations[i];
      sum.allocated_bytes += s.allocated[i];
      sum.freed_bytes += s.freed[i];
    }
    const usage u = all.at(i).d.current();
    CHECK(u.live_bytes == sum.live_bytes);
    CHECK(u.allocations == sum.allocations);
    CHECK(u.deallocations == sum.deallocations);
    CHECK(u.allocated_bytes == sum.allocated_bytes);
    CHECK(u.freed_bytes == sum.freed_bytes);
    CHECK(u.peak_bytes >= seen[i]);
    CHECK(u.peak_bytes <= sum.peak_bytes);
    const window_usage w = all.at(i).d.node().close(*windows[i].node);
    CHECK(same(u, w));
    if (one_at_a_time) {
      CHECK(same(w, all.at(i).past.since(0)));
    }
  }
}

}  // namespace

TEST_CASE("fed by 2 to 8 threads, the sums are exact and no reading is above the peak") {
  for (std::size_t threads = 2; threads <= 8; ++threads) run_threads(threads, false);
}

TEST_CASE("fed by 2 to 8 threads in turn, windows and peaks are exact at every moment") {
  for (std::size_t threads = 2; threads <= 8; ++threads) run_threads(threads, true);
}

TEST_CASE("copies of a handle are the same account") {
  domain a("weights");
  const domain b = a;
  domain c("other");
  CHECK(a == b);
  CHECK(a != c);
  c.allocated(7);
  const domain other = c;
  c = a;
  CHECK(c == a);
  c.allocated(100);
  CHECK(a.current().live_bytes == 100);
  CHECK(b.current().live_bytes == 100);
  CHECK(other.current().live_bytes == 7);
  CHECK(c.name() == "weights");
  const domain& same_one = c;
  c = same_one;
  CHECK(c == a);
  CHECK(c.name() == "weights");
  a.limit(200);
  CHECK(b.limit() == 200);
  domain moved = std::move(c);
  CHECK(moved == a);
  moved.freed(100);
  CHECK(a.current().live_bytes == 0);
}

TEST_CASE("two domains of one name are two accounts") {
  domain a("twin");
  const domain b("twin");
  CHECK(a != b);
  a.allocated(5);
  CHECK(b.current().live_bytes == 0);
  CHECK(b.current().allocations == 0);
  a.freed(5);
}

TEST_CASE("the account of a fresh domain is all zeros, and it has no limit") {
  const domain d("fresh");
  CHECK(same(d.current(), usage{}));
  CHECK(d.current().error_bound_bytes == 0);
  CHECK(d.limit() == -1);
  CHECK(!d.is_external());
}

TEST_CASE("what is in an external domain is external too") {
  domain_options options;
  options.external = true;
  domain device("device 0", options);
  CHECK(device.is_external());
  options.external = false;
  options.parent = &device;
  CHECK(domain("kv cache", options).is_external());
}

namespace {

std::vector<std::string> names_from(std::string_view prefix) {
  std::vector<std::string> names;
  for (const domain& d : tidemark::domains()) {
    if (std::string_view(d.name()).substr(0, prefix.size()) == prefix) names.push_back(d.name());
  }
  return names;
}

}  // namespace

TEST_CASE("domains() lists those that have a handle and those that hold bytes, in the order of their making") {
  using names = std::vector<std::string>;
  const domain a("listed a");
  std::optional<domain> b(std::in_place, "listed b");
  std::optional<domain> c(std::in_place, "listed c");
  domain d("listed d");
  CHECK(names_from("listed") == names{"listed a", "listed b", "listed c", "listed d"});
  const domain again = *b;
  b.reset();
  CHECK(names_from("listed") == names{"listed a", "listed b", "listed c", "listed d"});
  tidemark::detail::domain_node& kept = c->node();
  c->allocated(10);
  c.reset();
  CHECK(names_from("listed") == names{"listed a", "listed b", "listed c", "listed d"});
  CHECK(kept.try_freed(4));
  CHECK(names_from("listed").size() == 4);
  CHECK(kept.try_freed(6));
  CHECK(names_from("listed") == names{"listed a", "listed b", "listed d"});
  d = again;
  CHECK(names_from("listed") == names{"listed a", "listed b"});

  // What is found is a handle like any other.
  std::optional<domain> found;
  for (const domain& one : tidemark::domains()) {
    if (one == again) found = one;
  }
  REQUIRE(found.has_value());
  found->allocated(3);
  CHECK(again.current().live_bytes == 3);
  found->freed(3);
}

TEST_CASE("a domain without a handle is listed while one inside it holds bytes") {
  std::optional<domain> outer(std::in_place, "outlived outer");
  domain_options options;
  options.parent = &*outer;
  domain inner("outlived inner", options);
  outer.reset();
  CHECK(names_from("outlived") == std::vector<std::string>{"outlived inner"});
  inner.allocated(1);
  CHECK(names_from("outlived") == std::vector<std::string>{"outlived outer", "outlived inner"});
  inner.freed(1);
  CHECK(names_from("outlived") == std::vector<std::string>{"outlived inner"});
}

TEST_CASE("the default domain is one and the same, and stays listed") {
  const std::size_t before = names_from("default").size();
  { static_cast<void>(tidemark::default_domain()); }
  CHECK(tidemark::default_domain() == tidemark::default_domain());
  CHECK(tidemark::default_domain().name() == "default");
  CHECK(tidemark::default_domain().limit() == -1);
  CHECK(names_from("default") == std::vector<std::string>{"default"});
  CHECK(before <= 1);
  CHECK(domain("default") != tidemark::default_domain());
  domain d = tidemark::default_domain();
  d.allocated(8);
  CHECK(tidemark::default_domain().current().live_bytes == 8);
  d.freed(8);
}

TEST_CASE("the default domain is made once, by whichever of 8 threads comes first") {
  barrier start(8);
  std::vector<std::optional<domain>> found(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      found[i] = tidemark::default_domain();
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& d : found) CHECK(*d == tidemark::default_domain());
  CHECK(names_from("default").size() == 1);
}

TEST_CASE("domains are made, listed and dropped by 8 threads at a time") {
  barrier start(8);
  std::vector<std::thread> threads;
  std::atomic<int> missing{0};
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      for (int round = 0; round < 20; ++round) {
        domain mine("made " + std::to_string(i));
        mine.allocated(1);
        const std::vector<domain> all = tidemark::domains();
        if (std::find(all.begin(), all.end(), mine) == all.end()) missing.fetch_add(1);
        mine.freed(1);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(missing.load() == 0);
  CHECK(names_from("made").empty());
}

TEST_CASE("names of any kind are kept as they were said") {
  const std::string hostile("a\n\0\x1B[31m\"\\/%", 11);
  const domain d(hostile);
  CHECK(d.name() == hostile);
  CHECK(domain("").name().empty());
  const std::string endless(10'000, 'x');
  const domain e(endless);
  CHECK(e.name() == endless);
  CHECK(e.node().name.size() <= tidemark::detail::name_limit);
}

TEST_CASE("the list of domains is in no number, and feeding allocates nothing") {
  if (tidemark::hook_state() == tidemark::hook_kind::none) return;
  domain d("unheard");
  { static_cast<void>(tidemark::domains()); }
  const usage before = *tidemark::thread_usage();
  { static_cast<void>(tidemark::domains()); }
  d.allocated(100);
  static_cast<void>(d.try_allocated(100));
  static_cast<void>(d.current());
  d.freed(200);
  const usage after = *tidemark::thread_usage();
  CHECK(same(before, after));
}

TEST_CASE("an account takes about the memory that is documented") {
  CHECK(sizeof(tidemark::detail::domain_node) <= 440);
}

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE("a wrong event is refused, and nothing has changed") {
  domain outer("outer");
  domain_options options;
  options.parent = &outer;
  domain inner("inner", options);
  outer.allocated(10);
  inner.allocated(1'000);
  const usage outer_before = outer.current();
  const usage inner_before = inner.current();
  for (const std::int64_t n : {std::int64_t{-1}, std::int64_t{-4'096}, INT64_MIN}) {
    CAPTURE(n);
    CHECK_THROWS_AS(inner.allocated(n), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(inner.try_allocated(n)), std::invalid_argument);
    CHECK_THROWS_AS(inner.freed(n), std::invalid_argument);
  }
  CHECK_THROWS_AS(inner.freed(1'001), std::invalid_argument);
  CHECK_THROWS_AS(inner.freed(INT64_MAX), std::invalid_argument);
  CHECK_THROWS_AS(outer.freed(11), std::invalid_argument);  // of its own it has 10
  CHECK_THROWS_AS(outer.freed(1'010), std::invalid_argument);
  CHECK(same(outer.current(), outer_before));
  CHECK(same(inner.current(), inner_before));
  outer.freed(10);
  inner.freed(1'000);
  CHECK(outer.current().live_bytes == 0);
  CHECK_THROWS_AS(outer.freed(1), std::invalid_argument);
  CHECK(outer.current().deallocations == 2);
}

TEST_CASE("a domain is not made with a wrong limit") {
  domain_options options;
  options.limit_bytes = -2;
  CHECK_THROWS_AS(domain("wrong", options), std::invalid_argument);
  options.limit_bytes = INT64_MIN;
  CHECK_THROWS_AS(domain("wrong", options), std::invalid_argument);
  CHECK(names_from("wrong").empty());
}

#endif

#if TIDEMARK_HAS_POSIX() && !TIDEMARK_HAS_TSAN()  // whose runtime waits by itself
TEST_CASE("a thread that is to be cancelled is not while it waits for a domain") {
  constexpr std::size_t count = 16;
  const domain d("contended");
  pthread_t threads[count];
  struct state {
    domain fed;
    std::atomic<int> busy{0};
  } shared{d, {}};
  for (pthread_t& t : threads) {
    const auto feed = [](void* p) -> void* {
      auto* const s = static_cast<state*>(p);
      s->busy.fetch_add(1);
      for (;;) {
        for (int i = 0; i < 1'000; ++i) {
          s->fed.allocated(1);
          s->fed.freed(1);
        }
        pthread_testcancel();
      }
    };
    REQUIRE(pthread_create(&t, nullptr, feed, &shared) == 0);
  }
  while (shared.busy.load() < static_cast<int>(count)) std::this_thread::yield();
  for (const pthread_t t : threads) pthread_cancel(t);
  for (const pthread_t t : threads) {
    void* end = nullptr;
    pthread_join(t, &end);
    CHECK(end == PTHREAD_CANCELED);
  }
  CHECK(d.current().live_bytes == 0);
}
#endif
