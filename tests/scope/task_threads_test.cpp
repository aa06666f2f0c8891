// SPDX-License-Identifier: MIT
// Threads of a task that run at once. What each does adds up by arithmetic, and barriers make certain when a peak is there.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/scope/task.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/gate.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/sink/callback.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "heap_block.hpp"
#include "task_support.hpp"
#include "test.hpp"

using tidemark::join_task;
using tidemark::scope;
using tidemark::task_scope;
using tidemark::task_token;
using tidemark::window_usage;

namespace {

constexpr std::int64_t settle_bytes = TIDEMARK_OPT_SETTLE_BYTES;

/// `count` threads that run `f(number)`, made before it is called and gone at the end. Their making is in no number.
template <class F>
class crew {
 public:
  crew(std::size_t count, F f) : f_(f) {
    const tidemark::quiet hidden;
    for (std::size_t i = 0; i < count; ++i) members_.push_back(std::make_unique<bare_thread<one>>(one{this, i}));
  }
  ~crew() { join(); }
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;
  void join() {
    const tidemark::quiet hidden;
    members_.clear();
  }

 private:
  struct one {
    crew* all;
    std::size_t number;
    void operator()() const { all->f_(number); }
  };
  F f_;
  std::vector<std::unique_ptr<bare_thread<one>>> members_;
};

}  // namespace

