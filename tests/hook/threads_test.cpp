// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>

#include "hooked.hpp"
#include "test.hpp"

namespace {

using hooked::counts;

using both_heaps = tidemark::basic_scope<tidemark::meter::thread_heap, tidemark::meter::process_heap>;

void* make(std::size_t n) {
  void* p = ::operator new(n);
  tidemark::escape(p);
  return p;
}

// ---- the model: every path that three levels of five names can make, and what each owns ----

constexpr const char* names[] = {"load", "forward", "backward", "step", "log"};
constexpr int name_count = 5;
constexpr int deepest = 3;  // levels
constexpr int path_count = 1 + 5 + 25 + 125;
constexpr int root = 0;

constexpr int child_of(int path, int name) { return path * name_count + name + 1; }
constexpr int parent_of(int path) { return (path - 1) / name_count; }
constexpr int level_of(int path) { return path == root ? 0 : 1 + level_of(parent_of(path)); }
static_assert(level_of(path_count - 1) == deepest && level_of(child_of(root, 4)) == 1);

struct block {
  void* p = nullptr;
  std::size_t size = 0;
  int path = root;
};

/// What each path owns, and everything: changed by all threads.
class reference {
 public:
  void add(const std::int64_t (&changes)[path_count], std::int64_t blocks) {
    const std::lock_guard<std::mutex> held(mutex_);
    for (int i = 0; i < path_count; ++i) owned_[i] += changes[i];
    blocks_ += blocks;
  }
  [[nodiscard]] std::int64_t owned_with_below(int path) const {
    std::int64_t sum = owned_[path];
    if (level_of(path) == deepest) return sum;
    for (int name = 0; name < name_count; ++name) sum += owned_with_below(child_of(path, name));
    return sum;
  }
  [[nodiscard]] std::int64_t blocks() const { return blocks_; }

 private:
  mutable std::mutex mutex_;
  std::int64_t owned_[path_count] = {};
  std::int64_t blocks_ = 0;
};

/// Blocks on their way to another thread.
class mailbox {
 public:
  bool try_put(const block& b) {
    const std::lock_guard<std::mutex> held(mutex_);
    if (used_ == capacity) return false;
    blocks_[used_++] = b;
    return true;
  }
  bool try_take(block& b) {
    const std::lock_guard<std::mutex> held(mutex_);
    if (used_ == 0) return false;
    b = blocks_[--used_];
    return true;
  }

 private:
  static constexpr int capacity = 64;
  std::mutex mutex_;
  block blocks_[capacity];
  int used_ = 0;
};

/// A scope and what its thread reading must say.
struct model_scope {
  std::optional<tidemark::scope> real;
  int path = root;
  int depth = 0;
  std::uint64_t opened = 0;  // a larger number is further in
  std::int64_t entry = 0;
  std::int64_t peak = 0;
  std::uint64_t largest = 0;
  std::uint64_t allocations = 0;
  std::uint64_t deallocations = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t freed_bytes = 0;

  [[nodiscard]] bool agrees(const tidemark::window_usage& u, std::int64_t live, std::int64_t offset) const {
    return u.entry_bytes == entry + offset && u.exit_bytes == live + offset && u.peak_bytes == peak + offset &&
           u.largest_bytes == largest && u.allocations == allocations && u.deallocations == deallocations &&
           u.allocated_bytes == allocated_bytes && u.freed_bytes == freed_bytes && u.error_bound_bytes == 0;
  }
};

constexpr int thread_count = 8;
constexpr int rounds = 10;
constexpr int steps_per_round = 12'500;
static_assert(thread_count * rounds * steps_per_round == 1'000'000);

class worker {
 public:
  worker(int number, mailbox (&mailboxes)[thread_count], reference& expected)
      : number_(number), mailboxes_(mailboxes), expected_(expected), dice_(static_cast<std::uint64_t>(number) + 1) {}

  void start() { offset_ = tidemark::thread_usage()->live_bytes; }

  void run_round() {
    for (int i = 0; i < steps_per_round; ++i) step();
    publish();
  }

  void finish() {
    for (block& b : blocks_) {
      if (b.p != nullptr) free(b);
    }
    for (block b; mailboxes_[number_].try_take(b);) free(b);
    for (model_scope& s : scopes_) {
      if (s.real) close(s);
    }
    publish();
  }

