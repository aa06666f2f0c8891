// SPDX-License-Identifier: MIT
// Random traces of tasks, and what a person would write down beside them. Threads take turns, one at a time, so that the
// order of the events, and with it every true number, is known.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <pthread.h>

#include <tidemark/scope/task.hpp>
#include <tidemark/testing/detail/extent_window.hpp>

#include "dice.hpp"
#include "heap_block.hpp"
#include "test.hpp"

namespace task_traces {

/// "a/b/a", in place: names have one letter.
struct short_path {
  char text[40] = {};
  std::size_t size = 0;
  int depth = -1;

  [[nodiscard]] std::string_view view() const { return {text, size}; }
  [[nodiscard]] short_path child(char name) const {
    short_path p = *this;
    if (p.size > 0) p.text[p.size++] = '/';
    p.text[p.size++] = name;
    ++p.depth;
    return p;
  }
  [[nodiscard]] bool is_within(const short_path& top) const {
    return size >= top.size && std::memcmp(text, top.text, top.size) == 0 &&
           (size == top.size || text[top.size] == '/');
  }
};

/// What is true of one task.
struct true_task {
  bool is_open = false;
  int parent = -1;
  short_path path;
  std::int64_t live = 0, peak = 0;
  std::uint64_t allocations = 0, deallocations = 0, allocated_bytes = 0, freed_bytes = 0, largest = 0;
  std::int64_t most_members = 0;
};

/// What is true of a window over a task that someone else opened.
struct true_window {
  int task = -1;
  true_task at_entry;
  std::int64_t peak = 0;
  std::uint64_t largest = 0;
  std::int64_t most_members = 0;
  bool is_opened_alone = false;  // by the task's only thread, or where it had none
};

/// What a thread has open: a task of its own, or a join.
struct true_entry {
  std::uint64_t tasks = 0;  // by number, one bit each: where its events count
  short_path path;
  int opened = -1;  // the task
  int join = -1;
  bool is_given_up = false;  // closed by another thread; holds until its own one opens or closes something
};

struct true_thread {
  static constexpr std::size_t capacity = 24;
  true_entry entries[capacity];
  std::size_t count = 0;

  void add(const true_entry& e) { entries[count++] = e; }
  template <class F>
  void remove_if(F f) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!f(entries[i])) entries[kept++] = entries[i];
    }
    count = kept;
  }
  [[nodiscard]] bool is_in(int task) const {
    for (std::size_t i = 0; i < count; ++i) {
      if ((entries[i].tasks >> task & 1) != 0) return true;
    }
    return false;
  }
  [[nodiscard]] bool has_given_up() const {
    for (std::size_t i = 0; i < count; ++i) {
      if (entries[i].is_given_up) return true;
    }
    return false;
  }
  [[nodiscard]] short_path innermost_path() const { return count == 0 ? short_path{} : entries[count - 1].path; }
};

/// How often the interesting things happened, over all traces.
struct tally {
  std::uint64_t readings = 0, exact = 0, of_several_threads = 0, nested = 0, closed_elsewhere = 0,
                closed_with_workers = 0;
  std::uint64_t windows = 0, windows_of_ended_tasks = 0;
  std::uint64_t joined_twice = 0, void_tokens = 0, left_elsewhere = 0, left_after_thread = 0, threads_ended = 0;
};

/// The first thing that is wrong.
struct finding {
  const char* what = "";
  int step = 0;
  std::int64_t got = 0, want = 0, bound = 0;
};

class world {
 public:
  /// One trace, with up to 8 threads and this one, which works for no task.
  void run(std::uint64_t seed, std::size_t threads) {
    random_ = dice(seed);
    threads_ = threads;
    number_of_tasks_ = 0;
    step_ = 0;
    first_ = {};
    wrong_ = 0;
    is_over_ = false;
    for (true_thread& t : truths_) t.count = 0;
    {
      std::unique_lock<std::mutex> held(lock_);
      for (std::size_t i = 0; i < threads_; ++i) start(i);
      steps_left_ = 120 + static_cast<int>(random_.below(120));
      turn_ = random_.below(threads_);
      mine_[turn_].notify_one();
      for (;;) {
        mine_[most_threads].wait(held, [this] { return turn_ == most_threads || is_over_; });
        if (is_over_) break;
        replace(ended_);
        pass_on();
      }
    }
    for (std::size_t i = 0; i < threads_; ++i) end(i);
    for (std::size_t place = 0; place < task_places; ++place) {
      if (scopes_[place].has_value()) close(place, most_threads);
    }
    for (std::size_t w = 0; w < window_places; ++w) {
      if (windows_[w].has_value()) close_window(w, most_threads);
    }
    for (std::size_t j = 0; j < join_places; j += 2) leave(j, most_threads);  // the others live into the next trace
    for (heap_block& b : blocks_) {
      if (b.is_live()) b.free();
    }
    for (int i = 0; i < number_of_tasks_; ++i) old_tokens_[i] = tokens_[i];
  }

