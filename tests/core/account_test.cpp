// SPDX-License-Identifier: MIT
// Every number is compared with one computed from the list of all events, the way a reader would do it by
// hand.
#include <tidemark/core/account.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

using tidemark::usage;
using tidemark::window_usage;
using tidemark::detail::event_totals;
using tidemark::detail::shared_account;
using tidemark::detail::thread_account;
using tidemark::detail::window_node;

namespace {

class picking_dice : public dice {
 public:
  using dice::dice;

  template <class T>
  auto& pick(T& from) {
    return from[static_cast<std::size_t>(below(from.size()))];
  }
  template <class T>
  auto take(std::vector<T>& from) {
    const auto i = static_cast<std::ptrdiff_t>(below(from.size()));
    T taken = std::move(from[static_cast<std::size_t>(i)]);
    from.erase(from.begin() + i);
    return taken;
  }
};

/// Everything that happened to one account, and the answers worked out from it.
class history {
 public:
  void allocated(std::uint64_t n) { add(true, n); }
  void freed(std::uint64_t n) { add(false, n); }
  [[nodiscard]] std::size_t now() const { return events_.size(); }
  [[nodiscard]] std::int64_t live() const { return live_.back(); }

  [[nodiscard]] window_usage since(std::size_t start) const {
    window_usage u;
    u.entry_bytes = u.peak_bytes = live_[start];
    u.exit_bytes = live_.back();
    for (std::size_t i = start; i < events_.size(); ++i) {
      const event& e = events_[i];
      (e.is_allocation ? u.allocations : u.deallocations) += 1;
      (e.is_allocation ? u.allocated_bytes : u.freed_bytes) += e.bytes;
      if (e.is_allocation) u.largest_bytes = std::max(u.largest_bytes, e.bytes);
      u.peak_bytes = std::max(u.peak_bytes, live_[i + 1]);
    }
    return u;
  }

 private:
  struct event {
    bool is_allocation;
    std::uint64_t bytes;
  };
  void add(bool is_allocation, std::uint64_t n) {
    events_.push_back({is_allocation, n});
    live_.push_back(live_.back() + (is_allocation ? 1 : -1) * static_cast<std::int64_t>(n));
  }