  [[nodiscard]] int mismatches() const { return mismatches_; }
  [[nodiscard]] int closed() const { return closed_; }

 private:
  static constexpr int block_places = 200;
  static constexpr int scope_places = deepest;  // so that no path is deeper than the model's

  void step() {
    switch (dice_.below(16)) {
      case 0:
      case 1:
        return toggle(scopes_[dice_.below(scope_places)]);
      case 2:
      case 3:
        return give();
      case 4:
      case 5:
      case 6:
        return take();
      default:
        return toggle(blocks_[dice_.below(block_places)]);
    }
  }

  [[nodiscard]] const model_scope* innermost() const {
    const model_scope* found = nullptr;
    for (const model_scope& s : scopes_) {
      if (s.real && (found == nullptr || s.opened > found->opened)) found = &s;
    }
    return found;
  }
  [[nodiscard]] int current_path() const { return innermost() == nullptr ? root : innermost()->path; }

  void toggle(model_scope& s) {
    if (s.real) return close(s);
    const model_scope* outer = innermost();
    const int outer_path = current_path();
    if (level_of(outer_path) == deepest) return;
    const int name = static_cast<int>(dice_.below(name_count));
    s.path = child_of(outer_path, name);
    s.depth = outer == nullptr ? 0 : outer->depth + 1;
    s.opened = ++openings_;
    s.entry = s.peak = live_;
    s.largest = s.allocations = s.deallocations = s.allocated_bytes = s.freed_bytes = 0;
    s.real.emplace(names[name]);
  }

  void close(model_scope& s) {
    {
      const tidemark::scope_record r = s.real->close();
      const tidemark::reading<tidemark::window_usage>& u = r.meters[0].usage;
      const bool agrees =
          u.has_value() && s.agrees(*u, live_, offset_) && r.depth == s.depth && is_text_of(r.path, s.path);
      if (!agrees) ++mismatches_;
      ++closed_;
    }
    s.real.reset();
  }

  // Compares without making a string, which would be an event.
  static bool is_text_of(std::string_view text, int path) {
    for (; path != root; path = parent_of(path)) {
      const std::string_view own = names[(path - 1) % name_count];
      if (text.size() < own.size() || text.substr(text.size() - own.size()) != own) return false;
      text.remove_suffix(own.size());
      if (parent_of(path) == root) break;
      if (text.empty() || text.back() != '/') return false;
      text.remove_suffix(1);
    }
    return text.empty();
  }

  void toggle(block& b) {
    if (b.p != nullptr) return free(b);
    b.size = random_size();
    b.path = current_path();
    b.p = make(b.size);
    event(b, true);
  }

  void free(block& b) {
    event(b, false);
    ::operator delete(b.p);
    b.p = nullptr;
  }

  void give() {
    block& b = blocks_[dice_.below(block_places)];
    if (b.p != nullptr && mailboxes_[dice_.below(thread_count)].try_put(b)) b.p = nullptr;
  }

  void take() {
    block b;
    if (mailboxes_[number_].try_take(b)) free(b);
  }

  [[nodiscard]] std::size_t random_size() {
    switch (dice_.below(64)) {
      case 0:
        return dice_.below(1'000'000);  // beyond what may be held back
      case 1:
      case 2:
        return 65'500 + dice_.below(80);
      case 3:
        return 0;
      default:
        return dice_.below(700);
    }
  }

  // A block's bytes belong to the path that made it, wherever it dies.
  void event(const block& b, bool is_birth) {
    const auto bytes = is_birth ? static_cast<std::int64_t>(b.size) : -static_cast<std::int64_t>(b.size);
    live_ += bytes;
    changes_[b.path] += bytes;
    blocks_made_ += is_birth ? 1 : -1;
    for (model_scope& s : scopes_) {
      if (!s.real) continue;
      if (live_ > s.peak) s.peak = live_;
      if (is_birth && b.size > s.largest) s.largest = b.size;
      ++(is_birth ? s.allocations : s.deallocations);
      (is_birth ? s.allocated_bytes : s.freed_bytes) += b.size;
    }
  }