  ~world() {
    for (auto& j : joins_) j.reset();
  }

  [[nodiscard]] int wrong() const { return wrong_; }
  [[nodiscard]] const finding& first() const { return first_; }
  [[nodiscard]] const tally& seen() const { return seen_; }

 private:
  static constexpr std::size_t most_threads = 8;
  static constexpr std::size_t task_places = 6;
  static constexpr std::size_t join_places = 20;
  static constexpr std::size_t window_places = 8;
  static constexpr std::size_t block_count = 48;
  static constexpr int most_tasks = 64;
  static constexpr std::int64_t settle_bytes = TIDEMARK_OPT_SETTLE_BYTES;
  static constexpr std::size_t nobody = SIZE_MAX;

  struct worker {
    world* all = nullptr;
    std::size_t self = 0;
    pthread_t thread{};
  };

  // ---- turns ----

  // Without operator new, which would count for whoever is in a task.
  void start(std::size_t self) {
    workers_[self].all = this;
    workers_[self].self = self;
    const auto body = [](void* p) -> void* {
      auto& w = *static_cast<worker*>(p);
      w.all->work(w.self);
      return nullptr;
    };
    if (pthread_create(&workers_[self].thread, nullptr, body, &workers_[self]) != 0) std::abort();
  }
  void end(std::size_t self) {
    pthread_join(workers_[self].thread, nullptr);
    truths_[self].count = 0;
    for (std::size_t& of : joined_by_) {
      if (of == self) of = nobody;
    }
  }
  void replace(std::size_t self) {
    end(self);
    ++seen_.threads_ended;
    start(self);
  }
  void pass_on() {
    turn_ = random_.below(threads_);
    mine_[turn_].notify_one();
  }
  void work(std::size_t self) {
    std::unique_lock<std::mutex> held(lock_);
    for (;;) {
      mine_[self].wait(held, [this, self] { return turn_ == self || is_over_; });
      if (is_over_) return;
      for (std::uint64_t burst = 1 + random_.below(8); burst > 0; --burst) {
        ++step_;
        act(self);
        if (--steps_left_ > 0) continue;
        is_over_ = true;
        for (std::condition_variable& each : mine_) each.notify_one();
        return;
      }
      if (random_.below(40) == 0) {
        ended_ = self;
        turn_ = most_threads;
        mine_[most_threads].notify_one();
        return;
      }
      pass_on();
    }
  }

  // ---- one step ----

  void act(std::size_t self) {
    const std::uint64_t x = random_.below(104);
    const std::size_t place = random_.below(task_places);
    const std::size_t j = random_.below(join_places);
    const std::size_t b = random_.below(block_count);
    if (x < 58) {
      blocks_[b].is_live() ? free(b, self) : allocate(b, self);
    } else if (x < 66) {
      if (!scopes_[place].has_value()) open(place, self);
    } else if (x < 71) {
      if (scopes_[place].has_value()) close(place, self);
    } else if (x < 84) {
      if (!joins_[j].has_value()) join(j, self);
    } else if (x < 89) {
      leave(j, self);
    } else if (x < 95) {
      const std::size_t w = random_.below(window_places);
      windows_[w].has_value() ? close_window(w, self) : open_window(w, place, self);
    } else if (scopes_[place].has_value()) {
      const auto u = scopes_[place]->usage();
      compare(of_place_[place], u, self);
    }
  }

