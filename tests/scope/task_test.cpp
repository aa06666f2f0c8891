// SPDX-License-Identifier: MIT
// One thread at a time, so that every number is known. task_threads_test.cpp has those that run at once.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/task.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/sink/ring.hpp>

#include "barrier.hpp"
#include "heap_block.hpp"
#include "task_support.hpp"
#include "task_traces.hpp"
#include "test.hpp"

namespace meter = tidemark::meter;
using tidemark::join_task;
using tidemark::scope;
using tidemark::scope_record;
using tidemark::task_scope;
using tidemark::task_token;
using tidemark::window_usage;

namespace {

constexpr std::int64_t settle_bytes = TIDEMARK_OPT_SETTLE_BYTES;

/// Runs `f` on a thread of its own, to its end.
template <class F>
void elsewhere(F f) {
  bare_thread<F> thread(f);
  thread.join();
}

/// Runs `f()` in a child; 0 where it returned true.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(f() ? 0 : 1);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1'000 + WTERMSIG(status);
}

}  // namespace

// ---- against brute force ----

TEST_CASE("random traces of tasks on 2 to 8 threads agree with what a person would write down") {
  std::uint64_t exact = 0;
  for (std::size_t threads = 2; threads <= 8; ++threads) {
    const task_traces::tally seen = task_traces::run(threads * 1'000, 45, threads);
    CHECK(seen.readings > 500);
    CHECK(seen.of_several_threads > 100);
    CHECK(seen.nested > 50);
    CHECK(seen.closed_elsewhere > 20);
    CHECK(seen.closed_with_workers > 50);
    CHECK(seen.joined_twice > 50);
    CHECK(seen.void_tokens > 50);
    CHECK(seen.left_elsewhere > 20);
    CHECK(seen.left_after_thread > 20);
    CHECK(seen.threads_ended > 20);
    exact += seen.exact;
  }
  CHECK(exact > 500);
}

TEST_CASE("random traces of tasks on one thread are exact") {
  const task_traces::tally seen = task_traces::run(1, 100, 1);
  CHECK(seen.exact > 300);
  CHECK(seen.of_several_threads == 0);
}

// ---- by hand ----

TEST_CASE("a task of one thread knows what the thread did, without a bound") {
  heap_block older(500);
  task_scope task("alone");
  CHECK(so_far(task).entry_bytes == 0);
  older.free();
  { const heap_block b(1'000'000); }
  const heap_block kept(300);
  const window_usage u = closed(task);
  CHECK(counts_are(u, 2, 1'000'300, 2, 1'000'500));
  CHECK(u.entry_bytes == 0);
  CHECK(u.peak_bytes == 999'500);
  CHECK(u.largest_bytes == 1'000'000);
  CHECK(u.error_bound_bytes == 0);
  CHECK(u.counts_events);
}

TEST_CASE("what a worker allocates counts from its joining until it leaves") {
  task_scope task("work");
  elsewhere([token = task.token()] {
    const heap_block before(1);
    heap_block kept;
    {
      const join_task joined(token);
      kept = heap_block(1'000);
      { const heap_block passing(20); }
    }
    const heap_block after(300'000);
    kept.free();  // by a thread that is in the task no longer
  });
  const window_usage u = closed(task);
  CHECK(counts_are(u, 2, 1'020, 1, 20));
  CHECK(u.largest_bytes == 1'000);
  CHECK(u.error_bound_bytes == 2 * 2 * settle_bytes);
}

TEST_CASE("a thread outside the task that frees its block lowers nothing in it, a thread inside lowers it") {
  heap_block a(1'000);
  task_scope task("frees");
  heap_block b(2'000);
  elsewhere([&] { b.free(); });
  CHECK(counts_are(so_far(task), 1, 2'000, 0, 0));
  elsewhere([&, token = task.token()] {
    const join_task joined(token);
    a.free();
  });
  CHECK(counts_are(closed(task), 1, 2'000, 1, 1'000));
}

TEST_CASE("a thread that joins several times counts once, until it has left as often") {
  for (std::size_t first = 0; first < 3; ++first) {
    task_scope task("twice");
    elsewhere([first, token = task.token()] {
      std::optional<join_task> joined[3];
      for (auto& j : joined) j.emplace(token);
      for (std::size_t i = 0; i < 3; ++i) {
        { const heap_block b(100); }
        joined[(first + i) % 3].reset();
      }
      const heap_block after(10);
    });
    const window_usage u = closed(task);
    CHECK(counts_are(u, 3, 300, 3, 300));
    CHECK(u.error_bound_bytes == 2 * 2 * settle_bytes);  // two threads, not four
  }
}

TEST_CASE("to join on the thread that opened the task changes no number") {
  task_scope task("own");
  {
    const join_task joined(task.token());
    const heap_block b(100);
  }
  const heap_block kept(7);
  const window_usage u = closed(task);
  CHECK(counts_are(u, 2, 107, 1, 100));
  CHECK(u.peak_growth() == 100);
  CHECK(u.error_bound_bytes == 0);
}

TEST_CASE("who joins an inner task works for those around it, once each") {
  task_scope outer("outer");
  task_scope middle("middle");
  task_scope inner("inner");
  elsewhere([of_middle = middle.token(), of_inner = inner.token(), of_outer = outer.token()] {
    const join_task a(of_inner);
    const join_task b(of_outer);
    const join_task c(of_middle);
    const heap_block x(100);
  });
  elsewhere([token = middle.token()] {
    const join_task joined(token);
    const heap_block x(30);
  });
  CHECK(counts_are(closed(inner), 1, 100, 1, 100));
  CHECK(counts_are(closed(middle), 2, 130, 2, 130));
  CHECK(counts_are(closed(outer), 2, 130, 2, 130));
}

TEST_CASE("an event of a thread in several tasks counts in each") {
  std::optional<task_scope> a;
  std::optional<task_scope> b;
  std::optional<task_scope> inside_b;
  elsewhere([&] { a.emplace("a"); });  // apart from each other
  elsewhere([&] {
    b.emplace("b");
    inside_b.emplace("inside b");
  });
  elsewhere([&] {
    const join_task first(a->token());
    { const heap_block x(1); }
    const join_task second(inside_b->token());
    const heap_block x(20);
  });
  CHECK(counts_are(closed(*a), 2, 21, 2, 21));
  CHECK(counts_are(closed(*inside_b), 1, 20, 1, 20));
  CHECK(counts_are(closed(*b), 1, 20, 1, 20));
}

TEST_CASE("when a task in the middle has closed, who joins further in works for those further out") {
  task_scope outer("outer");
  std::optional<task_scope> middle(std::in_place, "middle");
  task_scope inner("inner");
  middle.reset();
  elsewhere([token = inner.token()] {
    const join_task joined(token);
    const heap_block x(100);
  });
  task_scope innermost("innermost");
  elsewhere([token = innermost.token()] {
    const join_task joined(token);
    const heap_block x(5);
  });
  CHECK(counts_are(closed(innermost), 1, 5, 1, 5));
  CHECK(counts_are(closed(inner), 2, 105, 2, 105));
  CHECK(counts_are(closed(outer), 2, 105, 2, 105));
}

TEST_CASE("a worker's own task is a part of the one that it has joined") {
  task_scope outer("outer");
  std::optional<task_scope> inner;
  window_usage of_inner;
  elsewhere([&, token = outer.token()] {
    const join_task joined(token);
    inner.emplace("inner");
    { const heap_block x(100); }
    elsewhere([from_inner = inner->token()] {
      const join_task also_joined(from_inner);
      const heap_block x(2'000);
    });
    of_inner = closed(*inner);
  });
  const window_usage of_outer = closed(outer);
  CHECK(counts_are(of_inner, 2, 2'100, 2, 2'100));
  CHECK(of_inner.error_bound_bytes == 2 * 2 * settle_bytes);
  CHECK(counts_are(of_outer, 2, 2'100, 2, 2'100));
  CHECK(of_outer.error_bound_bytes == 2 * 3 * settle_bytes);
}

TEST_CASE("joining after the close does nothing, nor does a token that names no task") {
  task_scope task("closed");
  const task_token token = task.token();
  CHECK(static_cast<bool>(token));
  task.close();
  CHECK(!task.token());
  const auto ring = std::make_shared<tidemark::ring_sink>(8);
  const auto attached = tidemark::attach(ring);
  task_scope next("next");  // in the memory of the last one
  CHECK(next.token().task == token.task);
  elsewhere([token] {
    const join_task late(token);
    const join_task never{task_token{}};
    const heap_block x(100);
    const scope s("alone");
  });
  CHECK(counts_are(closed(next), 0, 0, 0, 0));
  REQUIRE(ring->scopes().size() == 2);
  CHECK(ring->scopes()[0].path == "alone");
  CHECK(ring->scopes()[0].depth == 0);
}

TEST_CASE("after the close a worker works for nobody, although another task has its memory") {
  std::optional<task_scope> task(std::in_place, "first");
  const task_token of_first = task->token();
  barrier both(2);
  bare_thread worker([&, token = of_first] {
    heap_block kept;
    {
      const join_task joined(token);
      kept = heap_block(1'000);
      both.arrive_and_wait();  // it is closed, and another one is opened
      both.arrive_and_wait();
      const heap_block x(300'000);
      kept.free();
    }
    both.arrive_and_wait();
  });
  both.arrive_and_wait();
  CHECK(counts_are(closed(*task), 1, 1'000, 0, 0));
  task.emplace("second");
  REQUIRE(task->token().task == of_first.task);
  both.arrive_and_wait();
  both.arrive_and_wait();
  const window_usage u = closed(*task);
  CHECK(counts_are(u, 0, 0, 0, 0));
  CHECK(u.error_bound_bytes == 0);
  worker.join();
}

TEST_CASE("a task may be read and closed by a thread that is not in it") {
  std::optional<task_scope> task;
  window_usage between;
  barrier both(2);
  bare_thread owner([&] {
    task.emplace("of another");
    const heap_block kept(1'000);
    { const heap_block x(5'000); }
    both.arrive_and_wait();
    both.arrive_and_wait();  // it is closed
    { const heap_block x(100); }
    const scope s("sees that it is");
  });
  both.arrive_and_wait();
  between = so_far(*task);
  const scope_record r = task->close();
  both.arrive_and_wait();
  owner.join();
  for (const window_usage& u : {between, usage_in(r, "task_heap")}) {
    CHECK(counts_are(u, 2, 6'000, 1, 5'000));
    CHECK(u.error_bound_bytes == 2 * settle_bytes);  // the other thread may hold some back
    CHECK(u.peak_growth() >= 1'000);
    CHECK(u.peak_growth() <= 6'000 + u.error_bound_bytes);
  }
  CHECK(r.path == "of another");
  CHECK(r.owned_bytes.value_or(-1) == 1'000);
}

TEST_CASE("a join that another thread ends holds until its own thread opens or closes a scope") {
  task_scope task("left elsewhere");
  std::unique_ptr<join_task> joined;
  barrier both(2);
  bare_thread worker([&, token = task.token()] {
    {
      const tidemark::quiet hidden;
      joined = std::make_unique<join_task>(token);
    }
    { const heap_block x(10); }
    both.arrive_and_wait();
    both.arrive_and_wait();  // it is gone
    { const heap_block x(200); }
    { const scope s("from here on it is out"); }
    { const heap_block x(3'000); }
  });
  both.arrive_and_wait();
  {
    const tidemark::quiet hidden;
    joined.reset();
  }
  both.arrive_and_wait();
  worker.join();
  CHECK(counts_are(closed(task), 2, 210, 2, 210));
}

TEST_CASE("what is quiet in a worker is in no task") {
  task_scope task("quiet");
  elsewhere([token = task.token()] {
    const join_task joined(token);
    const tidemark::quiet hidden;
    const heap_block x(100);
  });
  CHECK(counts_are(closed(task), 0, 0, 0, 0));
}

TEST_CASE("a closed task says so, and is not closed again") {
  task_scope task("once");
  task.close();
  CHECK(!task.usage().has_value());
  CHECK(task.usage().why().find("closed") != std::string_view::npos);
#if TIDEMARK_HAS_EXCEPTIONS()
  CHECK_THROWS_AS(task.close(), std::logic_error);
#endif
}

// ---- the bound ----

TEST_CASE("the bound is that of the most threads in the task at one time") {
  for (const std::size_t together : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
    task_scope task("bound");
    for (int round = 0; round < 2; ++round) {  // those who came later took the places of those who left
      barrier all(together);
      const auto work = [&, token = task.token()] {
        const join_task joined(token);
        all.arrive_and_wait();
      };
      std::vector<std::unique_ptr<bare_thread<decltype(work)>>> threads;
      for (std::size_t i = 0; i < together; ++i) {
        threads.push_back(std::make_unique<bare_thread<decltype(work)>>(work));
      }
      threads.clear();
    }
    CHECK(closed(task).error_bound_bytes == 2 * static_cast<std::int64_t>(together + 1) * settle_bytes);
  }
}

namespace {

/// Threads that act one after the other and stay where they are in between.
template <class F>
void in_turn(std::size_t count, F act) {
  barrier all(count + 1);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    const std::size_t self = next.fetch_add(1);
    const auto step = [&](auto f) {
      for (std::size_t i = 0; i < count; ++i) {
        all.arrive_and_wait();
        if (i == self) f();
      }
      all.arrive_and_wait();
    };
    act(self, step);
  };
  const tidemark::quiet hidden;
  std::vector<std::unique_ptr<bare_thread<decltype(work)>>> threads;
  for (std::size_t i = 0; i < count; ++i) threads.push_back(std::make_unique<bare_thread<decltype(work)>>(work));
  // The caller only keeps time: three steps each.
  for (std::size_t i = 0; i < 3 * (count + 1); ++i) all.arrive_and_wait();
  threads.clear();
}

}  // namespace

TEST_CASE("a peak that every thread holds back is missed by no more than the bound") {
  constexpr auto most = static_cast<std::size_t>(settle_bytes);
  for (const std::size_t workers : {std::size_t{1}, std::size_t{3}, std::size_t{7}}) {
    CAPTURE(workers);
    std::optional<task_scope> task(std::in_place, "held back");
    in_turn(workers, [&](std::size_t, auto step) {
      std::optional<join_task> joined;
      heap_block b;
      step([&] {
        joined.emplace(task->token());
        b = heap_block(most);
      });
      step([&] { b.free(); });  // all had theirs
      step([&] { joined.reset(); });
    });
    const window_usage u = closed(*task);
    const auto true_peak = static_cast<std::int64_t>(workers * most);
    CHECK(counts_are(u, workers, workers * most, workers, workers * most));
    CHECK(u.error_bound_bytes == 2 * static_cast<std::int64_t>(workers + 1) * settle_bytes);
    CHECK(u.peak_growth() >= true_peak - u.error_bound_bytes);
    CHECK(u.peak_growth() <= true_peak + u.error_bound_bytes);
  }
}

TEST_CASE("an old high that a thread settles late is above the peak by no more than the bound") {
  constexpr auto most = static_cast<std::size_t>(settle_bytes);
  for (const std::size_t workers : {std::size_t{1}, std::size_t{3}, std::size_t{7}}) {
    CAPTURE(workers);
    heap_block older[7];
    for (heap_block& b : older) b = heap_block(most);
    task_scope task("late");
    in_turn(workers, [&](std::size_t self, auto step) {
      std::optional<join_task> joined;
      step([&] {  // up as far as it goes unsettled, then down as far
        joined.emplace(task.token());
        { const heap_block b(most); }
        older[self].free();
      });
      step([&] {
        if (self != 0) return;
        const join_task another(task.token());
        heap_block kept(10 * most);  // settles at once
        kept.free();
      });
      step([&] { joined.reset(); });
    });
    // -1 from each of those before, +1 at each one's height; then all of them are down, and ten come and go.
    const auto down = static_cast<std::int64_t>(workers);
    const std::int64_t true_peak = (10 - down) * settle_bytes;
    const window_usage u = closed(task);
    CHECK(u.net_bytes() == -down * settle_bytes);
    CHECK(u.peak_growth() >= true_peak - u.error_bound_bytes);
    CHECK(u.peak_growth() <= true_peak + u.error_bound_bytes);
    CHECK(u.error_bound_bytes == 2 * (down + 1) * settle_bytes);
  }
}

TEST_CASE("a single large block is in the peak at once, whoever allocates it") {
  task_scope task("large");
  elsewhere([token = task.token()] {
    const join_task joined(token);
    const heap_block large(std::size_t{300} << 20);
  });
  const window_usage u = closed(task);
  CHECK(u.peak_growth() >= std::int64_t{300} << 20);
  CHECK(u.peak_growth() <= (std::int64_t{300} << 20) + u.error_bound_bytes);
  CHECK(u.largest_bytes == std::uint64_t{300} << 20);
}

// ---- paths ----

TEST_CASE("a worker goes on in the task's path and depth") {
  const auto ring = std::make_shared<tidemark::ring_sink>(16);
  const auto attached = tidemark::attach(ring);
  {
    const scope epoch("epoch");
    const task_scope step("step");
    const scope local("not the worker's");
    elsewhere([token = step.token()] {
      const scope own("own");
      {
        const join_task joined(token);
        const scope forward("forward");
        const scope layer("layer");
      }
      const scope after("after");
    });
  }
  std::string all;
  for (const scope_record& r : ring->scopes()) all += r.path + ' ' + std::to_string(r.depth) + ", ";
  CHECK(
      all ==
      "epoch/step/forward/layer 3, epoch/step/forward 2, own/after 1, own 0, epoch/step/not the worker's 2, epoch/step "
      "1, epoch 0, ");
}

TEST_CASE("a join inside a join goes on in the inner one's path, and leaving returns to the outer one's") {
  const auto ring = std::make_shared<tidemark::ring_sink>(16);
  const auto attached = tidemark::attach(ring);
  std::string expected;
  for (const bool inner_first : {true, false}) {
    std::optional<task_scope> a;
    std::optional<task_scope> b;
    elsewhere([&] { a.emplace("a"); });
    elsewhere([&] { b.emplace("b"); });
    elsewhere([&] {
      std::optional<join_task> outer(std::in_place, a->token());
      std::optional<join_task> inner(std::in_place, b->token());
      { const scope s("1"); }
      (inner_first ? inner : outer).reset();
      { const scope s("2"); }
      (inner_first ? outer : inner).reset();
      { const scope s("3"); }
    });
    expected += inner_first ? "b/1 a/2 3 " : "b/1 b/2 3 ";
    static_cast<void>(a->usage());
    a.reset();
    b.reset();
    expected += "a b ";
  }
  std::string all;
  for (const scope_record& r : ring->scopes()) all += r.path + ' ';
  CHECK(all == expected);
}

TEST_CASE("to join one's own task leads back to its path") {
  task_scope task("own path");
  const scope inside("inside");
  const join_task joined(task.token());
  CHECK(scope("next").close().path == "own path/next");
}

TEST_CASE("a task's path owns what its workers allocate, until someone frees it") {
  heap_block a;
  heap_block b;
  heap_block c;
  task_scope task("owner");
  elsewhere([&, token = task.token()] {
    const join_task joined(token);
    a = heap_block(1'000);
    const scope s("forward");
    b = heap_block(200);
    c = heap_block(30);
  });
  heap_block d(4);
  b.free();
  const scope_record r = task.close();
  CHECK(r.owned_bytes.value_or(-1) == 1'034);
  a.free();
  elsewhere([&] { c.free(); });
  CHECK(task_scope("owner").close().owned_bytes.value_or(-1) == 4);
}

TEST_CASE("a worker's task is named inside the one that it has joined") {
  task_scope outer("outer task");
  std::string path;
  int depth = -1;
  elsewhere([&, token = outer.token()] {
    const tidemark::quiet hidden;
    const join_task joined(token);
    task_scope inner("inner task");
    elsewhere([&, of_inner = inner.token()] {
      const join_task also_joined(of_inner);
      const scope_record r = scope("leaf").close();
      path = r.path;
      depth = r.depth;
    });
  });
  CHECK(path == "outer task/inner task/leaf");
  CHECK(depth == 2);
}

TEST_CASE("a bare window of a task counts, also where its thread has no scope open") {
  meter::task_heap::window task;
  std::string path;
  elsewhere([&, token = task.token()] {
    const join_task joined(token);
    { const heap_block x(100); }
    const tidemark::quiet hidden;
    path = scope("outermost").close().path;
  });
  const auto between = task.usage();
  REQUIRE(between.has_value());
  CHECK(counts_are(*between, 1, 100, 1, 100));
  CHECK(path == "outermost");
  CHECK(task.close().has_value());
  CHECK(!task.close().has_value());
  CHECK(!task.usage().has_value());
}

TEST_CASE("the meter of a task goes with others in one scope") {
  tidemark::basic_scope<meter::thread_heap, meter::task_heap, meter::process_heap> s("three");
  const heap_block b(1'234);
  const scope_record r = s.close();
  for (const char* name : {"thread_heap", "task_heap", "process_heap"}) {
    CHECK(usage_in(r, name).net_bytes() == 1'234);
    CHECK(usage_in(r, name).allocations == 1);
    CHECK(usage_in(r, name).error_bound_bytes == 0);
  }
}

// ---- threads that end ----

TEST_CASE("a thread that ends in a task has left it, with all that it did") {
  task_scope task("ends");
  std::unique_ptr<join_task> joined[2];
  for (int round = 0; round < 2; ++round) {
    elsewhere([&, token = task.token()] {
      {
        const tidemark::quiet hidden;
        for (auto& j : joined) j = std::make_unique<join_task>(token);
      }
      const heap_block x(100);
    });
    // The next thread has its slot. It is in no task, and stays out of it when the other one's joins end.
    elsewhere([&] {
      const heap_block x(3'000);
      const tidemark::quiet hidden;
      for (auto& j : joined) j.reset();
    });
    elsewhere([&] { const heap_block x(50'000); });
  }
  const window_usage u = closed(task);
  CHECK(counts_are(u, 2, 200, 2, 200));
  CHECK(u.error_bound_bytes == 2 * 2 * settle_bytes);
}

TEST_CASE("the join of an ended thread does not end that of the next thread in its slot") {
  task_scope task("slot");
  std::unique_ptr<join_task> stale;
  elsewhere([&, token = task.token()] {
    const tidemark::quiet hidden;
    stale = std::make_unique<join_task>(token);
  });
  barrier both(2);
  bare_thread heir([&, token = task.token()] {
    const join_task joined(token);
    both.arrive_and_wait();
    both.arrive_and_wait();
    { const scope s("tidies up"); }
    const heap_block x(100);
  });
  both.arrive_and_wait();
  {
    const tidemark::quiet hidden;
    stale.reset();
  }
  both.arrive_and_wait();
  heir.join();
  CHECK(counts_are(closed(task), 1, 100, 1, 100));
}

namespace {

thread_local std::optional<join_task> joined_for_life;

}  // namespace

TEST_CASE("a thread may be in a task for the rest of its life, by a join in a thread_local") {
  for (const bool closes_before : {false, true}) {
    std::optional<task_scope> task(std::in_place, "for life");
    barrier both(2);
    bare_thread worker([&, token = task->token()] {
      joined_for_life.emplace(token);
      { const heap_block x(100); }
      both.arrive_and_wait();
      both.arrive_and_wait();
      { const heap_block x(20); }
    });
    both.arrive_and_wait();
    if (closes_before) CHECK(counts_are(closed(*task), 1, 100, 1, 100));
    both.arrive_and_wait();
    worker.join();
    if (!closes_before) CHECK(counts_are(closed(*task), 2, 120, 2, 120));
  }
}

TEST_CASE("a task whose thread has ended goes on, with those who join") {
  std::optional<task_scope> task;
  std::optional<task_scope> inner;
  elsewhere([&] {
    task.emplace("orphan");
    { const heap_block x(90'000); }
    inner.emplace("inner orphan");
    const heap_block x(100);
  });
  elsewhere([&] { const heap_block x(5'000); });  // in its slot
  CHECK(counts_are(so_far(*task), 2, 90'100, 2, 90'100));
  CHECK(so_far(*task).error_bound_bytes == 0);
  CHECK(so_far(*task).peak_growth() == 90'000);
  elsewhere([&] {
    const join_task joined(inner->token());
    const heap_block x(100'000);
  });
  const window_usage of_inner = closed(*inner);
  const window_usage of_task = closed(*task);
  CHECK(counts_are(of_inner, 2, 100'100, 2, 100'100));
  CHECK(counts_are(of_task, 3, 190'100, 3, 190'100));
  for (const window_usage& u : {of_inner, of_task}) {
    CHECK(u.error_bound_bytes == 0);  // one at a time
    CHECK(u.peak_growth() == 100'000);
  }
}

#if !TIDEMARK_HAS_TSAN()  // whose runtime has forgotten the thread by then
namespace {

/// A thread-specific key whose destructor runs after the library's in the last round, when the thread has no slot left.
struct at_the_very_end {
  pthread_key_t key{};
  int round = 0;
  const task_scope* task = nullptr;
  std::optional<task_scope> own;
  bool was_absent = false;

  static void run(void* p) {
    auto& self = *static_cast<at_the_very_end*>(p);
    if (++self.round < PTHREAD_DESTRUCTOR_ITERATIONS) {
      pthread_setspecific(self.key, p);
      return;
    }
    const join_task joined(self.task->token());
    { const heap_block x(1'000); }
    self.own.emplace("at the very end");
    self.was_absent = !self.own->usage().has_value() && !self.own->token();
  }
};

}  // namespace

TEST_CASE("a thread at its very end is counted by no task, and the task says that it misses one") {
  static at_the_very_end end;
  { const heap_block first(1); }  // the library's own key comes first
  REQUIRE(pthread_key_create(&end.key, at_the_very_end::run) == 0);
  task_scope task("misses one");
  end.task = &task;
  elsewhere([] {
    { const heap_block first(1); }
    pthread_setspecific(end.key, &end);
  });
  REQUIRE(end.round == PTHREAD_DESTRUCTOR_ITERATIONS);
  CHECK(end.was_absent);
  CHECK(!task.usage().has_value());
  const scope_record r = task.close();
  const auto* m = r.find("task_heap");
  REQUIRE(m != nullptr);
  CHECK(!m->usage.has_value());
  CHECK(m->usage.why().find("not counted") != std::string_view::npos);
  const scope_record last = end.own->close();
  end.own.reset();
  REQUIRE(last.find("task_heap") != nullptr);
  CHECK(!last.find("task_heap")->usage.has_value());
  CHECK(!last.find("task_heap")->usage.why().empty());
  pthread_key_delete(end.key);
  // The memory of the task is another's now, which misses none.
  task_scope next("misses none");
  CHECK(closed(next).allocations == 0);
}

#endif

// ---- memory ----

TEST_CASE("2,000 tasks in turn, each with workers, take no more memory than the first ones") {
  barrier both(2);
  std::optional<task_scope> task;
  std::optional<task_scope> inner;
  bool is_over = false;
  bare_thread worker([&] {
    for (;;) {
      both.arrive_and_wait();
      if (is_over) return;
      const join_task joined(task->token());
      const join_task again(task->token());
      const join_task further_in(inner->token());  // a seat in each
      const scope s("work");
      both.arrive_and_wait();
    }
  });
  std::uint64_t own_bytes = 0;
  for (int i = 0; i < 2'000; ++i) {
    if (i == 10) own_bytes = tidemark::self().own_bytes;
    task.emplace("one of many");
    inner.emplace("inside");
    both.arrive_and_wait();
    both.arrive_and_wait();
    if (i % 2 == 0) inner.reset();
    task.reset();
    inner.reset();
  }
  is_over = true;
  both.arrive_and_wait();
  worker.join();
  CHECK(tidemark::self().own_bytes == own_bytes);
}

// ---- fork ----

TEST_CASE("in a fork child a task goes on without the workers that the child lacks, and the parent does not notice") {
  task_scope task("across");
  barrier both(2);
  heap_block kept;
  bare_thread worker([&, token = task.token()] {
    const join_task joined(token);
    kept = heap_block(1'000);
    both.arrive_and_wait();
    both.arrive_and_wait();  // the child is over
    const heap_block x(70'000);
  });
  both.arrive_and_wait();
  const heap_block mine(20);
  const int status = in_child([&] {
    bool holds = counts_are(so_far(task), 2, 1'020, 0, 0);
    kept.free();
    { const heap_block x(5); }
    task_scope inner("in the child");
    {
      const join_task joined(task.token());
      const heap_block x(300);
    }
    holds = holds && counts_are(closed(inner), 1, 300, 1, 300);
    const scope_record r = task.close();
    const window_usage u = usage_in(r, "task_heap");
    holds = holds && counts_are(u, 4, 1'325, 3, 1'305) && r.path == "across" && r.owned_bytes.value_or(-1) == 20;
    task_scope next("next");
    { const heap_block x(100'000); }
    const window_usage of_next = closed(next);
    return holds && counts_are(of_next, 1, 100'000, 1, 100'000) && of_next.error_bound_bytes == 0 &&
           of_next.peak_growth() == 100'000;
  });
  CHECK(status == 0);
  both.arrive_and_wait();
  worker.join();
  CHECK(counts_are(closed(task), 3, 71'020, 1, 70'000));
}

TEST_CASE("a worker that forks works for the task in the child as well") {
  task_scope task("forks");
  int status = -1;
  elsewhere([&, token = task.token()] {
    const join_task joined(token);
    const heap_block x(100);
    status = in_child([&] {
      const heap_block y(2'000);
      return counts_are(so_far(task), 2, 2'100, 0, 0) && scope("inside").close().path == "forks/inside";
    });
  });
  CHECK(status == 0);
  CHECK(counts_are(closed(task), 1, 100, 1, 100));
}