  void publish() {
    expected_.add(changes_, blocks_made_);
    for (std::int64_t& c : changes_) c = 0;
    blocks_made_ = 0;
  }

  int number_;
  mailbox (&mailboxes_)[thread_count];
  reference& expected_;
  hooked::dice dice_;
  block blocks_[block_places];
  model_scope scopes_[scope_places];
  std::int64_t changes_[path_count] = {};
  std::int64_t blocks_made_ = 0;
  std::int64_t live_ = 0;
  std::int64_t offset_ = 0;  // what the thread's account held before
  std::uint64_t openings_ = 0;
  int mismatches_ = 0;
  int closed_ = 0;
};

/// What the library says that a path and all below it own; the scope opened for it is at once closed again.
std::int64_t owned_bytes_of(int path) {
  if (path == root) return 0;
  if (level_of(path) == 1) return tidemark::scope(names[path - 1]).close().owned_bytes.value_or(-1);
  // The outer ones first, whatever the level.
  const int middle = parent_of(path);
  if (level_of(path) == 2) {
    const tidemark::scope outer(names[middle - 1]);
    return tidemark::scope(names[(path - 1) % name_count]).close().owned_bytes.value_or(-1);
  }
  const tidemark::scope outer(names[parent_of(middle) - 1]);
  const tidemark::scope inner(names[(middle - 1) % name_count]);
  return tidemark::scope(names[(path - 1) % name_count]).close().owned_bytes.value_or(-1);
}

}  // namespace

