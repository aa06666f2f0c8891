// SPDX-License-Identifier: MIT
#include <tidemark/core/path.hpp>
#include <tidemark/hook/global_new.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/scope/task.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

using tidemark::scope;
using tidemark::detail::path_state;
using tidemark::detail::path_states;
using tidemark::detail::path_text;

namespace {

bool has_hook() { return tidemark::hook_state() != tidemark::hook_kind::none; }

/// What a path is now, or all zeros.
path_state state_of(const std::string& path) {
  const tidemark::quiet hidden;  // or the list would be owned by the scope that asks
  for (const path_state& s : path_states()) {
    if (path_text(s.path) == path) return s;
  }
  return {nullptr, 0, 0, 0, 0};
}

struct model_path {
  std::int64_t own = 0;
  std::uint64_t open = 0;
};

bool is_in(const std::string& path, const std::string& top) {
  return path == top || path.compare(0, top.size() + 1, top + "/") == 0;
}

struct freed_by_operator {
  void operator()(void* p) const { ::operator delete(p); }
};
using block = std::unique_ptr<void, freed_by_operator>;

block make_block(std::size_t bytes) {
  block b(::operator new(bytes));
  tidemark::escape(b.get());
  return b;
}

}  // namespace

TEST_CASE("a program that opened no scope has no path but the one for too many") {
  for (const path_state& s : path_states()) {
    CHECK(path_text(s.path) == "(other)");
    CHECK(s.open == 0);
    CHECK(s.owned_bytes == 0);
  }
}

TEST_CASE("each path comes once, and after the one that it lies in") {
  {
    const scope a("order a");
    { const scope b("b"); }
    {
      const scope c("c");
      const scope d("d");
    }
    const scope again("b");
  }
  { const scope e("order e"); }
  { const scope a("order a"); }
  std::map<const void*, int> seen;
  int known = 0;
  for (const path_state& s : path_states()) {
    CHECK(seen[s.path]++ == 0);
    if (s.path->parent != nullptr) CHECK(seen[s.path->parent] == 1);
    const std::string text = path_text(s.path);
    for (const char* p : {"order a", "order a/b", "order a/c", "order a/c/d", "order e"}) known += text == p ? 1 : 0;
  }
  CHECK(known == 5);
}

TEST_CASE("of random trees on one to four threads, what is owned and open agrees with brute force at any moment") {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const std::size_t threads = 1 + seed % 4;
    std::vector<std::map<std::string, model_path>> models(threads);
    barrier stand(threads + 1);
    constexpr int moments = 4;
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        dice random(seed * 10 + t);
        std::map<std::string, model_path>& model = models[t];
        std::vector<std::pair<std::unique_ptr<scope>, std::string>> open;
        std::vector<std::pair<block, std::string>> blocks;
        std::vector<std::size_t> sizes;
        for (int moment = 0; moment < moments; ++moment) {
          for (int i = 0; i < 60; ++i) {
            const std::uint64_t what = random.below(5);
            if (what < 2 && !open.empty()) {
              const auto bytes = static_cast<std::size_t>(random.below(5'000));
              block b = make_block(bytes);
              const tidemark::quiet hidden;
              model[open.back().second].own += static_cast<std::int64_t>(bytes);
              blocks.emplace_back(std::move(b), open.back().second);
              sizes.push_back(bytes);
              continue;
            }
            const tidemark::quiet hidden;
            if (what < 4 && open.size() < 5 && (open.empty() || open.back().second.size() < 20)) {
              const std::string name(1, static_cast<char>('x' + random.below(2)));
              const std::string path = (open.empty() ? "random" : open.back().second) + "/" + name;
              if (open.empty()) {
                open.emplace_back(std::make_unique<scope>("random"), "random");
                ++model["random"].open;
              }
              open.emplace_back(std::make_unique<scope>(name), path);
              ++model[path].open;
            } else if (what == 3 && !open.empty()) {  // too deep: paths would be without number
              --model[open.back().second].open;
              open.pop_back();
            } else if (open.size() > 2) {
              // Any of them but the outermost; those above keep their paths.
              const std::size_t at = 1 + static_cast<std::size_t>(random.below(open.size() - 1));
              if (at + 1 == open.size() || random.below(2) == 0) {
                --model[open[at].second].open;
                open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
              }
            } else if (!blocks.empty()) {
              model[blocks.back().second].own -= static_cast<std::int64_t>(sizes.back());
              blocks.pop_back();
              sizes.pop_back();
            }
          }
          stand.arrive_and_wait();
          stand.arrive_and_wait();  // the model is read
        }
        const tidemark::quiet hidden;
        while (!open.empty()) open.pop_back();
        blocks.clear();
      });
    }
    for (int moment = 0; moment < moments; ++moment) {
      CAPTURE(moment);
      stand.arrive_and_wait();
      std::map<std::string, model_path> all;
      for (const auto& m : models) {
        for (const auto& [path, p] : m) {
          all[path].own += p.own;
          all[path].open += p.open;
        }
      }
      std::map<std::string, std::int64_t> owned;
      for (const auto& [path, p] : all) {
        for (std::string top = path;; top.resize(top.rfind('/'))) {
          owned[top] += p.own;
          if (top.find('/') == std::string::npos) break;
        }
      }
      for (const path_state& s : path_states()) {
        const std::string path = path_text(s.path);
        if (!is_in(path, "random")) continue;
        const model_path want = all[path];
        CHECK(s.open == want.open);
        CHECK((s.opened_ns != 0) == (want.open > 0));
        if (!has_hook()) continue;
        CHECK(s.own_bytes == want.own);
        CHECK(s.owned_bytes == owned[path]);
        found += want.own != 0 ? 1 : 0;
      }
      stand.arrive_and_wait();
    }
    for (std::thread& w : workers) w.join();
    CHECK(state_of("random").open == 0);
    CHECK(state_of("random").owned_bytes == 0);
  }
  if (has_hook()) CHECK(found > 500);
}