  void allocate(std::size_t b, std::size_t self) {
    const std::uint64_t n = random_.below(16) == 0 ? 60'000 + random_.below(200'000)
                                                   : 1 + random_.below(random_.below(2) == 0 ? 200 : 30'000);
    blocks_[b] = heap_block(static_cast<std::size_t>(n));
    owners_[b] = truths_[self].innermost_path();
    for_each_task_of(self, [n](true_task& t) {
      t.live += static_cast<std::int64_t>(n);
      if (t.live > t.peak) t.peak = t.live;
      if (n > t.largest) t.largest = n;
      ++t.allocations;
      t.allocated_bytes += n;
    });
    for (std::size_t w = 0; w < window_places; ++w) {
      true_window& window = true_windows_[w];
      if (!windows_[w].has_value() || !tasks_[window.task].is_open || !truths_[self].is_in(window.task)) continue;
      if (tasks_[window.task].live > window.peak) window.peak = tasks_[window.task].live;
      if (n > window.largest) window.largest = n;
    }
  }
  void free(std::size_t b, std::size_t self) {
    const std::uint64_t n = blocks_[b].size();
    blocks_[b].free();
    for_each_task_of(self, [n](true_task& t) {
      t.live -= static_cast<std::int64_t>(n);
      ++t.deallocations;
      t.freed_bytes += n;
    });
  }

  // What another thread closed for this one holds until it opens or closes a scope.
  void tidy_up(std::size_t self) {
    if (self == most_threads || !truths_[self].has_given_up()) return;
    { const tidemark::scope swept("swept"); }
    truths_[self].remove_if([](const true_entry& e) { return e.is_given_up; });
  }

  void open(std::size_t place, std::size_t self) {
    tidy_up(self);
    true_thread& mine = truths_[self];
    const short_path around = mine.innermost_path();
    if (number_of_tasks_ == most_tasks || around.depth > 12 || mine.count == true_thread::capacity) return;
    const int number = number_of_tasks_++;
    const char name = random_.below(2) == 0 ? 'a' : 'b';
    scopes_[place].emplace(std::string_view(&name, 1));
    of_place_[place] = number;
    tokens_[number] = scopes_[place]->token();
    true_task t;
    t.is_open = true;
    t.path = around.child(name);
    for (std::size_t i = mine.count; i-- > 0 && t.parent < 0;) t.parent = innermost_open(mine.entries[i].tasks);
    seen_.nested += t.parent >= 0 ? 1U : 0U;
    tasks_[number] = t;
    true_entry e;
    for (int i = number; i >= 0; i = tasks_[i].parent) e.tasks |= std::uint64_t{1} << i;
    e.path = t.path;
    e.opened = number;
    mine.add(e);
    count_members();
  }
  // A task is younger than those around it.
  [[nodiscard]] int innermost_open(std::uint64_t tasks) const {
    for (int i = number_of_tasks_; i-- > 0;) {
      if ((tasks >> i & 1) != 0 && tasks_[i].is_open) return i;
    }
    return -1;
  }

  void close(std::size_t place, std::size_t self) {
    tidy_up(self);
    const int number = of_place_[place];
    true_task& t = tasks_[number];
    std::optional<tidemark::scope_record> r;
    if (random_.below(8) != 0) r = scopes_[place]->close();  // otherwise its destructor closes it
    if (r) {
      const tidemark::meter_reading* m = r->find("task_heap");
      compare(number, m == nullptr ? tidemark::reading<tidemark::window_usage>::absent("no such meter") : m->usage,
              self);
      expect("path", r->path == t.path.view(), true);
      expect("depth", r->depth, t.path.depth);
      expect("owned", r->owned_bytes.value_or(-1), owned(t.path));
    }
    scopes_[place].reset();
    t.is_open = false;
    for (int i = 0; i < number_of_tasks_; ++i) {
      if (tasks_[i].parent == number) tasks_[i].parent = t.parent;
    }
    for (std::size_t i = 0; i < threads_; ++i) {
      true_thread& thread = truths_[i];
      if (thread.is_in(number) && i != self) ++seen_.closed_with_workers;
      for (std::size_t k = 0; k < thread.count; ++k) {
        if (thread.entries[k].opened != number) continue;
        thread.entries[k].is_given_up = true;
        seen_.closed_elsewhere += i != self ? 1U : 0U;
        if (i == self) thread.remove_if([](const true_entry& e) { return e.is_given_up; });
      }
    }
  }

