// SPDX-License-Identifier: MIT
// Every reading is compared with one computed from the list of all events of the domain and of those inside it.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/meter/domains.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/ring.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "heap_block.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::basic_scope;
using tidemark::domain;
using tidemark::domain_options;
using tidemark::meter_reading;
using tidemark::scope_record;
using tidemark::window_usage;

using domain_scope = basic_scope<meter::domains>;

namespace {

constexpr std::size_t none = SIZE_MAX;

/// Everything that counts in one domain, and the answers worked out from it.
class history {
 public:
  void allocated(std::int64_t n) { add(true, n); }
  void freed(std::int64_t n) { add(false, n); }
  [[nodiscard]] std::size_t now() const { return events_.size(); }
  [[nodiscard]] std::int64_t live() const { return live_.back(); }
  [[nodiscard]] bool was_fed() const {
    return std::any_of(events_.begin(), events_.end(), [](const event& e) { return e.is_allocation; });
  }

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

/// What was fed since the reading's entry, by hand.
bool counts_are(const window_usage& u, std::uint64_t allocations, std::uint64_t allocated, std::uint64_t deallocations,
                std::uint64_t freed) {
  return u.allocations == allocations && u.allocated_bytes == allocated && u.deallocations == deallocations &&
         u.freed_bytes == freed && u.error_bound_bytes == 0 &&
         u.net_bytes() == static_cast<std::int64_t>(allocated) - static_cast<std::int64_t>(freed);
}

std::string names_in(const scope_record& r) {
  std::string all;
  for (const meter_reading& m : r.meters) all += std::string(m.meter) + ' ';
  return all;
}

/// Domains that come and go, the scopes over them, and what is true of both.
class trace {
 public:
  explicit trace(std::uint64_t seed) : random_(seed) {}

  void act() {
    const std::uint64_t x = random_.below(100);
    if (x < 12) {
      make();
    } else if (x < 18) {
      drop_handle();
    } else if (x < 50) {
      feed();
    } else if (x < 74) {
      take_back();
    } else if (x < 86) {
      open();
    } else {
      close();
    }
  }
  void finish() {
    for (open_scope& s : scopes_) {
      if (s.real.index() != 0) close(s);
    }
    for (member& m : members_) {
      while (!m.blocks.empty()) take_back(m);
      m.handle.reset();
    }
  }
  [[nodiscard]] int wrong() const { return wrong_; }
  [[nodiscard]] std::uint64_t readings() const { return readings_; }

 private:
  struct member {
    std::string meter;
    std::optional<domain> handle;
    tidemark::detail::domain_node* node;
    std::size_t parent;
    history past;
    std::vector<std::int64_t> blocks;  // fed here, and not further in

    [[nodiscard]] bool is_alive() const { return handle.has_value() || past.live() != 0; }
  };
  struct any_scope {
    std::optional<domain_scope> alone;
    std::optional<basic_scope<meter::thread_heap, meter::domains>> with_heap;

    [[nodiscard]] std::size_t index() const { return alone ? 1 : with_heap ? 2 : 0; }
  };
  struct open_scope {
    any_scope real;
    std::vector<std::size_t> starts;  // for each member of that time; none: it was dead
  };

