// SPDX-License-Identifier: MIT
#define TIDEMARK_OPT_SETTLE_BYTES 0
#include <tidemark/hook/global_new.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <tidemark/scope/meter.hpp>

#include "hooked.hpp"
#include "test.hpp"

namespace {

constexpr int thread_count = 4;

/// Runs `f(number)` in four threads. Once all of them run, the caller has no events until they end.
template <class F>
void in_four_threads(F f) {
  std::vector<std::thread> threads;
  threads.reserve(thread_count);  // growing it would free the old piece while the threads run
  for (int i = 0; i < thread_count; ++i) threads.emplace_back(f, i);
  for (std::thread& t : threads) t.join();
}

void* make(std::size_t n) {
  void* p = ::operator new(n);
  tidemark::escape(p);
  return p;
}

/// What a process window must say, followed event by event.
struct model_window {
  std::optional<tidemark::meter::process_heap::window> real;
  std::int64_t entry = 0;
  std::int64_t peak = 0;
  std::uint64_t largest = 0;
  std::uint64_t allocations = 0;
  std::uint64_t deallocations = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t freed_bytes = 0;

  // `offset` is what the process held before the model began.
  [[nodiscard]] bool agrees(const tidemark::window_usage& u, std::int64_t live, std::int64_t offset) const {
    return u.entry_bytes == entry + offset && u.exit_bytes == live + offset && u.peak_bytes == peak + offset &&
           u.largest_bytes == largest && u.allocations == allocations && u.deallocations == deallocations &&
           u.allocated_bytes == allocated_bytes && u.freed_bytes == freed_bytes && u.error_bound_bytes == 0;
  }
};

/// The process, one event at a time: the lock makes the order of events known.
class model_process {
 public:
  explicit model_process(std::int64_t offset) : offset_(offset) {}

  void step(hooked::dice& dice) {
    const std::lock_guard<std::mutex> held(mutex_);
    switch (dice.below(8)) {
      case 0:
        return toggle_window(windows_[dice.below(window_places)]);
      case 1:
        return read(windows_[dice.below(window_places)]);
      default:
        return toggle_block(dice);
    }
  }

  void finish() {
    for (model_window& w : windows_) {
      if (w.real) toggle_window(w);
    }
    for (void*& p : blocks_) ::operator delete(p);
  }

  [[nodiscard]] int mismatches() const { return mismatches_; }
  [[nodiscard]] int comparisons() const { return comparisons_; }

 private:
  static constexpr std::size_t window_places = 6;
  static constexpr std::size_t block_places = 200;

  void toggle_window(model_window& w) {
    if (w.real) {
      compare(w, w.real->close());
      w.real.reset();
      return;
    }
    w.entry = w.peak = live_;
    w.largest = w.allocations = w.deallocations = w.allocated_bytes = w.freed_bytes = 0;
    w.real.emplace();
  }

  void read(const model_window& w) {
    if (w.real) compare(w, w.real->usage());
  }

  void compare(const model_window& w, const tidemark::reading<tidemark::window_usage>& r) {
    ++comparisons_;
    if (!r.has_value() || !w.agrees(*r, live_, offset_)) ++mismatches_;
  }

  void toggle_block(hooked::dice& dice) {
    const std::size_t place = dice.below(block_places);
    const bool is_birth = blocks_[place] == nullptr;
    if (is_birth) {
      sizes_[place] = dice.below(20) == 0 ? dice.below(200'000) : dice.below(300);
      blocks_[place] = make(sizes_[place]);
    } else {
      ::operator delete(blocks_[place]);
      blocks_[place] = nullptr;
    }
    const std::size_t n = sizes_[place];
    live_ += is_birth ? static_cast<std::int64_t>(n) : -static_cast<std::int64_t>(n);
    for (model_window& w : windows_) {
      if (!w.real) continue;
      if (live_ > w.peak) w.peak = live_;
      if (is_birth && n > w.largest) w.largest = n;
      ++(is_birth ? w.allocations : w.deallocations);
      (is_birth ? w.allocated_bytes : w.freed_bytes) += n;
    }
  }

  std::mutex mutex_;
  std::int64_t offset_;
  std::int64_t live_ = 0;
  model_window windows_[window_places];
  void* blocks_[block_places] = {};
  std::size_t sizes_[block_places] = {};
  int mismatches_ = 0;
  int comparisons_ = 0;
};

}  // namespace

TEST_CASE("process windows are exact while four threads take turns, whoever opens and closes them") {
  std::optional<model_process> model;
  hooked::barrier all(thread_count);
  in_four_threads([&](int number) {
    all.arrive_and_wait();  // every thread has started, and so has allocated what it needs
    if (number == 0) model.emplace(tidemark::process_usage()->live_bytes);
    all.arrive_and_wait();
    hooked::dice dice(static_cast<std::uint64_t>(number) + 1);
    for (int i = 0; i < 5'000; ++i) model->step(dice);
    all.arrive_and_wait();
    if (number == 0) model->finish();
    all.arrive_and_wait();
  });
  CHECK(model->mismatches() == 0);
  CHECK(model->comparisons() > 1'000);
}

TEST_CASE("a peak that four threads reach together is exact, and so are all counts, without a bound") {
  constexpr int rounds = 50;
  constexpr int blocks_each = 60;
  hooked::barrier all(thread_count);
  std::optional<tidemark::meter::process_heap::window> window;
  std::atomic<int> mismatches{0};
  std::atomic<std::int64_t> round_bytes{0};
  in_four_threads([&](int number) {
    hooked::dice dice(static_cast<std::uint64_t>(number) + 77);
    void* blocks[blocks_each] = {};
    for (int round = 0; round < rounds; ++round) {
      all.arrive_and_wait();
      if (number == 0) {
        round_bytes.store(0);
        window.emplace();
      }
      all.arrive_and_wait();
      // Up together, then down together: the top is the sum, whatever the interleaving.
      for (void*& p : blocks) {
        const std::size_t n = dice.below(2'000);
        p = make(n);
        round_bytes.fetch_add(static_cast<std::int64_t>(n));
      }
      all.arrive_and_wait();
      for (void* p : blocks) ::operator delete(p);
      all.arrive_and_wait();
      if (number != 0) continue;
      const tidemark::reading<tidemark::window_usage> u = window->close();
      window.reset();
      constexpr auto events = static_cast<std::uint64_t>(thread_count * blocks_each);
      const bool agrees = u.has_value() && u->error_bound_bytes == 0 && u->net_bytes() == 0 &&
                          u->peak_growth() == round_bytes.load() && u->allocations == events &&
                          u->deallocations == events && u->freed_bytes == u->allocated_bytes &&
                          u->allocated_bytes == static_cast<std::uint64_t>(round_bytes.load());
      if (!agrees) mismatches.fetch_add(1);
    }
    all.arrive_and_wait();  // a thread that ends has events
  });
  CHECK(mismatches.load() == 0);
}

TEST_CASE("the process's live bytes return to their start after threads that ran freely") {
  const tidemark::usage before = *tidemark::process_usage();
  in_four_threads([](int number) {
    hooked::dice dice(static_cast<std::uint64_t>(number) + 5);
    void* blocks[100] = {};
    for (int i = 0; i < 20'000; ++i) {
      void*& p = blocks[dice.below(100)];
      ::operator delete(p);
      p = make(dice.below(3'000));
    }
    for (void* p : blocks) ::operator delete(p);
  });
  const tidemark::usage after = *tidemark::process_usage();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.live_blocks == before.live_blocks);
  CHECK(after.error_bound_bytes == 0);
}