  void open_window(std::size_t w, std::size_t place, std::size_t self) {
    if (!scopes_[place].has_value()) return;
    const int number = of_place_[place];
    windows_[w].emplace(tokens_[number]);
    true_windows_[w] = {number, tasks_[number], tasks_[number].live, 0, members(number), is_alone(number, self)};
    ++seen_.windows;
  }
  void close_window(std::size_t w, std::size_t self) {
    const true_window& window = true_windows_[w];
    const true_task& t = tasks_[window.task];
    const tidemark::reading<tidemark::window_usage> r = windows_[w]->usage();
    expect("a window has a value while its task is open", r.has_value(), t.is_open);
    if (t.is_open && r) {
      const auto whole = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
      const tidemark::window_usage& u = *r;
      expect("window: entry", u.entry_bytes, window.at_entry.live);
      expect("window: exit", u.exit_bytes, t.live);
      expect("window: allocations", whole(u.allocations), whole(t.allocations - window.at_entry.allocations));
      expect("window: deallocations", whole(u.deallocations), whole(t.deallocations - window.at_entry.deallocations));
      expect("window: allocated bytes", whole(u.allocated_bytes),
             whole(t.allocated_bytes - window.at_entry.allocated_bytes));
      expect("window: freed bytes", whole(u.freed_bytes), whole(t.freed_bytes - window.at_entry.freed_bytes));
      // What another thread had not settled at the entry may be taken for a part of the window.
      expect("window: largest", u.largest_bytes >= window.largest && u.largest_bytes <= u.allocated_bytes, true);
      if (settle_bytes == 0) expect("window: exact largest", whole(u.largest_bytes), whole(window.largest));
      expect("window: peak", u.peak_bytes, window.peak, u.error_bound_bytes);
      const bool is_exact = window.most_members <= 1 && window.is_opened_alone && is_alone(window.task, self);
      const std::int64_t most = is_exact ? 0 : 2 * window.most_members * settle_bytes;
      expect("window: bound above what is documented", u.error_bound_bytes >= 0 && u.error_bound_bytes <= most, true);
    } else {
      ++seen_.windows_of_ended_tasks;
    }
    windows_[w].reset();
  }

  void join(std::size_t j, std::size_t self) {
    tidy_up(self);
    true_thread& mine = truths_[self];
    if (mine.count == true_thread::capacity) return;
    tidemark::task_token token;
    int number = -1;
    const std::uint64_t x = random_.below(20);
    if (x < 15) {
      const std::size_t place = random_.below(task_places);
      if (!scopes_[place].has_value()) return;
      number = of_place_[place];
    } else if (x < 17 && number_of_tasks_ > 0) {
      number = static_cast<int>(random_.below(static_cast<std::uint64_t>(number_of_tasks_)));
    } else if (x < 19) {
      token =
          old_tokens_[random_.below(most_tasks)];  // of a task of the last trace, whose memory another one has by now
    }
    if (number >= 0) token = tokens_[number];
    joins_[j].emplace(token);
    joined_by_[j] = self;
    if (number < 0 || !tasks_[number].is_open) {
      ++seen_.void_tokens;
      return;
    }
    seen_.joined_twice += mine.is_in(number) ? 1U : 0U;
    true_entry e;
    for (int i = number; i >= 0; i = tasks_[i].parent) e.tasks |= std::uint64_t{1} << i;
    e.path = tasks_[number].path;
    e.join = static_cast<int>(j);
    mine.add(e);
    count_members();
  }

  void leave(std::size_t j, std::size_t self) {
    if (!joins_[j].has_value()) return;
    tidy_up(self);
    joins_[j].reset();
    const std::size_t of = joined_by_[j];
    if (of == nobody) {
      ++seen_.left_after_thread;
      return;
    }
    for (std::size_t k = 0; k < truths_[of].count; ++k) {
      true_entry& e = truths_[of].entries[k];
      if (e.join != static_cast<int>(j) || e.is_given_up) continue;
      e.is_given_up = true;
      e.join = -1;
    }
    if (of == self) {
      truths_[of].remove_if([](const true_entry& e) { return e.is_given_up; });
    } else {
      ++seen_.left_elsewhere;
    }
    joined_by_[j] = nobody;
  }

  // ---- the truth ----