TEST_CASE("eight threads' million random events give exact windows, and every path owns exactly its blocks") {
  const counts start;
  int mismatches = 0;
  int closed = 0;
  int wrong_owners = 0;
  std::int64_t wrong_process = 0;
  {
    mailbox mailboxes[thread_count];
    reference expected;
    hooked::barrier all(thread_count + 1);
    std::vector<std::unique_ptr<worker>> workers;
    for (int i = 0; i < thread_count; ++i) workers.push_back(std::make_unique<worker>(i, mailboxes, expected));
    std::vector<std::thread> threads;
    threads.reserve(thread_count);
    for (int i = 0; i < thread_count; ++i) {
      threads.emplace_back([&, w = workers[static_cast<std::size_t>(i)].get()] {
        w->start();
        for (int round = 0; round < rounds; ++round) {
          all.arrive_and_wait();
          w->run_round();
          all.arrive_and_wait();  // this round is over; the caller compares until the next one begins
        }
        all.arrive_and_wait();
        w->finish();
        all.arrive_and_wait();
      });
    }
    // The workers' threads are started, and have no events until the first round.
    const tidemark::usage before_rounds = *tidemark::process_usage();
    for (int round = 0; round <= rounds; ++round) {
      all.arrive_and_wait();
      all.arrive_and_wait();
      std::int64_t live = 0;
      for (int path = 0; path < path_count; ++path) {
        if (level_of(path) == 1) live += expected.owned_with_below(path);
        if (path != root && owned_bytes_of(path) != expected.owned_with_below(path)) ++wrong_owners;
      }
      const tidemark::usage now = *tidemark::process_usage();
      const std::int64_t all_owned = expected.owned_with_below(root);
      const bool is_last = round == rounds;  // the threads are ending, which is events too
      if (!is_last && (now.live_bytes - before_rounds.live_bytes != all_owned ||
                       now.live_blocks - before_rounds.live_blocks != expected.blocks())) {
        ++wrong_process;
      }
      if (is_last && (all_owned != 0 || live != 0 || expected.blocks() != 0)) ++wrong_process;
    }
    for (std::thread& t : threads) t.join();
    for (const std::unique_ptr<worker>& w : workers) {
      mismatches += w->mismatches();
      closed += w->closed();
    }
  }
  const counts after;
  CHECK(mismatches == 0);
  CHECK(closed > 10'000);
  CHECK(wrong_owners == 0);
  CHECK(wrong_process == 0);
  CHECK(after.process.live_bytes == start.process.live_bytes);
  CHECK(after.process.live_blocks == start.process.live_blocks);
  CHECK(after.self.stamp_bytes == start.self.stamp_bytes);
  CHECK(after.self.foreign_frees == start.self.foreign_frees);
  CHECK(after.process.peak_bytes >= after.process.live_bytes);
}

TEST_CASE("a process window over threads that run freely is off by no more than it says") {
  constexpr int blocks_each = 200;
  hooked::barrier all(thread_count + 1);
  std::atomic<std::int64_t> top{0};
  std::vector<std::thread> threads;
  threads.reserve(thread_count);
  for (int number = 0; number < thread_count; ++number) {
    threads.emplace_back([&, number] {
      hooked::dice dice(static_cast<std::uint64_t>(number) + 9);
      block blocks[blocks_each];
      ::operator delete(make(1));  // the thread has its slot before the window opens
      all.arrive_and_wait();
      all.arrive_and_wait();
      std::int64_t bytes = 0;
      for (block& b : blocks) {
        b.size = dice.below(20) == 0 ? dice.below(200'000) : dice.below(500);
        b.p = make(b.size);
        bytes += static_cast<std::int64_t>(b.size);
      }
      top.fetch_add(bytes);
      all.arrive_and_wait();
      for (block& b : blocks) ::operator delete(b.p);
      all.arrive_and_wait();
      all.arrive_and_wait();  // a thread that ends has events
    });
  }
  all.arrive_and_wait();
  tidemark::meter::process_heap::window window;
  all.arrive_and_wait();
  all.arrive_and_wait();
  all.arrive_and_wait();
  const tidemark::reading<tidemark::window_usage> u = window.close();
  all.arrive_and_wait();
  for (std::thread& t : threads) t.join();
  REQUIRE(u.has_value());
  constexpr std::int64_t settle_bytes = 65'536;
  CHECK(u->error_bound_bytes == 2 * (thread_count + 1) * settle_bytes);
  CHECK(u->net_bytes() == 0);  // at rest nothing is missing
  CHECK(u->peak_growth() - top.load() <= u->error_bound_bytes);
  CHECK(top.load() - u->peak_growth() <= u->error_bound_bytes);
  CHECK(u->allocations == static_cast<std::uint64_t>(thread_count * blocks_each));
  CHECK(u->deallocations == u->allocations);
  CHECK(u->freed_bytes == static_cast<std::uint64_t>(top.load()));
}

// ---- scopes that end on another thread ----

namespace {

/// What `f` returns when it runs on a thread of its own.
template <class F>
auto elsewhere(F f) {
  std::optional<decltype(f())> result;
  std::thread([&] { result.emplace(f()); }).join();
  return *std::move(result);
}

bool says_thread(const tidemark::reading<tidemark::window_usage>& r) {
  return !r.has_value() && r.why().find("thread") != std::string_view::npos;
}

/// The thread's innermost path: that of a scope opened now, without the scope's own name.
std::string current_path() {
  const std::string path = tidemark::scope("here").close().path;
  return path == "here" ? "" : path.substr(0, path.size() - 5);
}

}  // namespace

TEST_CASE("a scope closed on another thread has no thread reading, and a right one of the process") {
  both_heaps s("closed elsewhere");
  void* p = make(3'000);
  const tidemark::reading<tidemark::window_usage> read_there = elsewhere([&] { return s.usage(); });
  const tidemark::scope_record r = elsewhere([&] {
    void* q = make(1'000'000);
    ::operator delete(q);
    return s.close();
  });
  CHECK(says_thread(read_there));
  REQUIRE(r.find("thread_heap") != nullptr);
  REQUIRE(r.find("process_heap") != nullptr);
  CHECK(says_thread(r.find("thread_heap")->usage));
  const tidemark::reading<tidemark::window_usage>& u = r.find("process_heap")->usage;
  REQUIRE(u.has_value());
  CHECK(u->largest_bytes == 1'000'000);
  CHECK(u->peak_growth() >= 1'003'000 - u->error_bound_bytes);
  CHECK(u->net_bytes() >= 3'000);
  CHECK(u->net_bytes() < 4'000);  // and what starting a thread takes
  CHECK(r.path == "closed elsewhere");
  CHECK(r.owned_bytes.value_or(-1) >= 3'000);
  CHECK(!s.usage().has_value());
  ::operator delete(p);
}

TEST_CASE("after a close elsewhere the opener's windows stay exact, and its next open or close knows its path") {
  std::optional<tidemark::scope> outer("outer");
  void* before = make(100);
  std::optional<tidemark::scope> inner("inner");
  void* within = make(1'000);
  elsewhere([&] {
    inner.reset();
    return true;
  });
  // Whoever owns this one, the windows count it.
  tidemark::meter::thread_heap::window window;
  void* between = make(10'000);
  const tidemark::window_usage first = window.close().value();
  CHECK(first.net_bytes() == 10'000);
  CHECK(first.peak_growth() == 10'000);
  CHECK(first.allocations == 1);
  CHECK(current_path() == "outer");

  void* after = make(7);
  {
    tidemark::scope next("next");
    ::operator delete(make(500));
    const tidemark::scope_record r = next.close();
    CHECK(r.path == "outer/next");
    CHECK(r.depth == 1);
    CHECK(r.meters[0].usage->net_bytes() == 0);
    CHECK(r.meters[0].usage->peak_growth() == 500);
    CHECK(r.meters[0].usage->largest_bytes == 500);
  }
  CHECK(current_path() == "outer");
  ::operator delete(before);
  ::operator delete(within);
  ::operator delete(between);
  const tidemark::scope_record r = outer->close();
  CHECK(r.meters[0].usage.has_value());
  CHECK(r.owned_bytes.value_or(-1) == 7);
  CHECK(current_path() == "");
  ::operator delete(after);
}

TEST_CASE("an outer scope closed elsewhere leaves the inner one as it is") {
  std::optional<tidemark::scope> outer("taken away");
  tidemark::scope inner("kept");
  ::operator delete(make(900));
  elsewhere([&] {
    outer.reset();
    return true;
  });
  CHECK(current_path() == "taken away/kept");
  tidemark::meter::thread_heap::window window;
  void* p = make(300);
  const tidemark::window_usage u = window.close().value();
  const tidemark::scope_record r = inner.close();
  ::operator delete(p);
  CHECK(u.net_bytes() == 300);
  CHECK(r.path == "taken away/kept");
  CHECK(r.meters[0].usage->peak_growth() >= 900);
  CHECK(r.meters[0].usage->largest_bytes >= 900);
  CHECK(r.owned_bytes.value_or(-1) == 300);
  CHECK(current_path() == "");
}

TEST_CASE("threads that close each other's scopes all the time keep exact windows and paths of their own") {
  constexpr int closers = 4;
  constexpr int turns = 3'000;
  struct exchange {
    std::mutex mutex;
    std::unique_ptr<tidemark::scope> places[16];
  };
  exchange shared;
  std::atomic<int> mismatches{0};
  const counts start;
  {
    std::vector<std::thread> threads;
    for (int number = 0; number < closers; ++number) {
      threads.emplace_back([&, number] {
        hooked::dice dice(static_cast<std::uint64_t>(number) + 3);
        for (int i = 0; i < turns; ++i) {
          tidemark::scope own("own");
          void* p = make(2'000);
          {
            std::unique_ptr<tidemark::scope> given;
            {
              const tidemark::quiet hidden;
              given = std::make_unique<tidemark::scope>("given away");
            }
            void* q = make(100);
            {
              const std::lock_guard<std::mutex> held(shared.mutex);
              shared.places[dice.below(16)].swap(given);
            }
            given.reset();  // another's, or one of this thread's own; a hidden block, so no event
            ::operator delete(q);
          }
          ::operator delete(make(30'000));
          const tidemark::scope_record r = own.close();
          const tidemark::reading<tidemark::window_usage>& u = r.meters[0].usage;
          const bool agrees = u.has_value() && u->net_bytes() == 2'000 && u->peak_growth() == 32'000 &&
                              u->allocations == 3 && u->deallocations == 2 && u->largest_bytes == 30'000 &&
                              r.name == "own";
          if (!agrees) mismatches.fetch_add(1);
          ::operator delete(p);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    for (std::unique_ptr<tidemark::scope>& s : shared.places) s.reset();
  }
  const counts after;
  CHECK(mismatches.load() == 0);
  CHECK(after.process.live_bytes == start.process.live_bytes);
  CHECK(after.process.live_blocks == start.process.live_blocks);
  CHECK(after.self.foreign_frees == start.self.foreign_frees);
  CHECK(current_path() == "");
}