TEST_CASE(
    "2 to 8 workers at once: every event is counted, and the peak is within its bound of what they held together") {
  constexpr std::uint64_t rounds = 300;
  for (std::size_t workers = 2; workers <= 8; ++workers) {
    CAPTURE(workers);
    barrier all(workers + 1);
    task_scope outer("outer");
    task_scope task("task");
    crew threads(workers, [&, token = task.token()](std::size_t) {
      const join_task joined(token);
      const join_task twice(token);
      all.arrive_and_wait();  // all have joined
      {
        const heap_block held(1'000'000);
        all.arrive_and_wait();  // all hold theirs
        all.arrive_and_wait();  // that was read
        for (std::uint64_t i = 0; i < rounds; ++i) {
          const heap_block a(100);
          const heap_block b(3'000);
        }
        all.arrive_and_wait();  // none has let go yet
      }
      const heap_block kept(40'000);
      all.arrive_and_wait();  // all have let go
      all.arrive_and_wait();  // the task is closed
    });
    all.arrive_and_wait();
    all.arrive_and_wait();
    const window_usage holding = so_far(task);
    all.arrive_and_wait();
    const window_usage running = so_far(task);
    all.arrive_and_wait();
    all.arrive_and_wait();
    const window_usage u = closed(task);
    const window_usage of_outer = closed(outer);
    all.arrive_and_wait();
    threads.join();

    const auto n = static_cast<std::int64_t>(workers);
    const std::int64_t bound = 2 * (n + 1) * settle_bytes;
    CHECK(counts_are(holding, workers, workers * 1'000'000, 0, 0));
    CHECK(running.allocations >= workers);
    CHECK(running.allocations <= workers * (1 + 2 * rounds));
    CHECK(running.net_bytes() >= n * 1'000'000 - bound);
    CHECK(running.net_bytes() <= n * 1'003'100 + bound);
    for (const window_usage& w : {u, of_outer}) {
      CHECK(counts_are(w, workers * (2 + 2 * rounds), workers * (1'040'000 + rounds * 3'100),
                       workers * (1 + 2 * rounds), workers * (1'000'000 + rounds * 3'100)));
      CHECK(w.error_bound_bytes == bound);
      CHECK(w.peak_growth() >= n * 1'000'000 - bound);
      CHECK(w.peak_growth() <= n * 1'003'100 + bound);
      CHECK(w.largest_bytes == 1'000'000);
    }
  }
}

TEST_CASE("blocks that workers hand to each other cancel out, in no order at all") {
  constexpr std::size_t workers = 4;
  constexpr int rounds = 2'000;
  barrier all(workers + 1);
  std::atomic<void*> mailbox[16] = {};
  task_scope task("handed on");
  crew threads(workers, [&, token = task.token()](std::size_t self) {
    dice d(self);
    {
      const join_task joined(token);
      all.arrive_and_wait();
      for (int i = 0; i < rounds; ++i) {
        void* p = ::operator new(1'000);
        tidemark::escape(p);
        ::operator delete(mailbox[d.below(16)].exchange(p));
      }
      all.arrive_and_wait();
      if (self == 0) {
        for (auto& m : mailbox) ::operator delete(m.exchange(nullptr));
      }
    }
    all.arrive_and_wait();
  });
  all.arrive_and_wait();
  all.arrive_and_wait();
  all.arrive_and_wait();
  const window_usage u = closed(task);
  CHECK(counts_are(u, workers * rounds, workers * rounds * 1'000, workers * rounds, workers * rounds * 1'000));
  // A block in each box, and one in each hand on the way in and out.
  CHECK(u.peak_growth() <= (16 + 2 * static_cast<std::int64_t>(workers)) * 1'000 + u.error_bound_bytes);
}

TEST_CASE("joining and leaving while others read loses no event") {
  constexpr std::size_t workers = 4;
  constexpr std::uint64_t rounds = 1'000;
  std::atomic<std::size_t> running{workers};
  task_scope outer("outer");
  task_scope task("comes and goes");
  const task_token of_outer = outer.token();
  crew threads(workers, [&, token = task.token()](std::size_t self) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const heap_block outside(700);
      std::optional<join_task> first(std::in_place, (i + self) % 3 == 0 ? of_outer : token);
      std::optional<join_task> second(std::in_place, token);
      { const heap_block x(200'000); }
      const heap_block y(50);
      first.reset();
      const heap_block z(3);
      second.reset();
      const heap_block after(5'000);
    }
    running.fetch_sub(1);
  });
  std::uint64_t wrong = 0;
  window_usage last;
  while (running.load() > 0) {
    const window_usage u = so_far(task);
    const bool grows = u.allocations >= last.allocations && u.deallocations >= last.deallocations &&
                       u.allocated_bytes >= last.allocated_bytes &&
                       u.peak_bytes + u.error_bound_bytes >= last.peak_bytes;
    wrong += grows && u.peak_bytes >= u.exit_bytes && u.peak_bytes >= 0 && u.error_bound_bytes >= 0 ? 0U : 1U;
    last = u;
    std::this_thread::yield();
  }
  threads.join();
  CHECK(wrong == 0);
  const window_usage u = closed(task);
  const window_usage w = closed(outer);
  constexpr std::uint64_t turns = workers * rounds;
  std::uint64_t by_outer_first = 0;
  for (std::uint64_t self = 0; self < workers; ++self) {
    for (std::uint64_t i = 0; i < rounds; ++i) by_outer_first += (i + self) % 3 == 0 ? 1U : 0U;
  }
  CHECK(by_outer_first > 1'000);
  // y and z are freed after the worker has left.
  CHECK(counts_are(u, 3 * turns, turns * 200'053, turns, turns * 200'000));
  CHECK(counts_are(w, 3 * turns, turns * 200'053, turns, turns * 200'000));
  CHECK(u.peak_growth() >= 200'000 - u.error_bound_bytes);
}

TEST_CASE("tasks that open and close while workers join the latest of them leave nothing behind") {
  constexpr std::size_t workers = 4;
  constexpr int tasks = 300;
  std::vector<task_token> tokens(tasks);
  std::atomic<std::size_t> opened{0};
  std::atomic<std::size_t> worked_for{0};
  std::atomic<bool> is_over{false};
  crew threads(workers, [&](std::size_t self) {
    dice d(self);
    while (!is_over.load()) {
      const std::size_t n = opened.load();
      if (n == 0) continue;
      const join_task joined(tokens[n - 1]);
      const join_task again(tokens[n - 1]);
      for (std::uint64_t i = 1 + d.below(200); i > 0; --i) {
        const heap_block x(100);
      }
      worked_for.store(n);
      std::this_thread::yield();  // the one that opens must get the lock, too
    }
  });
  std::uint64_t wrong = 0;
  std::uint64_t events = 0;
  for (int i = 0; i < tasks; ++i) {
    std::optional<task_scope> outer;
    if (i % 2 == 0) outer.emplace("outer");
    task_scope task("latest");
    tokens[static_cast<std::size_t>(i)] = task.token();
    opened.fetch_add(1);
    const auto n = static_cast<std::size_t>(i) + 1;
    while (i % 4 == 3 && worked_for.load() != n) std::this_thread::yield();
    const window_usage u = i % 2 == 0 ? so_far(task) : closed(task);
    if (i % 4 == 0) outer.reset();  // before the one inside it
    // The sums are read one after the other while workers run, so that only what holds of each alone is certain.
    const std::int64_t most = static_cast<std::int64_t>(workers) * 100 + u.error_bound_bytes;
    wrong += u.error_bound_bytes >= 0 &&
                     u.error_bound_bytes <= 2 * static_cast<std::int64_t>(workers + 1) * settle_bytes &&
                     u.net_bytes() >= -most && u.net_bytes() <= most && u.peak_growth() <= most &&
                     u.peak_bytes >= u.exit_bytes && u.largest_bytes <= 100
                 ? 0U
                 : 1U;
    events += u.allocations;
  }
  is_over.store(true);
  threads.join();
  CHECK(wrong == 0);
  CHECK(events >= tasks / 4);
  // Whoever joins now is alone with this thread.
  task_scope task("quiet again");
  crew one(1, [token = task.token()](std::size_t) {
    const join_task joined(token);
    const heap_block x(100);
  });
  one.join();
  const window_usage u = closed(task);
  CHECK(counts_are(u, 1, 100, 1, 100));
  CHECK(u.error_bound_bytes == 2 * 2 * settle_bytes);
}

TEST_CASE("each worker's own task inside the shared one is exact, and their sums are the shared one's") {
  constexpr std::size_t workers = 6;
  constexpr std::uint64_t rounds = 200;
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::uint64_t> allocated{0};
  task_scope task("shared");
  crew threads(workers, [&, token = task.token()](std::size_t self) {
    dice d(self);
    const join_task joined(token);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      task_scope own("own");
      const std::size_t small = 1 + static_cast<std::size_t>(d.below(50'000));
      const std::size_t large = small + static_cast<std::size_t>(d.below(200'000));
      { const heap_block x(large); }
      const heap_block y(small);
      const window_usage u = closed(own);
      if (!counts_are(u, 2, small + large, 1, large) || u.peak_growth() != static_cast<std::int64_t>(large) ||
          u.largest_bytes != large || u.error_bound_bytes != 0) {
        wrong.fetch_add(1);
      }
      allocations.fetch_add(2);
      allocated.fetch_add(small + large);
    }
  });
  threads.join();
  CHECK(wrong.load() == 0);
  CHECK(counts_are(closed(task), allocations, allocated, allocations, allocated));
}

TEST_CASE("joins that other threads end while their own opens scopes and ends are each left once") {
  constexpr std::size_t pairs = 3;
  constexpr int rounds = 300;
  struct desk {
    std::mutex lock;
    std::unique_ptr<join_task> joined;
  };
  desk desks[pairs];
  std::atomic<std::size_t> running{pairs};
  task_scope task("given up");
  // Even ones join, time and again on new threads; odd ones end what they find.
  crew threads(2 * pairs, [&, token = task.token()](std::size_t self) {
    desk& at = desks[self / 2];
    const tidemark::quiet hidden;
    if (self % 2 == 1) {
      while (running.load() > 0) {
        std::unique_ptr<join_task> taken;
        const std::lock_guard<std::mutex> held(at.lock);
        taken = std::move(at.joined);
      }
      return;
    }
    for (int i = 0; i < rounds; ++i) {
      const auto work = [&] {
        const tidemark::quiet also_hidden;
        {
          auto made = std::make_unique<join_task>(token);
          const std::lock_guard<std::mutex> held(at.lock);
          at.joined = std::move(made);
        }
        for (int k = 0; k < 3; ++k) {
          const scope s("tidies up");
        }
      };
      if (i % 4 != 0) {
        work();
      } else {
        bare_thread short_lived(work);
      }
    }
    running.fetch_sub(1);
  });
  threads.join();
  for (desk& d : desks) d.joined.reset();
  CHECK(closed(task).error_bound_bytes <= 2 * static_cast<std::int64_t>(3 * pairs + 1) * settle_bytes);
  // Nobody is left in it: a thread in one of their slots works for no task of theirs.
  task_scope next("next");
  crew heirs(2 * pairs, [](std::size_t) { const heap_block x(100); });
  heirs.join();
  CHECK(closed(next).allocations == 0);
}

TEST_CASE("threads that end in a task, time and again, have all that they did counted") {
  constexpr std::size_t at_once = 4;
  constexpr std::uint64_t rounds = 50;
  task_scope task("short lives");
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    std::optional<join_task> joined[at_once];
    crew threads(at_once, [&, token = task.token()](std::size_t self) {
      joined[self].emplace(token);
      const heap_block x(1'000);
      const heap_block y(90'000);
    });
    wrong += so_far(task).allocations <= 2 * at_once * (i + 1) ? 0U : 1U;  // while they run and end
    threads.join();
    const window_usage u = so_far(task);
    const std::uint64_t ended = (i + 1) * at_once;
    wrong += counts_are(u, 2 * ended, ended * 91'000, 2 * ended, ended * 91'000) ? 0U : 1U;
  }
  CHECK(wrong == 0);
  const window_usage u = closed(task);
  CHECK(u.error_bound_bytes >= 2 * 2 * settle_bytes);
  CHECK(u.error_bound_bytes <= 2 * static_cast<std::int64_t>(at_once + 1) * settle_bytes);
  CHECK(u.peak_growth() <= static_cast<std::int64_t>(at_once) * 91'000 + u.error_bound_bytes);
}

namespace {

/// Threads that take work from a queue. An item carries the task that it is for.
class pool {
 public:
  struct item {
    task_token task;
    std::size_t bytes = 0;
    heap_block* into = nullptr;
  };

  pool(std::size_t size, std::size_t most_items) {
    items_.reserve(most_items);
    for (std::size_t i = 0; i < size; ++i) threads_.emplace_back([this] { run(); });
  }
  ~pool() {
    {
      const std::lock_guard<std::mutex> held(lock_);
      is_over_ = true;
    }
    has_work_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  void add(const item& i) {
    const std::lock_guard<std::mutex> held(lock_);
    items_.push_back(i);
    ++open_;
    has_work_.notify_one();
  }
  void wait() {
    std::unique_lock<std::mutex> held(lock_);
    is_idle_.wait(held, [this] { return open_ == 0; });
  }

 private:
  void run() {
    for (;;) {
      item mine;
      {
        std::unique_lock<std::mutex> held(lock_);
        has_work_.wait(held, [this] { return is_over_ || next_ < items_.size(); });
        if (next_ == items_.size()) return;
        mine = items_[next_++];
      }
      {
        const join_task joined(mine.task);
        const scope s("item");
        *mine.into = heap_block(mine.bytes);
        const heap_block passing(2 * mine.bytes);
      }
      const std::lock_guard<std::mutex> held(lock_);
      if (--open_ == 0) is_idle_.notify_all();
    }
  }

  std::mutex lock_;
  std::condition_variable has_work_;
  std::condition_variable is_idle_;
  std::vector<item> items_;
  std::size_t next_ = 0;
  std::size_t open_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("a pool that works for two tasks at a time gives each what is its own, and its paths") {
  constexpr std::size_t items = 400;
  std::atomic<int> in_a{0};
  std::atomic<int> in_b{0};
  std::atomic<int> in_others{0};
  const auto count = std::make_shared<tidemark::callback_sink>([&](const tidemark::scope_record& r) {
    if (r.name == "item") (r.path == "a/item" ? in_a : r.path == "b/item" ? in_b : in_others).fetch_add(1);
  });
  const auto attached = tidemark::attach(count);
  pool workers(4, 2 * items);
  std::optional<task_scope> a(std::in_place, "a");
  std::optional<task_scope> b;
  crew(1, [&](std::size_t) { b.emplace("b"); }).join();  // not inside the other
  std::vector<heap_block> kept;
  {
    const tidemark::quiet hidden;
    kept = std::vector<heap_block>(2 * items);
  }
  std::uint64_t bytes[2] = {};
  for (std::size_t i = 0; i < 2 * items; ++i) {
    const std::size_t n = 1 + i % 97 * 10;
    workers.add({(i % 2 == 0 ? a : b)->token(), n, &kept[i]});
    bytes[i % 2] += n;
  }
  workers.wait();
  const tidemark::scope_record of_a = a->close();
  const tidemark::scope_record of_b = b->close();
  CHECK(counts_are(usage_in(of_a, "task_heap"), 2 * items, 3 * bytes[0], items, 2 * bytes[0]));
  CHECK(counts_are(usage_in(of_b, "task_heap"), 2 * items, 3 * bytes[1], items, 2 * bytes[1]));
  CHECK(of_a.owned_bytes.value_or(-1) == static_cast<std::int64_t>(bytes[0]));
  CHECK(of_b.owned_bytes.value_or(-1) == static_cast<std::int64_t>(bytes[1]));
  CHECK(in_a.load() == items);
  CHECK(in_b.load() == items);
  CHECK(in_others.load() == 0);
  const tidemark::quiet hidden;
  kept.clear();
}

TEST_CASE("std::threads work for the task that they join") {
  constexpr std::size_t workers = 5;
  std::vector<heap_block> kept(workers);
  barrier all(workers + 1);
  std::optional<task_scope> task;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers; ++i) {
    threads.emplace_back([&, i] {
      all.arrive_and_wait();
      const join_task joined(task->token());
      kept[i] = heap_block(1'000 * (i + 1));
    });
  }
  task.emplace("step");
  all.arrive_and_wait();
  for (std::thread& t : threads) t.join();
  const tidemark::scope_record r = task->close();
  CHECK(counts_are(usage_in(r, "task_heap"), workers, 15'000, 0, 0));
  CHECK(r.owned_bytes.value_or(-1) == 15'000);
  CHECK(usage_in(r, "task_heap").largest_bytes == 5'000);
}