  [[nodiscard]] member* any_member() {
    return members_.empty() ? nullptr : &members_[static_cast<std::size_t>(random_.below(members_.size()))];
  }
  void make() {
    if (members_.size() >= 12) return;
    static constexpr const char* names[] = {"weights", "kv cache", "weights", "", "a/b"};
    const std::string name = names[random_.below(5)];
    domain_options options;
    std::size_t parent = none;
    if (!members_.empty() && random_.below(2) == 0) {
      parent = static_cast<std::size_t>(random_.below(members_.size()));
      if (members_[parent].handle.has_value()) {
        options.parent = &*members_[parent].handle;
      } else {
        parent = none;
      }
    }
    options.external = random_.below(4) == 0;
    member m{"domain:" + name, domain(name, options), nullptr, parent, {}, {}};
    m.node = &m.handle->node();
    members_.push_back(std::move(m));
  }
  void drop_handle() {
    if (member* m = any_member()) m->handle.reset();
  }
  void feed() {
    member* m = any_member();
    if (m == nullptr || !m->handle.has_value()) return;
    const auto n = static_cast<std::int64_t>(random_.below(10) == 0 ? 0 : random_.below(100'000));
    m->handle->allocated(n);
    m->blocks.push_back(n);
    for_each_around(*m, [n](member& d) { d.past.allocated(n); });
  }
  void take_back() {
    member* m = any_member();
    if (m != nullptr && !m->blocks.empty()) take_back(*m);
  }
  void take_back(member& m) {
    std::swap(m.blocks.back(), m.blocks[static_cast<std::size_t>(random_.below(m.blocks.size()))]);
    const std::int64_t n = m.blocks.back();
    m.blocks.pop_back();
    wrong_ += m.node->try_freed(n) ? 0 : 1;  // a container does so, with no handle left
    for_each_around(m, [n](member& d) { d.past.freed(n); });
  }
  template <class F>
  void for_each_around(member& m, F f) {
    f(m);
    for (std::size_t i = m.parent; i != none; i = members_[i].parent) f(members_[i]);
  }
  void open() {
    open_scope& s = scopes_[random_.below(scope_places)];
    if (s.real.index() != 0) return;
    s.starts.clear();
    for (const member& m : members_) s.starts.push_back(m.is_alive() ? m.past.now() : none);
    random_.below(2) == 0 ? static_cast<void>(s.real.alone.emplace("alone"))
                          : static_cast<void>(s.real.with_heap.emplace("with the heap"));
  }
  void close() {
    open_scope& s = scopes_[random_.below(scope_places)];
    if (s.real.index() != 0) close(s);
  }
  void close(open_scope& s) {
    if (random_.below(8) == 0) {  // unread
      s.real.alone.reset();
      s.real.with_heap.reset();
      return;
    }
    std::size_t at = s.real.index() - 1;  // after the heap's reading, if there is one
    const scope_record r = s.real.alone ? s.real.alone->close() : s.real.with_heap->close();
    s.real.alone.reset();
    s.real.with_heap.reset();
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const member& m = members_[i];
      const bool is_new = i >= s.starts.size();
      if (is_new ? !m.is_alive() && !m.past.was_fed() : s.starts[i] == none) continue;
      const window_usage expected = m.past.since(is_new ? 0 : s.starts[i]);
      const meter_reading* got = at < r.meters.size() ? &r.meters[at] : nullptr;
      const bool holds = got != nullptr && got->meter == m.meter && got->unit == "bytes" && got->usage.has_value() &&
                         same(*got->usage, expected);
      wrong_ += holds ? 0 : 1;
      ++at;
      ++readings_;
    }
    wrong_ += at == r.meters.size() ? 0 : 1;
  }

  static constexpr std::size_t scope_places = 5;

  dice random_;
  std::vector<member> members_;
  open_scope scopes_[scope_places];
  int wrong_ = 0;
  std::uint64_t readings_ = 0;
};

/// Threads that take turns at one trace, in the same order on every run.
void run_in_turn(trace& t, std::uint64_t seed, std::size_t threads, int turns) {
  std::mutex lock;
  std::condition_variable changed;
  std::size_t turn = 0;
  dice order(seed);
  const auto work = [&](std::size_t self) {
    std::unique_lock<std::mutex> held(lock);
    for (;;) {
      changed.wait(held, [&] { return turn == self || turns == 0; });
      if (turns == 0) return;
      for (int i = 0; i < 8; ++i) t.act();
      --turns;
      turn = static_cast<std::size_t>(order.below(threads));
      changed.notify_all();
    }
  };
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i) all.emplace_back(work, i);
  for (std::thread& thread : all) thread.join();
}

}  // namespace

TEST_CASE("random traces of domains, nested and overlapping scopes agree with brute force") {
  std::uint64_t readings = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    trace t(seed);
    for (int i = 0; i < 150; ++i) t.act();
    t.finish();
    CHECK(t.wrong() == 0);
    readings += t.readings();
  }
  CHECK(readings > 5'000);
}

TEST_CASE("domains and scopes that several threads make, feed, open and close agree with brute force") {
  std::uint64_t readings = 0;
  for (std::uint64_t seed = 1'000; seed < 1'042; ++seed) {
    CAPTURE(seed);
    trace t(seed);
    run_in_turn(t, seed, 2 + seed % 7, 30);
    t.finish();
    CHECK(t.wrong() == 0);
    readings += t.readings();
  }
  CHECK(readings > 2'000);
}

// ---- by hand ----

TEST_CASE("a record has one reading for each domain, by its name") {
  domain weights("weights");
  domain cache("kv cache");
  weights.allocated(1'000);
  domain_scope s("load");
  weights.allocated(500);
  weights.freed(1'000);
  cache.allocated(70);
  const scope_record r = s.close();
  CHECK(names_in(r) == "domain:weights domain:kv cache ");
  const meter_reading* m = r.find("domain:weights");
  REQUIRE(m != nullptr);
  REQUIRE(m->usage.has_value());
  CHECK(m->unit == "bytes");
  const window_usage u = *m->usage;
  CHECK(u.entry_bytes == 1'000);
  CHECK(u.exit_bytes == 500);
  CHECK(u.peak_bytes == 1'500);
  CHECK(u.largest_bytes == 500);
  CHECK(counts_are(u, 1, 500, 1, 1'000));
  CHECK(u.counts_events);
  CHECK(usage_in(r, "domain:kv cache").peak_growth() == 70);
  CHECK(r.find("domain:") == nullptr);
  CHECK(r.find("weights") == nullptr);
  weights.freed(500);
  cache.freed(70);
}

TEST_CASE("a domain counts what is fed to those inside it") {
  domain outer("outer");
  domain_options options;
  options.parent = &outer;
  domain inner("inner", options);
  domain_scope s("nested");
  inner.allocated(300);
  outer.allocated(4);
  inner.freed(300);
  const scope_record r = s.close();
  CHECK(counts_are(usage_in(r, "domain:outer"), 2, 304, 1, 300));
  CHECK(usage_in(r, "domain:outer").peak_growth() == 304);
  CHECK(counts_are(usage_in(r, "domain:inner"), 1, 300, 1, 300));
  outer.freed(4);
}

TEST_CASE("domains of one name have a reading each, the oldest first, and that is the one found by name") {
  domain first("twin");
  domain second("twin");
  domain_scope s("twins");
  std::optional<domain> third(std::in_place, "twin");
  third->allocated(3);
  second.allocated(20);
  first.allocated(100);
  const scope_record r = s.close();
  REQUIRE(names_in(r) == "domain:twin domain:twin domain:twin ");
  CHECK(r.meters[0].usage->net_bytes() == 100);
  CHECK(r.meters[1].usage->net_bytes() == 20);
  CHECK(r.meters[2].usage->net_bytes() == 3);
  CHECK(usage_in(r, "domain:twin").net_bytes() == 100);
  first.freed(100);
  second.freed(20);
  third->freed(3);
}

TEST_CASE("a domain that was made and dropped in the window is in it if it was fed") {
  domain_scope s("passing");
  {
    domain fed("fed");
    fed.allocated(10);
    fed.freed(10);
    const domain unfed("unfed");
  }
  const domain kept("kept");
  const scope_record r = s.close();
  CHECK(names_in(r) == "domain:fed domain:kept ");
  CHECK(counts_are(usage_in(r, "domain:fed"), 1, 10, 1, 10));
  CHECK(usage_in(r, "domain:fed").entry_bytes == 0);
  CHECK(usage_in(r, "domain:fed").peak_bytes == 10);
}

TEST_CASE("a domain that was dead before the window is not in it, one that dies in it is") {
  { domain("dead before").allocated(0); }
  std::optional<domain> dies(std::in_place, "dies");
  dies->allocated(5);
  tidemark::detail::domain_node& node = dies->node();
  domain_scope s("funeral");
  dies.reset();
  CHECK(node.try_freed(5));
  domain_scope after("after");
  CHECK(names_in(after.close()).empty());
  const scope_record r = s.close();
  CHECK(names_in(r) == "domain:dies ");
  CHECK(counts_are(usage_in(r, "domain:dies"), 0, 0, 1, 5));
}

TEST_CASE("a domain without a handle is in the window while a container lives in it") {
  std::optional<domain> named(std::in_place, "held");
  std::vector<char, tidemark::allocator<char>> v(1'000, 'x', *named);
  named.reset();
  domain_scope s("container");
  v.reserve(3'000);
  const scope_record r = s.close();
  CHECK(names_in(r) == "domain:held ");
  CHECK(counts_are(usage_in(r, "domain:held"), 1, 3'000, 1, 1'000));
  CHECK(usage_in(r, "domain:held").peak_bytes == 4'000);
}

TEST_CASE("the domains go with the heap in one scope, and neither disturbs the other") {
  domain d("beside the heap");
  basic_scope<meter::thread_heap, meter::domains> s("both");
  const heap_block b(1'234);
  d.allocated(77);
  d.freed(77);
  CHECK(s.usage().value_or(window_usage{}).net_bytes() == 1'234);
  CHECK(s.usage<meter::thread_heap>().value_or(window_usage{}).allocations == 1);
  const scope_record r = s.close();
  REQUIRE(names_in(r) == "thread_heap domain:beside the heap ");
  CHECK(counts_are(usage_in(r), 1, 1'234, 0, 0));
  CHECK(counts_are(usage_in(r, "domain:beside the heap"), 1, 77, 1, 77));
  CHECK(r.owned_bytes.value_or(-1) == 1'234);

  basic_scope<meter::domains, meter::thread_heap> turned("turned");
  const heap_block c(1);
  const scope_record t = turned.close();
  CHECK(names_in(t) == "domain:beside the heap thread_heap ");
  CHECK(counts_are(usage_in(t), 1, 1, 0, 0));
}

TEST_CASE("without any domain alive a record has no reading of one") {
  domain_scope s("none");
  CHECK(s.close().meters.empty());
}

TEST_CASE("a scope that ends by its destructor delivers its domains to the sinks") {
  const auto ring = std::make_shared<tidemark::ring_sink>(4);
  const auto attached = tidemark::attach(ring);
  domain d("delivered");
  {
    const domain_scope s("delivers");
    d.allocated(9);
  }
  d.freed(9);
  REQUIRE(ring->scopes().size() == 1);
  CHECK(names_in(ring->scopes()[0]) == "domain:delivered ");
  CHECK(counts_are(usage_in(ring->scopes()[0], "domain:delivered"), 1, 9, 0, 0));
}

TEST_CASE("a scope over domains may end on another thread") {
  domain d("travels");
  domain_scope s("travels");
  d.allocated(10);
  scope_record r;
  std::thread([&] {
    d.allocated(5);
    r = s.close();
  }).join();
  CHECK(counts_are(usage_in(r, "domain:travels"), 2, 15, 0, 0));
  d.freed(15);
}

TEST_CASE("2,000 scopes over domains take no more memory than the first, read or not") {
  std::vector<domain> all;
  for (int i = 0; i < 10; ++i) all.emplace_back("many");
  const auto run = [&](int n) {
    for (int i = 0; i < n; ++i) {
      std::optional<domain_scope> outer(std::in_place, "outer");
      domain_scope inner("inner");
      if (i % 2 == 0) outer.reset();
      if (i % 3 == 0) inner.close();
    }
  };
  run(6);
  const std::uint64_t own_bytes = tidemark::self().own_bytes;
  run(2'000);
  CHECK(tidemark::self().own_bytes == own_bytes);
}

TEST_CASE("fed by several threads at once, a window has every event, and its peak is between what is certain") {
  constexpr std::size_t workers = 4;
  constexpr std::uint64_t rounds = 500;
  domain shared("shared");
  barrier all(workers + 1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t self = 0; self < workers; ++self) {
    threads.emplace_back([&, self] {
      domain_options options;
      options.parent = &shared;
      domain own("own " + std::to_string(self), options);
      all.arrive_and_wait();  // all are made
      all.arrive_and_wait();  // the scope is open
      own.allocated(1'000);
      all.arrive_and_wait();  // all have theirs
      for (std::uint64_t i = 0; i < rounds; ++i) {
        domain_scope s("own");
        own.allocated(10);
        shared.allocated(1);
        const scope_record r = s.close();
        own.freed(10);
        shared.freed(1);
        const window_usage u = usage_in(r, own.node().meter);
        const window_usage of_all = usage_in(r, "domain:shared");
        if (!counts_are(u, 1, 10, 0, 0) || u.peak_growth() != 10 || of_all.allocations < 2 ||
            of_all.peak_bytes < static_cast<std::int64_t>(1'000 * workers + 11) ||
            of_all.peak_bytes > static_cast<std::int64_t>(1'011 * workers) ||
            of_all.net_bytes() != static_cast<std::int64_t>(of_all.allocated_bytes - of_all.freed_bytes)) {
          wrong.fetch_add(1);
        }
      }
      all.arrive_and_wait();  // all are through
      own.freed(1'000);
      all.arrive_and_wait();  // all have let go
      all.arrive_and_wait();  // the scope is closed
    });
  }
  all.arrive_and_wait();
  domain_scope s("all");
  all.arrive_and_wait();
  all.arrive_and_wait();
  all.arrive_and_wait();
  all.arrive_and_wait();
  const scope_record r = s.close();
  all.arrive_and_wait();
  for (std::thread& t : threads) t.join();
  CHECK(wrong.load() == 0);
  constexpr std::uint64_t events = workers * (2 * rounds + 1);
  constexpr std::uint64_t bytes = workers * (11 * rounds + 1'000);
  const window_usage u = usage_in(r, "domain:shared");
  CHECK(counts_are(u, events, bytes, events, bytes));
  CHECK(u.peak_growth() >= 1'000 * static_cast<std::int64_t>(workers) + 11);
  CHECK(u.peak_growth() <= 1'011 * static_cast<std::int64_t>(workers));
  CHECK(u.largest_bytes == 1'000);
  CHECK(r.meters.size() == 1 + workers);
  for (std::size_t self = 0; self < workers; ++self) {
    const window_usage own = usage_in(r, "domain:own " + std::to_string(self));
    CHECK(counts_are(own, rounds + 1, 10 * rounds + 1'000, rounds + 1, 10 * rounds + 1'000));
    CHECK(own.peak_growth() == 1'010);
  }
}

TEST_CASE("domains that threads make and drop while others open and close scopes are each read once or never") {
  constexpr std::size_t makers = 3;
  std::atomic<std::size_t> running{makers};
  std::vector<std::thread> threads;
  for (std::size_t self = 0; self < makers; ++self) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        domain d("short");
        d.allocated(8);
        std::this_thread::yield();
        d.freed(8);
      }
      running.fetch_sub(1);
    });
  }
  const domain first("first");
  std::uint64_t wrong = 0;
  bool is_last = false;
  do {
    is_last = running.load() == 0;
    domain_scope s("watch");
    std::this_thread::yield();
    const scope_record r = s.close();
    std::size_t firsts = 0;
    for (const meter_reading& m : r.meters) {
      if (m.meter == "domain:first") {
        ++firsts;
      } else {
        const window_usage u = m.usage.value_or(window_usage{});
        wrong += m.meter == "domain:short" && m.usage.has_value() && u.allocations <= 1 && u.deallocations <= 1 &&
                         u.peak_bytes <= 8 && u.peak_bytes >= u.entry_bytes && u.peak_bytes >= u.exit_bytes
                     ? 0U
                     : 1U;
      }
    }
    wrong += firsts == 1 ? 0U : 1U;
  } while (!is_last);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  domain_scope s("quiet");
  CHECK(names_in(s.close()) == "domain:first ");
}

TEST_CASE("a window over domains goes on in a fork child, and the parent's does not notice") {
  domain d("forked");
  domain_scope s("across");
  d.allocated(100);
  const pid_t child = ::fork();
  if (child == 0) {
    domain made_there("made there");
    made_there.allocated(1);
    d.allocated(20);
    const scope_record r = s.close();
    const bool holds = names_in(r) == "domain:forked domain:made there " &&
                       counts_are(usage_in(r, "domain:forked"), 2, 120, 0, 0) &&
                       counts_are(usage_in(r, "domain:made there"), 1, 1, 0, 0);
    ::_exit(holds ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(counts_are(usage_in(s.close(), "domain:forked"), 1, 100, 0, 0));
  d.freed(100);
}

TEST_CASE(
    "a domain that was made and fed in the window is in it, also when another thread makes some during the close") {
  constexpr int rounds = 300;
  std::atomic<int> closing{0};
  std::atomic<int> closed{0};
  std::atomic<int> over{0};
  std::thread other([&] {
    for (int round = 1; round <= rounds; ++round) {
      while (closing.load() < round) std::this_thread::yield();
      {
        std::optional<domain> late[30];
        for (auto& d : late) d.emplace("late");
        while (closed.load() < round) std::this_thread::yield();
      }
      over.store(round);
    }
  });
  int lost = 0;
  for (int round = 1; round <= rounds; ++round) {
    domain_scope s("closing");  // nothing is alive at its entry
    domain early("early");
    early.allocated(1);
    closing.store(round);
    for (volatile int spin = 0; spin < 10 * round; spin = spin + 1) {
    }
    lost += s.close().find("domain:early") == nullptr ? 1 : 0;
    early.freed(1);
    closed.store(round);
    while (over.load() < round) std::this_thread::yield();
  }
  other.join();
  CHECK(lost == 0);
}