TEST_CASE("the moment of a path is when the oldest of its open scopes began") {
  barrier meet(2);
  std::optional<scope> first(std::in_place, "oldest");
  const std::int64_t between = tidemark::detail::os::steady_ns();
  std::thread other([&] {
    const scope second("oldest");
    meet.arrive_and_wait();
    meet.arrive_and_wait();
  });
  meet.arrive_and_wait();
  const path_state both = state_of("oldest");
  first.reset();
  const path_state one = state_of("oldest");
  meet.arrive_and_wait();
  other.join();
  CHECK(both.open == 2);
  CHECK(both.opened_ns <= between);
  CHECK(one.open == 1);
  CHECK(one.opened_ns >= between);
  CHECK(one.opened_ns <= tidemark::detail::os::steady_ns());
  CHECK(state_of("oldest").open == 0);
  CHECK(state_of("oldest").opened_ns == 0);
}

TEST_CASE("a scope that another thread ended is open no more") {
  barrier meet(2);
  std::optional<scope> passed;
  std::thread opener([&] {
    passed.emplace("passed on");
    meet.arrive_and_wait();
    meet.arrive_and_wait();
  });
  meet.arrive_and_wait();
  const std::uint64_t before = state_of("passed on").open;
  passed.reset();
  const std::uint64_t after = state_of("passed on").open;
  meet.arrive_and_wait();
  opener.join();
  CHECK(before == 1);
  CHECK(after == 0);
}

TEST_CASE("a thread that ends with a scope open leaves none behind") {
  alignas(scope) unsigned char place[sizeof(scope)];
  std::thread([&] { tidemark::escape(::new (place) scope("never ended")); }).join();
  CHECK(state_of("never ended").path != nullptr);
  CHECK(state_of("never ended").open == 0);
}

TEST_CASE("a thread that joined a task stands in its path, and opens no scope by that") {
  const tidemark::task_scope task("task");
  std::uint64_t inside = 0;
  std::uint64_t below = 0;
  std::thread([&] {
    const tidemark::join_task join(task.token());
    inside = state_of("task").open;
    const scope s("below");
    below = state_of("task/below").open;
  }).join();
  CHECK(inside == 1);  // the task's own
  CHECK(below == 1);
  CHECK(state_of("task").open == 1);
}

TEST_CASE("paths are read while threads open, close and allocate, and are right again when these stand still") {
  constexpr int threads = 3;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([] {
      for (int i = 0; i < 300; ++i) {
        const scope outer("busy");
        const block b = make_block(100);
        const scope inner("inner " + std::to_string(i % 50));
        const block c = make_block(10);
      }
    });
  }
  std::uint64_t highest = 0;
  for (int i = 0; i < 100; ++i) {
    const path_state s = state_of("busy");
    highest = s.open > highest ? s.open : highest;
  }
  for (std::thread& w : workers) w.join();
  CHECK(highest <= threads);
  CHECK(state_of("busy").open == 0);
  CHECK(state_of("busy").owned_bytes == 0);
}

// The last, since the process has no path to spare afterwards.
TEST_CASE("beyond 65,536 paths, new ones are open and own together as (other)") {
  const scope full("full");
  for (int i = 0; i < 65'536; ++i) const scope s(std::to_string(i));
  const scope a("too many");
  const block b = make_block(1'000);
  const scope c("too many, too");
  const block d = make_block(200);
  const path_state other = state_of("(other)");
  CHECK(other.open == 2);
  if (has_hook()) CHECK(other.own_bytes == 1'200);
  CHECK(state_of("full").open == 1);
  CHECK(path_states().size() <= 65'536);
}