  std::vector<event> events_;
  std::vector<std::int64_t> live_{0};  // before the first event, and after each
};

bool same_counts(const window_usage& a, const window_usage& b) {
  return a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

bool same(const window_usage& a, const window_usage& b) {
  return a.entry_bytes == b.entry_bytes && a.exit_bytes == b.exit_bytes && a.peak_bytes == b.peak_bytes &&
         same_counts(a, b) && a.largest_bytes == b.largest_bytes && a.counts_events && b.counts_events &&
         a.error_bound_bytes == b.error_bound_bytes;
}

/// A life is a window from the beginning.
bool same(const usage& life, const window_usage& w) {
  return life.live_bytes == w.exit_bytes && life.peak_bytes == w.peak_bytes &&
         life.live_blocks == static_cast<std::int64_t>(w.allocations) - static_cast<std::int64_t>(w.deallocations) &&
         life.allocations == w.allocations && life.deallocations == w.deallocations &&
         life.allocated_bytes == w.allocated_bytes && life.freed_bytes == w.freed_bytes &&
         life.error_bound_bytes == w.error_bound_bytes;
}

struct open_window {
  std::unique_ptr<window_node> node = std::make_unique<window_node>();
  std::size_t start = 0;
  std::int64_t most_slots = 0;  // for windows over several threads
};

/// Sizes around a batch, so that some events settle and some do not; 0 is a size too.
std::uint64_t size_near(picking_dice& d, std::int64_t batch) {
  const std::uint64_t small = d.below(21);
  return d.below(8) == 0 ? small + d.below(static_cast<std::uint64_t>(2 * batch + 50))
                         : small * (batch > 1'000 ? 997U : 1U);
}

}  // namespace

TEST_CASE("windows of one thread equal the history, whatever order they close in") {
  constexpr std::int64_t batches[] = {0, 5, 50, 65'536};
  thread_account account;
  shared_account shared;
  event_totals ever;
  std::uint64_t compared = 0;
  for (std::uint64_t trace = 0; trace < 1'000; ++trace) {
    CAPTURE(trace);
    picking_dice d(trace);
    const std::int64_t batch = batches[trace % 4];
    account.begin(shared, batch);
    history past;
    std::vector<std::uint64_t> blocks;
    std::vector<open_window> windows;
    const std::uint64_t steps = 1 + d.below(300);
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::uint64_t x = d.below(100);
      if (x < 35) {
        const std::uint64_t n = size_near(d, batch);
        account.allocated(n);
        past.allocated(n);
        blocks.push_back(n);
      } else if (x < 60) {
        // One in five is a block of another thread: its allocation is not in this history.
        const bool is_own = !blocks.empty() && d.below(5) != 0;
        const std::uint64_t n = is_own ? d.take(blocks) : size_near(d, batch);
        account.freed(n);
        past.freed(n);
      } else if (x < 74) {
        open_window w;
        w.start = past.now();
        account.open(*w.node);
        windows.push_back(std::move(w));
      } else if (x < 84 && !windows.empty()) {
        if (d.below(3) == 0) std::swap(windows.back(), d.pick(windows));  // mostly nested, sometimes out of order
        const open_window w = std::move(windows.back());
        windows.pop_back();
        CHECK(same(account.close(*w.node), past.since(w.start)));
        ++compared;
      } else if (x < 90 && !windows.empty()) {
        const open_window& w = d.pick(windows);
        CHECK(same(account.read(*w.node), past.since(w.start)));
        ++compared;
      } else if (x < 94 && !windows.empty()) {
        const open_window w = d.take(windows);
        account.drop(*w.node);
      } else if (x < 97) {
        account.settle();
      } else {
        CHECK(same(account.lifetime(), past.since(0)));
      }
      CHECK(account.live() == past.live());
    }
    while (!windows.empty()) {
      const open_window w = d.take(windows);
      CHECK(same(account.close(*w.node), past.since(w.start)));
      ++compared;
    }
    const window_usage whole = past.since(0);
    CHECK(same(account.lifetime(), whole));
    account.end();
    ever += event_totals{whole.allocations, whole.deallocations, whole.allocated_bytes, whole.freed_bytes};
    const usage process = shared.lifetime(batch);
    CHECK(process.live_bytes == static_cast<std::int64_t>(ever.allocated_bytes - ever.freed_bytes));
    CHECK(process.allocations == ever.allocations);
    CHECK(process.deallocations == ever.deallocations);
    CHECK(process.error_bound_bytes == 0);
  }
  CHECK(compared > 20'000);
}

TEST_CASE("shared windows with one thread are exact, and neither the process peak nor its reset disturbs them") {
  constexpr std::int64_t batches[] = {0, 5, 50, 65'536};
  std::uint64_t compared = 0;
  for (std::uint64_t trace = 0; trace < 1'000; ++trace) {
    CAPTURE(trace);
    picking_dice d(trace + 10'000);
    const std::int64_t batch = batches[trace % 4];
    thread_account account;
    shared_account shared;
    account.begin(shared, batch);
    history past;
    std::vector<std::uint64_t> blocks;
    std::vector<open_window> windows;
    std::vector<open_window> own_windows;  // of the thread, in between: neither kind disturbs the other
    std::size_t last_reset = 0;
    const std::uint64_t steps = 1 + d.below(300);
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::uint64_t x = d.below(100);
      if (x < 35) {
        const std::uint64_t n = size_near(d, batch);
        account.allocated(n);
        past.allocated(n);
        blocks.push_back(n);
      } else if (x < 62 && !blocks.empty()) {
        const std::uint64_t n = d.take(blocks);
        account.freed(n);
        past.freed(n);
      } else if (x < 72) {
        open_window w;
        w.start = past.now();
        account.settle();
        shared.open(*w.node);
        windows.push_back(std::move(w));
      } else if (x < 80 && !windows.empty()) {
        const open_window w = d.take(windows);
        account.settle();
        CHECK(same(shared.close(*w.node, batch), past.since(w.start)));
        ++compared;
      } else if (x < 86 && !windows.empty()) {
        const open_window& w = d.pick(windows);
        account.settle();
        CHECK(same(shared.read(*w.node, batch), past.since(w.start)));
        ++compared;
      } else if (x < 89) {
        account.settle();
        shared.reset_peak();
        last_reset = past.now();
      } else if (x < 92) {
        open_window w;
        w.start = past.now();
        account.open(*w.node);
        own_windows.push_back(std::move(w));
      } else if (x < 95 && !own_windows.empty()) {
        const open_window w = d.take(own_windows);
        CHECK(same(account.close(*w.node), past.since(w.start)));
      } else {
        account.settle();
        window_usage want = past.since(0);
        want.peak_bytes = past.since(last_reset).peak_bytes;
        CHECK(same(shared.lifetime(batch), want));
      }
    }
    while (!windows.empty()) {
      const open_window w = d.take(windows);
      account.settle();
      CHECK(same(shared.close(*w.node, batch), past.since(w.start)));
      ++compared;
    }
    account.end();
  }
  CHECK(compared > 20'000);
}

namespace {

/// An account, and what it must be holding back if its answers are true.
struct tracked_account {
  thread_account account;
  std::int64_t held_back = 0;
  event_totals ever;

  void allocated(std::uint64_t n) {
    ever += event_totals{1, 0, n, 0};
    if (account.try_allocated(n)) {
      held_back += static_cast<std::int64_t>(n);
    } else {
      account.settle_allocated(n);
      held_back = 0;
    }
  }
  void freed(std::uint64_t n) {
    ever += event_totals{0, 1, 0, n};
    if (account.try_freed(n)) {
      held_back -= static_cast<std::int64_t>(n);
    } else {
      account.settle_freed(n);
      held_back = 0;
    }
  }
  void settle() {
    account.settle();
    held_back = 0;
  }
};

bool same(const event_totals& a, const event_totals& b) {
  return a.allocations == b.allocations && a.deallocations == b.deallocations &&
         a.allocated_bytes == b.allocated_bytes && a.freed_bytes == b.freed_bytes;
}

/// Several accounts, driven in turn: what one thread at a time does, so that the true numbers are known at
/// every step.
class interleaving {
 public:
  explicit interleaving(std::uint64_t seed) : d_(seed) {
    constexpr std::int64_t batches[] = {0, 8, 64};
    batch_ = batches[d_.below(3)];
    most_ = 2 + static_cast<std::size_t>(d_.below(5));
    for (std::size_t i = 0; i < most_; ++i) begin_one();
  }

  void run() {
    const std::uint64_t steps = 100 + d_.below(400);
    for (std::uint64_t i = 0; i < steps; ++i) step();
    while (!windows_.empty()) close_one();
  }

  std::uint64_t compared = 0;
  std::int64_t worst_error = 0;
  std::int64_t begun_again = 0;

 private:
  void step() {
    const std::uint64_t x = d_.below(100);
    tracked_account& a = *d_.pick(in_use_);
    if (x < 42) {
      constexpr std::uint64_t sizes[] = {0, 1, 3, 9, 40, 200};
      const std::uint64_t n = sizes[d_.below(6)];
      a.allocated(n);
      past_.allocated(n);
      blocks_.push_back(n);
    } else if (x < 80 && !blocks_.empty()) {
      const std::uint64_t n = d_.take(blocks_);  // whoever allocated it
      a.freed(n);
      past_.freed(n);
    } else if (x < 85) {
      open_window w;
      w.start = past_.now();
      w.most_slots = static_cast<std::int64_t>(in_use_.size());
      a.settle();  // who opens or closes settles itself only
      shared_.open(*w.node);
      windows_.push_back(std::move(w));
    } else if (x < 90 && !windows_.empty()) {
      close_one();
    } else if (x < 95) {
      in_use_.size() > 1 && d_.below(2) == 0 ? end_one() : begin_one();
    }
    CHECK(std::abs(a.held_back) <= batch_);
    const usage process = shared_.lifetime(batch_);
    CHECK(process.live_bytes == past_.live());
    CHECK(same(event_totals{process.allocations, process.deallocations, process.allocated_bytes, process.freed_bytes},
               sum_of_all()));
  }

  void begin_one() {
    if (in_use_.size() == most_) return;
    std::unique_ptr<tracked_account> a;
    if (idle_.empty()) {
      a = std::make_unique<tracked_account>();
    } else {
      a = d_.take(idle_);
      ++begun_again;
    }
    a->account.begin(shared_, batch_);
    CHECK(a->account.live() == 0);
    CHECK(same(a->account.totals(), a->ever));
    CHECK(same(a->account.lifetime(), window_usage{}));
    in_use_.push_back(std::move(a));
    for (open_window& w : windows_) w.most_slots = std::max(w.most_slots, static_cast<std::int64_t>(in_use_.size()));
  }
  void end_one() {
    std::unique_ptr<tracked_account> a = d_.take(in_use_);
    a->account.end();
    a->held_back = 0;
    idle_.push_back(std::move(a));
  }

  void close_one() {
    d_.pick(in_use_)->settle();
    const open_window w = d_.take(windows_);
    const window_usage got = shared_.close(*w.node, batch_);
    const window_usage want = past_.since(w.start);
    const std::int64_t bound = w.most_slots > 1 ? 2 * w.most_slots * batch_ : 0;
    CHECK(got.error_bound_bytes == bound);
    CHECK(got.entry_bytes == want.entry_bytes);
    CHECK(got.exit_bytes == want.exit_bytes);
    CHECK(got.peak_bytes >= std::max(want.entry_bytes, want.exit_bytes));
    CHECK(std::abs(got.peak_bytes - want.peak_bytes) <= bound);
    CHECK(same_counts(got, want));
    // One that was held back at the opening is not told from one after it.
    CHECK(got.largest_bytes >= want.largest_bytes);
    CHECK(got.largest_bytes <= std::max(want.largest_bytes, static_cast<std::uint64_t>(bound == 0 ? 0 : 2 * batch_)));
    worst_error = std::max(worst_error, std::abs(got.peak_bytes - want.peak_bytes));
    ++compared;
  }

  [[nodiscard]] event_totals sum_of_all() const {
    event_totals sum;
    for (const auto& a : in_use_) sum += a->ever;
    for (const auto& a : idle_) sum += a->ever;
    return sum;
  }

  picking_dice d_;
  std::int64_t batch_ = 0;
  std::size_t most_ = 0;
  shared_account shared_;
  std::vector<std::unique_ptr<tracked_account>> in_use_;
  std::vector<std::unique_ptr<tracked_account>> idle_;
  std::vector<std::uint64_t> blocks_;
  std::vector<open_window> windows_;
  history past_;
};

}  // namespace

TEST_CASE("windows over many accounts have exact edges and counts, and a peak within their printed bound") {
  std::uint64_t compared = 0;
  std::int64_t worst_error = 0;
  std::int64_t begun_again = 0;
  for (std::uint64_t trace = 0; trace < 1'000; ++trace) {
    CAPTURE(trace);
    interleaving i(trace);
    i.run();
    compared += i.compared;
    worst_error = std::max(worst_error, i.worst_error);
    begun_again += i.begun_again;
  }
  CHECK(compared > 5'000);
  CHECK(begun_again > 1'000);
  CHECK(worst_error > 0);  // or the bound was never put to the test
}

namespace {

/// What the whole process holds, by the book: one number under one mutex, and the blocks in it.
struct book {
  struct block {
    std::size_t owner;
    std::uint64_t bytes;
  };

  std::mutex mutex;
  std::deque<block> blocks;
  event_totals totals;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  std::int64_t lowest = 0;   // since the last mark()
  std::int64_t highest = 0;  // since the last mark()
  std::size_t freed_by_owner = 0;

  void add(bool is_allocation, std::uint64_t n) {
    live += (is_allocation ? 1 : -1) * static_cast<std::int64_t>(n);
    totals += is_allocation ? event_totals{1, 0, n, 0} : event_totals{0, 1, 0, n};
    peak = std::max(peak, live);
    lowest = std::min(lowest, live);
    highest = std::max(highest, live);
  }
  void mark() { lowest = highest = live; }

  bool take_foreign(std::size_t self, block& taken) {
    const auto at = std::find_if(blocks.begin(), blocks.end(), [&](const block& b) { return b.owner != self; });
    if (at == blocks.end()) return false;
    taken = *at;
    blocks.erase(at);
    if (taken.owner == self) ++freed_by_owner;
    return true;
  }
};

constexpr std::uint64_t largest_size = 4'999;

/// `one_at_a_time`: each event and its entry in the book are one step, so that the book is exact at every
/// moment. Otherwise threads run freely, and the book lags by at most one event per thread.
void run_threads(std::size_t threads, std::int64_t batch, bool one_at_a_time) {
  CAPTURE(threads);
  CAPTURE(batch);
  CAPTURE(one_at_a_time);
  shared_account shared;
  book b;
  barrier gate(threads + 1);
  std::vector<std::unique_ptr<thread_account>> accounts;
  for (std::size_t i = 0; i <= threads; ++i) accounts.push_back(std::make_unique<thread_account>());
  thread_account& mine = *accounts[threads];
  mine.begin(shared, batch);
  const auto bound = 2 * static_cast<std::int64_t>(threads + 1) * batch;
  const auto lag = one_at_a_time ? 0 : static_cast<std::int64_t>(threads * largest_size);

  std::mutex turns;  // held for a whole event where they come one at a time
  const auto step = [&](auto event) {
    if (!one_at_a_time) return event();
    const std::lock_guard<std::mutex> turn(turns);
    event();
  };
  std::size_t running = threads;  // under the book's mutex
  const auto work = [&](std::size_t self) {
    thread_account& account = *accounts[self];
    account.begin(shared, batch);
    gate.arrive_and_wait();  // all accounts are in use
    picking_dice d(self * 1'000 + threads);
    bool is_empty = false;
    const auto free_one = [&] {
      book::block taken{};
      {
        const std::lock_guard<std::mutex> held(b.mutex);
        is_empty = !b.take_foreign(self, taken);
      }
      if (is_empty) return;
      account.freed(taken.bytes);
      const std::lock_guard<std::mutex> held(b.mutex);
      b.add(false, taken.bytes);
    };
    const auto allocate_one = [&] {
      const std::uint64_t n = d.below(largest_size + 1);
      account.allocated(n);
      const std::lock_guard<std::mutex> held(b.mutex);
      b.add(true, n);
      b.blocks.push_back({self, n});
    };
    for (int i = 0; i < 2'000; ++i) {
      if (d.below(100) < 52) {
        step(allocate_one);
      } else {
        step(free_one);
      }
    }
    gate.arrive_and_wait();  // nobody allocates any more
    is_empty = false;
    while (!is_empty) step(free_one);
    {
      const std::lock_guard<std::mutex> held(b.mutex);
      --running;
    }
    gate.arrive_and_wait();  // the last reading is taken while all accounts are still in use
    gate.arrive_and_wait();
    account.end();
  };

  window_node whole;
  mine.settle();
  shared.open(whole);
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) workers.emplace_back(work, i);
  gate.arrive_and_wait();

  // Windows come and go while the others work.
  const auto look = [&] {
    const auto marked = [&](auto what) {
      {
        const std::lock_guard<std::mutex> held(b.mutex);
        b.mark();
      }
      mine.settle();
      const std::int64_t got = what();
      const std::lock_guard<std::mutex> held(b.mutex);
      // With the others standing still, the edges are exact.
      const std::int64_t off = one_at_a_time ? 0 : bound + lag;
      return got >= b.lowest - off && got <= b.highest + off;
    };
    window_node w;
    std::int64_t entry = 0;
    window_usage u;
    std::int64_t live = 0;
    step([&] {
      CHECK(marked([&] {
        shared.open(w);
        entry = w.entry;
        return entry;
      }));
    });
    step([&] { CHECK(marked([&] { return shared.lifetime(batch).live_bytes; })); });
    step([&] {
      CHECK(marked([&] {
        u = shared.close(w, batch);
        live = u.exit_bytes;
        return live;
      }));
    });
    CHECK(u.entry_bytes == entry);
    CHECK(u.peak_bytes >= std::max(u.entry_bytes, u.exit_bytes));
    CHECK(u.error_bound_bytes == bound);
    const std::lock_guard<std::mutex> held(b.mutex);
    CHECK(u.peak_bytes <= b.peak + bound + lag);
  };
  for (int i = 0; i < 50; ++i) look();
  gate.arrive_and_wait();
  for (;;) {
    look();
    const std::lock_guard<std::mutex> held(b.mutex);
    if (running == 0) break;
  }
  gate.arrive_and_wait();

  mine.settle();
  const window_usage u = shared.close(whole, batch);
  const usage process = shared.lifetime(batch);
  CHECK(b.freed_by_owner == 0);
  CHECK(b.blocks.empty());
  CHECK(b.live == 0);
  CHECK(process.live_bytes == 0);
  CHECK(process.live_blocks == 0);
  CHECK(same(event_totals{process.allocations, process.deallocations, process.allocated_bytes, process.freed_bytes},
             b.totals));
  CHECK(process.error_bound_bytes == bound);
  CHECK(std::abs(process.peak_bytes - b.peak) <= bound + lag);
  CHECK(same(event_totals{u.allocations, u.deallocations, u.allocated_bytes, u.freed_bytes}, b.totals));
  CHECK(u.error_bound_bytes == bound);
  CHECK(std::abs(u.peak_bytes - b.peak) <= bound + lag);
  CHECK(b.peak > bound / 4);  // or the bound would allow anything

  gate.arrive_and_wait();
  for (std::thread& t : workers) t.join();
  mine.settle();
  CHECK(shared.lifetime(batch).live_bytes == 0);
  mine.end();
}

}  // namespace

TEST_CASE(
    "with real threads that free each other's blocks, live and totals are exact and the peak is within its "
    "bound") {
  for (std::size_t threads = 2; threads <= 8; ++threads) {
    for (const std::int64_t batch : {0, 1'000, 20'000}) {
      run_threads(threads, batch, true);
      run_threads(threads, batch, false);
    }
  }
}

TEST_CASE("the bound counts the accounts in use during the window, and is 0 with one") {
  constexpr std::int64_t batch = 100;
  shared_account shared;
  thread_account first;
  thread_account second;
  thread_account third;
  const auto bound_of = [&](auto during) {
    window_node w;
    shared.open(w);
    during();
    return shared.close(w, batch).error_bound_bytes;
  };
  first.begin(shared, batch);
  CHECK(bound_of([] {}) == 0);
  CHECK(shared.lifetime(batch).error_bound_bytes == 0);

  second.begin(shared, batch);
  third.begin(shared, batch);
  second.allocated(30);
  CHECK(bound_of([] {}) == 2 * 3 * batch);
  CHECK(bound_of([&] { third.end(); }) == 2 * 3 * batch);
  CHECK(bound_of([] {}) == 2 * 2 * batch);
  second.end();

  // One is left, and what the others did was settled when they ended.
  CHECK(bound_of([] {}) == 0);
  window_node alone;
  shared.open(alone);
  CHECK(alone.entry == 30);
  first.allocated(50);
  first.freed(50);
  first.settle();
  const window_usage u = shared.read(alone, batch);
  CHECK(u.error_bound_bytes == 0);
  CHECK(u.peak_bytes == 80);
  CHECK(u.largest_bytes == 50);

  // The process began with three; from its reset on it knows one.
  CHECK(shared.lifetime(batch).error_bound_bytes == 2 * 3 * batch);
  shared.reset_peak();
  CHECK(shared.lifetime(batch).error_bound_bytes == 0);

  // A second one that comes and goes between two looks is seen by the window that was open, and by no later
  // one.
  third.begin(shared, batch);
  third.end();
  CHECK(shared.close(alone, batch).error_bound_bytes == 2 * 2 * batch);
  CHECK(bound_of([] {}) == 0);
  CHECK(bound_of([&] {
          first.end();
          second.begin(shared, batch);
        }) == 0);
  second.freed(30);
  second.end();
  CHECK(shared.lifetime(batch).live_bytes == 0);
}

TEST_CASE("windows left open when a thread ends are forgotten") {
  shared_account shared;
  thread_account account;
  account.begin(shared, 50);
  window_node left_open;
  account.open(left_open);
  account.allocated(40);
  account.end();
  account.begin(shared, 50);
  const std::int64_t peak_then = left_open.peak;
  account.allocated(500);
  window_node w;
  account.open(w);
  account.freed(200);
  const window_usage u = account.close(w);
  CHECK(u.entry_bytes == 500);
  CHECK(u.exit_bytes == 300);
  CHECK(account.lifetime().peak_bytes == 500);
  CHECK(left_open.peak == peak_then);
  CHECK(account.windows().newest()->older == nullptr);
  account.settle();
  CHECK(shared.lifetime(50).live_bytes == 340);
  account.end();
}
