// SPDX-License-Identifier: MIT
// Before main, while threads begin and end, and across a fork. after_main_test.cpp has what happens after main.
#include <tidemark/hook/global_new.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <limits.h>
#include <pthread.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/sink/callback.hpp>

#include "hooked.hpp"
#include "test.hpp"

namespace {

using hooked::counts;
using hooked::has_moved;
using hooked::is_same;

void* make(std::size_t n) {
  void* p = ::operator new(n);
  std::memset(p, 'x', n);
  tidemark::escape(p);
  return p;
}

// ---- before main ----

struct before_main {
  bool is_hooked = false;
  bool is_counted = false;
  bool is_freed = false;
  bool is_counted_in_thread = false;
  void* kept = nullptr;
};

before_main in_constructor_function;  // constant-initialised: it is there before any constructor runs
before_main in_static_object;
pthread_key_t early_key;  // created before the library's own, whose destructor therefore runs after this one's
pthread_key_t late_key;

void visit_before_main(before_main& found) {
  found.is_hooked = tidemark::hook_state() == tidemark::hook_kind::global_new;
  if (!found.is_hooked) return;
  const counts start;
  found.kept = make(1'000);
  const counts with_one;
  found.is_counted = has_moved(start, with_one, 1'000, 1);
  void* passing = make(70'000);
  ::operator delete(passing);
  found.is_freed = has_moved(start, counts(), 1'000, 1);
}

void on_key(void* state);

__attribute__((constructor(101))) void run_before_static_objects() {
  pthread_key_create(&early_key, on_key);
  visit_before_main(in_constructor_function);
  pthread_key_create(&late_key, on_key);
}

struct allocates_in_its_constructor {
  std::vector<int> numbers = std::vector<int>(100);

  allocates_in_its_constructor() {
    tidemark::escape(numbers.data());
    visit_before_main(in_static_object);
    if (!in_static_object.is_hooked) return;
    const tidemark::usage before = *tidemark::process_usage();
    void* made_there = nullptr;
    std::thread([&] { made_there = make(300); }).join();
    in_static_object.is_counted_in_thread = tidemark::process_usage()->live_bytes == before.live_bytes + 300;
    ::operator delete(made_there);
  }
};

const allocates_in_its_constructor static_object;

}  // namespace

TEST_CASE("blocks allocated before main are counted then, and may be freed at any later time") {
  for (const before_main* found : {&in_constructor_function, &in_static_object}) {
    CHECK(found->is_hooked);
    CHECK(found->is_counted);
    CHECK(found->is_freed);
    const counts before;
    ::operator delete(found->kept);
    CHECK(has_moved(before, counts(), -1'000, -1));
  }
  CHECK(in_static_object.is_counted_in_thread);
  CHECK(static_object.numbers.size() == 100);
}

// ---- fork: first, while no thread has used the slot of those without one ----

namespace {

/// What a child found wrong. It says so on the standard error: doctest is the parent's.
class findings {
 public:
  void expect(bool holds, const char* what) {
    if (holds) return;
    ++failures_;
    const auto say = [](const char* text) { return ::write(STDERR_FILENO, text, std::strlen(text)); };
    static_cast<void>(say("in the child it does not hold that ") + say(what) + say("\n"));
  }
  [[nodiscard]] int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

/// Runs `f(findings&)` in a child. 0: all is well there.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    findings found;
    f(found);
    ::_exit(found.failures() > 100 ? 100 : found.failures());
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1'000 + WTERMSIG(status);
}

using both_heaps = tidemark::basic_scope<tidemark::meter::thread_heap, tidemark::meter::process_heap>;

/// What must hold in a child whose only thread this is.
void expect_counting(findings& found) {
  const counts before;
  void* p = make(5'000);
  found.expect(has_moved(before, counts(), 5'000, 1), "a block is counted");
  both_heaps s("in the child");
  void* q = make(200'000);
  ::operator delete(p);
  {
    const tidemark::scope_record r = s.close();
    for (const tidemark::meter_reading& m : r.meters) {
      found.expect(m.usage.has_value() && m.usage->net_bytes() == 195'000 && m.usage->peak_growth() == 200'000 &&
                       m.usage->allocations == 1 && m.usage->deallocations == 1 && m.usage->largest_bytes == 200'000 &&
                       m.usage->error_bound_bytes == 0,
                   "a scope is exact");
    }
    found.expect(r.name == "in the child", "a scope keeps its name");
    found.expect(r.thread == static_cast<std::uint64_t>(::getpid()), "a scope names the child's own thread");
    found.expect(r.owned_bytes.has_value() && *r.owned_bytes == 200'000, "a scope owns what it left behind");
  }
  ::operator delete(q);
  const counts after;
  found.expect(has_moved(before, after, 0, 0), "everything is freed");
  found.expect(after.process.peak_bytes >= after.process.live_bytes && after.process.live_bytes >= 0,
               "the process's account is consistent");
  found.expect(after.self.foreign_frees == before.self.foreign_frees, "no free is foreign");
}

/// The part of it that allocates nothing.
void expect_windows(findings& found) {
  tidemark::meter::thread_heap::window of_thread;
  tidemark::meter::process_heap::window of_process;
  for (const tidemark::reading<tidemark::window_usage>& u : {of_thread.close(), of_process.close()}) {
    found.expect(u.has_value() && u->net_bytes() == 0 && u->peak_growth() == 0 && u->allocations == 0 &&
                     u->deallocations == 0 && u->error_bound_bytes == 0,
                 "nothing happens where nothing is done, and no other thread is in use");
  }
}

void expect_threads_count(findings& found) {
  const tidemark::usage before = *tidemark::process_usage();
  {
    hooked::barrier all(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        tidemark::scope s("thread of the child");
        void* p = make(100'000);
        all.arrive_and_wait();
        ::operator delete(p);
        const tidemark::scope_record r = s.close();
        const tidemark::reading<tidemark::window_usage>& u = r.meters[0].usage;
        static std::atomic<int> wrong{0};
        if (!u.has_value() || u->net_bytes() != 0 || u->peak_growth() != 100'000 || r.depth != 0) wrong.fetch_add(1);
        all.arrive_and_wait();
        if (wrong.load() != 0) ::_exit(99);
      });
    }
    for (std::thread& t : threads) t.join();
  }
  const tidemark::usage after = *tidemark::process_usage();
  found.expect(after.live_bytes == before.live_bytes && after.live_blocks == before.live_blocks,
               "threads leave the counts as they were");
}

}  // namespace

TEST_CASE("a fork child goes on counting, with threads and scopes of its own, and the parent does not notice") {
  void* before_the_fork = make(3'000);
  const counts start;
  both_heaps across("across the fork");
  void* p = make(1'000);
  const int failures = in_child([&](findings& found) {
    found.expect(has_moved(start, counts(), 1'000, 1), "the counts are the parent's");
    expect_counting(found);
    counts before;
    ::operator delete(before_the_fork);
    found.expect(has_moved(before, counts(), -3'000, -1), "a block from before the fork is freed there too");
    void* q = make(500);
    {
      const tidemark::scope_record r = across.close();
      for (const tidemark::meter_reading& m : r.meters) {
        found.expect(m.usage.has_value() && m.usage->net_bytes() == 1'000 - 3'000 + 500, "an open scope goes on");
      }
      found.expect(r.owned_bytes.value_or(-1) == 1'500, "an open scope goes on owning");
    }
    ::operator delete(q);
    ::operator delete(p);
    found.expect(has_moved(start, counts(), -3'000, -1), "the child's counts are its own");
    expect_threads_count(found);
    expect_counting(found);
  });
  ::operator delete(p);
  const tidemark::scope_record r = across.close();
  CHECK(failures == 0);
  REQUIRE(r.meters.size() == 2);
  for (const tidemark::meter_reading& m : r.meters) {
    REQUIRE(m.usage.has_value());
    CHECK(m.usage->net_bytes() == 0);
    CHECK(m.usage->allocations == 1);
    CHECK(m.usage->peak_growth() == 1'000);
  }
  const counts end;
  CHECK(end.process.live_bytes == start.process.live_bytes);
  CHECK(end.thread.live_bytes == start.thread.live_bytes);
  ::operator delete(before_the_fork);
}

TEST_CASE("a fork child of a fork child counts as well") {
  const int failures = in_child([](findings& found) {
    expect_counting(found);
    found.expect(in_child([](findings& inner) {
                   expect_counting(inner);
                   expect_threads_count(inner);
                 }) == 0,
                 "the grandchild is well");
    expect_counting(found);
  });
  CHECK(failures == 0);
}

TEST_CASE("a sink attached in the parent receives the child's records in the child") {
  int delivered = 0;
  std::string last;
  auto s = std::make_shared<tidemark::callback_sink>([&](const tidemark::scope_record& r) {
    ++delivered;
    last = r.path;
  });
  const tidemark::attachment attached = tidemark::attach(s);
  { const tidemark::scope open("in the parent"); }
  CHECK(delivered == 1);
  const int failures = in_child([&](findings& found) {
    { const tidemark::scope open("sinks work here"); }
    found.expect(delivered == 2 && last == "sinks work here", "the record arrives");
    std::thread([] { const tidemark::scope open("and on a thread"); }).join();
    found.expect(delivered == 3 && last == "and on a thread", "the record of another thread arrives");
    found.expect(tidemark::self().dropped_records == 0, "no record is dropped");
    expect_counting(found);
  });
  CHECK(failures == 0);
  CHECK(delivered == 1);
  { const tidemark::scope open("in the parent"); }
  CHECK(delivered == 2);
}

namespace {

/// What the threads do while their process forks.
class restless_thread {
 public:
  restless_thread(int number, const std::atomic<int>& round, const std::atomic<bool>& stop)
      : number_(number), round_(round), stop_(stop), dice_(static_cast<std::uint64_t>(number) + 1) {}

  void run() {
    while (!stop_.load(std::memory_order_relaxed)) {
      allocate();
      scopes();
      if (number_ == 0) process_windows_and_sinks();
    }
    for (void* p : blocks_) ::operator delete(p);
  }

 private:
  // New paths, and new names, are what takes the most locks. The tree has room for 65,536, and later tests need some.
  static constexpr int new_paths_per_round = 100;

  void allocate() {
    void*& p = blocks_[dice_.below(32)];
    ::operator delete(p);
    p = make(dice_.below(500) == 0 ? dice_.below(200'000) : dice_.below(500));
  }

  void scopes() {
    char name[64];
    const int round = round_.load(std::memory_order_relaxed);
    if (round != seen_round_) {
      seen_round_ = round;
      left_ = new_paths_per_round;
    }
    if (left_ > 0) {
      std::snprintf(name, sizeof name, "%d of thread %d in round %d", left_--, number_, round);
    } else {
      std::snprintf(name, sizeof name, "one of ten: %d", static_cast<int>(dice_.below(10)));
    }
    const tidemark::scope outer(name);
    allocate();
    if (left_ > 0) return;
    std::optional<tidemark::scope> first("first");
    const tidemark::scope second("second");
    allocate();
    first.reset();  // before the one inside it
    allocate();
  }

  void process_windows_and_sinks() {
    const tidemark::process_scope s("whole process");
    allocate();
    if (dice_.below(4) != 0) return;
    const tidemark::attachment attached =
        tidemark::attach(std::make_shared<tidemark::callback_sink>([](const tidemark::scope_record&) {}));
    allocate();
  }

  int number_;
  const std::atomic<int>& round_;
  const std::atomic<bool>& stop_;
  hooked::dice dice_;
  int seen_round_ = -1;
  int left_ = 0;
  void* blocks_[32] = {};
};

}  // namespace

TEST_CASE("forks while other threads allocate, name scopes and attach sinks give children that count") {
  const counts start;
  tidemark::meter::thread_heap::window window;
  int failures = 0;
  {
    std::atomic<int> round{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { restless_thread(i, round, stop).run(); });
    const counts before;
    for (; round.load() < 100; round.fetch_add(1)) {
      failures += in_child([&](findings& found) {
        found.expect(is_same(before.thread, *tidemark::thread_usage()), "the thread's own account is the parent's");
        expect_windows(found);
        // The sanitizers' allocators may be left locked in the child of a process with several threads.
        if (TIDEMARK_HAS_ASAN() || TIDEMARK_HAS_TSAN()) return;
        expect_counting(found);
        if (round.load() % 10 == 0) expect_threads_count(found);
      });
    }
    stop.store(true);
    for (std::thread& t : threads) t.join();
  }
  const tidemark::reading<tidemark::window_usage> u = window.close();
  const counts after;
  CHECK(failures == 0);
  CHECK(after.process.live_bytes == start.process.live_bytes);
  CHECK(after.process.live_blocks == start.process.live_blocks);
  CHECK(after.self.foreign_frees == start.self.foreign_frees);
  REQUIRE(u.has_value());
  CHECK(u->entry_bytes == start.thread.live_bytes);
}

// ---- threads begin and end ----

namespace {

/// Runs `f` in a thread that has no heap event of its own, unless `f` has one: std::thread's bookkeeping is freed by the
/// thread itself.
template <class F>
void in_bare_thread(F& f) {
  pthread_t thread{};
  const auto run = [](void* p) -> void* {
    (*static_cast<F*>(p))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, nullptr, run, &f) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
}

// TSan's own destructor ends its allocator for the thread in the last round.
constexpr int key_rounds = PTHREAD_DESTRUCTOR_ITERATIONS - (TIDEMARK_HAS_TSAN() ? 1 : 0);

/// A value of a pthread key, whose destructor has events and asks to be called again, as long as it will be.
struct key_state {
  pthread_key_t key;
  int rounds = 0;
  void* held = nullptr;
};

void on_key(void* p) {
  auto& state = *static_cast<key_state*>(p);
  ::operator delete(state.held);
  state.held = make(100 * static_cast<std::size_t>(state.rounds + 2));  // another size each time
  if (++state.rounds < key_rounds) pthread_setspecific(state.key, p);
}

struct tls_visitor {
  void* inherited = nullptr;
  void** left_behind = nullptr;

  ~tls_visitor() {
    ::operator delete(inherited);
    if (left_behind == nullptr) return;
    ::operator delete(make(50'000));
    *left_behind = make(700);
  }
};

thread_local tls_visitor visitor;

}  // namespace

TEST_CASE("thread-local destructors free blocks of others and leave blocks to others") {
  const counts start;
  void* made_here = make(900);
  void* made_there = nullptr;
  std::thread([&] {
    visitor.inherited = made_here;
    visitor.left_behind = &made_there;
  }).join();
  const counts between;
  CHECK(between.process.live_bytes - start.process.live_bytes == 700);
  CHECK(between.process.live_blocks - start.process.live_blocks == 1);
  ::operator delete(made_there);
  const counts after;
  CHECK(after.process.live_bytes == start.process.live_bytes);
  CHECK(after.process.live_blocks == start.process.live_blocks);
  CHECK(after.self.foreign_frees == start.self.foreign_frees);
}

TEST_CASE("destructors of pthread keys count in every round, and their threads' slots are used again") {
  std::uint64_t own_bytes_after_the_first = 0;
  for (int i = 0; i < 50; ++i) {
    const counts start;
    key_state states[] = {{early_key}, {late_key}};
    for (key_state& state : states) state.held = make(100);  // freed there
    auto body = [&] {
      ::operator delete(make(10));
      for (key_state& state : states) pthread_setspecific(state.key, &state);
    };
    in_bare_thread(body);
    const counts between;
    for (key_state& state : states) {
      CHECK(state.rounds == key_rounds);
      ::operator delete(state.held);
    }
    const counts after;
    CHECK(between.process.live_bytes - start.process.live_bytes == 2 * 100 * (key_rounds + 1));
    CHECK(between.process.live_blocks - start.process.live_blocks == 2);
    CHECK(after.process.live_bytes == start.process.live_bytes);
    CHECK(after.process.live_blocks == start.process.live_blocks);
    CHECK(after.self.foreign_frees == start.self.foreign_frees);
    if (i == 0) own_bytes_after_the_first = after.self.own_bytes;
  }
  CHECK(tidemark::self().own_bytes == own_bytes_after_the_first);
}

TEST_CASE("threads whose first event is in a key's destructor do not use up slots") {
  for (pthread_key_t key : {early_key, late_key}) {
    std::uint64_t own_bytes = 0;
    for (int i = 0; i < 300; ++i) {
      // Their slots may wait until their number has doubled; there are fewer than 64 by now.
      if (i == 100) own_bytes = tidemark::self().own_bytes;
      const counts start;
      key_state state{key};
      state.rounds = key_rounds - 1;  // once is enough
      auto body = [&] { pthread_setspecific(key, &state); };
      in_bare_thread(body);
      ::operator delete(state.held);
      const counts after;
      CHECK(after.process.live_bytes == start.process.live_bytes);
      CHECK(after.process.live_blocks == start.process.live_blocks);
    }
    CHECK(tidemark::self().own_bytes == own_bytes);
  }
}

TEST_CASE("a thread that ends with live memory leaves it counted until another frees it") {
  const counts start;
  std::vector<void*> left(64);
  std::thread([&] {
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = make(i * 997);
  }).join();
  const counts between;
  const std::int64_t bytes = 997 * 63 * 64 / 2;
  const auto of_vector = static_cast<std::int64_t>(left.size() * sizeof(void*));
  CHECK(between.process.live_bytes - start.process.live_bytes == bytes + of_vector);
  CHECK(between.process.live_blocks - start.process.live_blocks == 65);
  const counts before_frees;
  for (void* p : left) ::operator delete(p);
  CHECK(has_moved(before_frees, counts(), -bytes, -64));  // this thread's account as well, which never had them
}

TEST_CASE("2,000 threads one after the other use one slot, and the process returns to its start") {
  const auto run = [](int n) {
    for (int i = 0; i < n; ++i) {
      std::thread([] { ::operator delete(make(1'000)); }).join();
    }
  };
  run(1);
  const counts start;
  run(2'000);
  const counts after;
  CHECK(after.process.live_bytes == start.process.live_bytes);
  CHECK(after.process.live_blocks == start.process.live_blocks);
  CHECK(after.self.own_bytes == start.self.own_bytes);
  CHECK(after.process.allocations >= start.process.allocations + 4'000);
}

TEST_CASE("2,000 threads, 200 alive at a time, take no more slots after the first 200") {
  constexpr int alive = 200;
  const auto run_batch = [] {
    hooked::barrier all(alive);
    std::vector<std::thread> threads;
    threads.reserve(alive);
    for (int i = 0; i < alive; ++i) {
      threads.emplace_back([&] {
        void* p = make(1'000);
        all.arrive_and_wait();
        ::operator delete(p);
      });
    }
    for (std::thread& t : threads) t.join();
  };
  const tidemark::usage start = *tidemark::process_usage();
  run_batch();
  const counts after_first;
  CHECK(after_first.process.live_bytes == start.live_bytes);
  CHECK(after_first.process.live_blocks == start.live_blocks);
  for (int batch = 1; batch < 10; ++batch) {
    run_batch();
    const counts after;
    CHECK(after.process.live_bytes == start.live_bytes);
    CHECK(after.process.live_blocks == start.live_blocks);
    CHECK(after.self.own_bytes == after_first.self.own_bytes);
  }
}

// ---- scopes that outlive their threads ----

namespace {

both_heaps* left_open = nullptr;  // reachable, for a leak checker's sake

/// A thread's own view of a scope: exact, and outermost although its slot's last thread left one open.
bool is_undisturbed(const tidemark::scope_record& r, std::int64_t net, std::int64_t peak, std::string_view path) {
  const tidemark::meter_reading* m = r.find("thread_heap");
  return m != nullptr && m->usage.has_value() && m->usage->net_bytes() == net && m->usage->peak_growth() == peak &&
         m->usage->error_bound_bytes == 0 && r.path == path && r.depth == 0;
}

}  // namespace

TEST_CASE("a scope that its thread leaves open does not disturb the next thread in the slot") {
  const auto leave_open = [] {
    left_open = new both_heaps("left open");
    tidemark::escape(&left_open);
    ::operator delete(make(1'000'000));
  };
  std::thread(leave_open).join();
  { const tidemark::scope known("next in the slot"); }  // its name and path take memory the first time
  const std::uint64_t own_bytes = tidemark::self().own_bytes;
  bool holds = false;
  std::thread([&] {
    tidemark::scope s("next in the slot");
    void* p = make(3'000);
    ::operator delete(make(2'000));
    holds = is_undisturbed(s.close(), 3'000, 5'000, "next in the slot");
    ::operator delete(p);
  }).join();
  CHECK(holds);
  CHECK(tidemark::self().own_bytes == own_bytes);  // it was the same slot
}

TEST_CASE("a scope closed by the next thread in its slot is not taken for that thread's own") {
  for (const bool by_close : {true, false}) {
    both_heaps* stale = nullptr;
    std::thread([&] { stale = new both_heaps("predecessor"); }).join();
    bool is_absent = true;
    bool holds = false;
    std::thread([&] {
      tidemark::scope s("successor");
      void* p = make(3'000);
      const std::int64_t before = tidemark::thread_usage()->live_bytes;
      if (by_close) is_absent = !stale->close().find("thread_heap")->usage.has_value();
      delete stale;
      const std::int64_t deleted = before - tidemark::thread_usage()->live_bytes;
      ::operator delete(make(2'000));
      holds = is_undisturbed(s.close(), 3'000 - deleted, 5'000 - deleted, "successor");
      ::operator delete(p);
    }).join();
    CHECK(is_absent);
    CHECK(holds);
  }
}

TEST_CASE("a scope closed after its thread ended has no thread reading, a right process reading, and disturbs nobody") {
  for (const bool by_close : {true, false}) {
    both_heaps* stale = nullptr;
    void* left = nullptr;
    std::thread([&] {
      stale = new both_heaps("orphan");
      left = make(4'000);
    }).join();
    hooked::barrier both(2);
    bool holds = false;
    bool holds_later = false;
    std::thread heir([&] {
      tidemark::scope s("heir");
      void* p = make(3'000);
      both.arrive_and_wait();  // the scope of this slot's last thread is closed now
      both.arrive_and_wait();
      ::operator delete(make(2'000));
      holds = is_undisturbed(s.close(), 3'000, 5'000, "heir");
      tidemark::scope later("later");
      ::operator delete(p);
      holds_later = is_undisturbed(later.close(), -3'000, 0, "later");
    });
    both.arrive_and_wait();
    if (by_close) {
      const tidemark::scope_record r = stale->close();
      CHECK(r.path == "orphan");
      const tidemark::meter_reading* of_thread = r.find("thread_heap");
      const tidemark::meter_reading* of_process = r.find("process_heap");
      REQUIRE(of_thread != nullptr);
      REQUIRE(of_process != nullptr);
      CHECK(!of_thread->usage.has_value());
      CHECK(of_thread->usage.why().find("thread") != std::string_view::npos);
      REQUIRE(of_process->usage.has_value());
      CHECK(of_process->usage->peak_growth() >= 7'000);
      CHECK(r.owned_bytes.value_or(-1) == 4'000);
    }
    delete stale;
    both.arrive_and_wait();
    heir.join();
    CHECK(holds);
    CHECK(holds_later);
    ::operator delete(left);
  }
}

namespace {

struct opens_late {
  bool* holds = nullptr;
  both_heaps** handed_over = nullptr;

  ~opens_late() {
    if (holds == nullptr) return;
    tidemark::scope s("in a thread-local's destructor");
    ::operator delete(make(100));
    *holds = is_undisturbed(s.close(), 0, 100, "in a thread-local's destructor");
    *handed_over = new both_heaps("handed over");
  }
};

thread_local opens_late late;

}  // namespace

TEST_CASE("a scope opened while its thread ends is safe to close there and elsewhere") {
  bool holds = false;
  both_heaps* handed_over = nullptr;
  std::thread([&] {
    late.holds = &holds;
    late.handed_over = &handed_over;
  }).join();
  CHECK(holds);
  REQUIRE(handed_over != nullptr);
  const tidemark::scope_record r = handed_over->close();
  CHECK(!r.find("thread_heap")->usage.has_value());
  CHECK(r.find("process_heap")->usage.has_value());
  delete handed_over;
}