  template <class F>
  void for_each_task_of(std::size_t self, F f) {
    for (int i = 0; i < number_of_tasks_; ++i) {
      if (tasks_[i].is_open && truths_[self].is_in(i)) f(tasks_[i]);
    }
  }
  [[nodiscard]] std::int64_t members(int task) const {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < threads_; ++i) n += truths_[i].is_in(task) ? 1 : 0;
    return n;
  }
  void count_members() {
    for (int i = 0; i < number_of_tasks_; ++i) {
      if (const std::int64_t n = members(i); n > tasks_[i].most_members) tasks_[i].most_members = n;
    }
    for (true_window& w : true_windows_) {
      if (w.task < 0) continue;
      if (const std::int64_t n = members(w.task); n > w.most_members) w.most_members = n;
    }
  }
  [[nodiscard]] bool is_alone(int task, std::size_t self) const {
    return members(task) == 0 || (members(task) == 1 && self < threads_ && truths_[self].is_in(task));
  }
  [[nodiscard]] std::int64_t owned(const short_path& top) const {
    std::int64_t sum = 0;
    for (std::size_t b = 0; b < block_count; ++b) {
      if (blocks_[b].is_live() && owners_[b].is_within(top)) sum += static_cast<std::int64_t>(blocks_[b].size());
    }
    return sum;
  }

  void expect(const char* what, std::int64_t got, std::int64_t want, std::int64_t bound = 0) {
    if (std::llabs(got - want) <= bound) return;
    if (wrong_++ == 0) first_ = {what, step_, got, want, bound};
  }

  // Nobody moves, so that all sums are exact; what a peak may have missed is within the bound.
  void compare(int number, const tidemark::reading<tidemark::window_usage>& r, std::size_t reader) {
    const true_task& t = tasks_[number];
    expect("has a value", r.has_value(), true);
    if (!r) return;
    const tidemark::window_usage& u = *r;
    const auto whole = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
    expect("entry", u.entry_bytes, 0);
    expect("net", u.net_bytes(), t.live);
    expect("allocations", whole(u.allocations), whole(t.allocations));
    expect("deallocations", whole(u.deallocations), whole(t.deallocations));
    expect("allocated bytes", whole(u.allocated_bytes), whole(t.allocated_bytes));
    expect("freed bytes", whole(u.freed_bytes), whole(t.freed_bytes));
    expect("largest", whole(u.largest_bytes), whole(t.largest));
    expect("peak growth", u.peak_growth(), t.peak, u.error_bound_bytes);
    expect("peak below an edge", u.peak_bytes >= u.entry_bytes && u.peak_bytes >= u.exit_bytes, true);
    const bool is_exact = t.most_members <= 1 && is_alone(number, reader);
    const std::int64_t most = is_exact ? 0 : 2 * t.most_members * settle_bytes;
    expect("bound above what is documented", u.error_bound_bytes >= 0 && u.error_bound_bytes <= most, true);
    ++seen_.readings;
    seen_.exact += u.error_bound_bytes == 0 ? 1U : 0U;
    seen_.of_several_threads += t.most_members > 1 ? 1U : 0U;
  }

  std::mutex lock_;
  std::condition_variable mine_[most_threads + 1];
  worker workers_[most_threads];
  std::size_t threads_ = 0;
  std::size_t turn_ = 0;
  std::size_t ended_ = 0;
  int steps_left_ = 0;
  bool is_over_ = false;
  dice random_{0};

  std::optional<tidemark::task_scope> scopes_[task_places];
  int of_place_[task_places] = {};
  std::optional<tidemark::detail::checks::task_window> windows_[window_places];
  true_window true_windows_[window_places];
  std::optional<tidemark::join_task> joins_[join_places];
  std::size_t joined_by_[join_places] = {};  // nobody: the thread has ended
  tidemark::task_token tokens_[most_tasks];
  tidemark::task_token old_tokens_[most_tasks];
  heap_block blocks_[block_count];

  true_task tasks_[most_tasks];
  int number_of_tasks_ = 0;
  true_thread truths_[most_threads + 1];
  short_path owners_[block_count];

  int step_ = 0;
  int wrong_ = 0;
  finding first_;
  tally seen_;
};

/// Traces with `threads` threads each.
inline tally run(std::uint64_t first_seed, std::uint64_t traces, std::size_t threads) {
  const auto all = std::make_unique<world>();
  for (std::uint64_t seed = first_seed; seed < first_seed + traces; ++seed) {
    all->run(seed, threads);
    const finding& f = all->first();
    INFO("seed ", seed, ", ", threads, " threads, step ", f.step, ": ", std::string(f.what), " is ", f.got, ", not ", f.want, " +- ",
         f.bound);
    CHECK(all->wrong() == 0);
  }
  return all->seen();
}

}  // namespace task_traces
