// SPDX-License-Identifier: MIT
#include <tidemark/object/weak.hpp>
#include <tidemark/object/weak_map.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "barrier.hpp"
#include "test.hpp"

using tidemark::expiry_token;
using tidemark::make_tracked;
using tidemark::on_expire;
using tidemark::tracked_weak;

namespace {

constexpr int threads = 8;
#if TIDEMARK_HAS_TSAN()
constexpr int rounds = 1'000;
#else
constexpr int rounds = 3'000;
#endif

/// Runs `f(thread, round)` on several threads at once, round by round, with `between(round)` where all of them stand still.
void race(int count, const std::function<void(int, int)>& f, const std::function<void(int)>& between) {
  barrier gate(static_cast<std::size_t>(count) + 1);
  std::vector<std::thread> all;
  for (int t = 0; t < count; ++t) {
    all.emplace_back([&, t] {
      for (int r = 0; r < rounds; ++r) {
        gate.arrive_and_wait();
        f(t, r);
        gate.arrive_and_wait();
      }
    });
  }
  for (int r = 0; r < rounds; ++r) {
    between(r);
    gate.arrive_and_wait();
    gate.arrive_and_wait();
  }
  between(rounds);
  for (std::thread& t : all) t.join();
}

/// What is read of it after its end is not what it was.
struct witness {
  ~witness() { is_alive = false; }
  bool is_alive = true;
  int payload[64] = {};
};

}  // namespace

TEST_CASE("lock() on eight threads that race with the end finds no dead object, and each callback runs once") {
  std::shared_ptr<witness> owners[threads];
  tracked_weak<witness> weak;
  std::atomic<int> callbacks{0};
  std::atomic<int> found{0};
  std::atomic<int> found_dead{0};
  race(
      threads,
      [&](int t, int) {
        const tracked_weak<witness> own = weak;
        if (t % 2 == 1) owners[t].reset();
        for (int i = 0; i < 4; ++i) {
          if (const std::shared_ptr<witness> w = own.lock()) {
            ++found;
            if (!w->is_alive) ++found_dead;
          }
        }
        owners[t].reset();
      },
      [&](int round) {
        CHECK(callbacks.exchange(0) == (round == 0 ? 0 : 3));
        if (round == rounds) return;
        const auto fresh = make_tracked<witness>();
        weak = fresh;
        for (int i = 0; i < 3; ++i) on_expire(weak, [&callbacks] { ++callbacks; });
        for (auto& o : owners) o = fresh;
      });
  CHECK(found > 0);
  CHECK(found_dead == 0);
  weak.reset();
  CHECK(tidemark::live_tracked().objects == 0);
  CHECK(tidemark::zombie_totals().objects == 0);
}

TEST_CASE("a callback set while the object ends runs once, on one of the two threads") {
  std::shared_ptr<int> owner;
  tracked_weak<int> weak;
  std::atomic<int> calls{0};
  race(
      2,
      [&](int t, int) {
        if (t == 0) {
          owner.reset();
        } else {
          on_expire(weak, [&calls] { ++calls; });
        }
      },
      [&](int round) {
        CHECK(calls.exchange(0) == (round == 0 ? 0 : 1));
        owner = make_tracked<int>(round);
        weak = owner;
      });
}

TEST_CASE("a cancel that races with the end prevents the call, or returns after it") {
  std::shared_ptr<int> owner;
  expiry_token tokens[3];
  // Plain on purpose: a call that still ran when cancel() has returned would race with the thread that cancels.
  int state[3] = {};
  bool is_prevented[3] = {};
  int prevented = 0;
  int called = 0;
  race(
      4,
      [&](int t, int) {
        if (t == 3) {
          owner.reset();
          return;
        }
        is_prevented[t] = tokens[t].cancel();
        state[t] += 100;
      },
      [&](int round) {
        if (round > 0) {
          for (int i = 0; i < 3; ++i) {
            CHECK(state[i] == (is_prevented[i] ? 100 : 101));
            ++(is_prevented[i] ? prevented : called);
          }
        }
        owner = make_tracked<int>(round);
        for (int i = 0; i < 3; ++i) {
          state[i] = 0;
          tokens[i] = on_expire(tracked_weak<int>(owner), [&state, i] { ++state[i]; });
        }
      });
  CHECK(prevented > 0);
  MESSAGE("prevented ", prevented, ", called ", called);
}

TEST_CASE("cancel() returns after the call that runs") {
  auto p = make_tracked<int>(1);
  std::atomic<bool> runs{false}, is_being_cancelled{false}, is_over{false};
  expiry_token token = on_expire(tracked_weak<int>(p), [&] {
    runs = true;
    while (!is_being_cancelled) std::this_thread::yield();
    for (int turn = 0; turn < 10'000; ++turn) std::this_thread::yield();  // the other is inside of cancel() by now
    is_over = true;
  });
  std::thread last([&] { p.reset(); });
  while (!runs) std::this_thread::yield();
  is_being_cancelled = true;
  CHECK_FALSE(token.cancel());
  CHECK(is_over);
  last.join();
}

TEST_CASE("two threads that cancel the same callback: one prevents it") {
  std::shared_ptr<int> owner;
  expiry_token token;
  std::atomic<int> prevented{0};
  int calls = 0;
  race(
      3,
      [&](int t, int) {
        if (t == 0) {
          owner.reset();
        } else if (expiry_token(token).cancel()) {
          ++prevented;
        }
      },
      [&](int round) {
        if (round > 0) CHECK(prevented.exchange(0) + calls == 1);
        calls = 0;
        owner = make_tracked<int>(round);
        token = on_expire(tracked_weak<int>(owner), [&calls] { ++calls; });
      });
}

TEST_CASE("zombies are counted right while eight threads make and end them") {
  std::atomic<bool> is_over{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (int r = 0; r < rounds; ++r) {
        auto p = make_tracked<witness>();
        tracked_weak<witness> w = p;
        if (t % 2 == 0) on_expire(w, [] {});
        p.reset();
        if (tidemark::zombie_totals().objects < 1) ++wrong;
        if (r % 3 == 0) w.reset();
      }
    });
  }
  std::thread reader([&] {
    const std::int64_t each = sizeof(tidemark::detail::tracked_block<witness>);
    while (!is_over) {
      const std::vector<tidemark::zombie> rows = tidemark::zombies();
      if (rows.size() > threads) ++wrong;
      for (const auto& z : rows) {
        if (z.bytes != each || z.type.find("witness") == std::string_view::npos || z.age_ns < 0) ++wrong;
      }
      const tidemark::tracked_totals alive = tidemark::live_tracked();
      if (alive.objects < 0 || alive.bytes != alive.objects * each) ++wrong;
    }
  });
  for (std::thread& t : all) t.join();
  is_over = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(tidemark::zombies().empty());
  CHECK(tidemark::live_tracked().objects == 0);
}

TEST_CASE("whoever looks at all living objects keeps each alive") {
  std::atomic<bool> is_over{false};
  std::atomic<int> found_dead{0};
  std::atomic<int> ends{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&] {
      for (int r = 0; r < rounds; ++r) {
        const auto p = make_tracked<witness>();
        on_expire(tracked_weak<witness>(p), [&ends] { ++ends; });
      }
    });
  }
  std::thread reader([&] {
    auto* objects = tidemark::detail::registry<tidemark::detail::tracked_objects>();
    while (!is_over) {
      for (const auto& held : objects->hold_all()) {
        if (!static_cast<const witness*>(held.record->object)->is_alive) ++found_dead;
      }
    }
  });
  for (std::thread& t : all) t.join();
  is_over = true;
  reader.join();
  CHECK(found_dead == 0);
  CHECK(ends == 4 * rounds);
}

TEST_CASE("get_or_create() on eight threads makes one object per key, and gives it to all") {
  tidemark::weak_value_map<int, int> map;
  std::atomic<int> made{0};
  std::shared_ptr<int> got[threads];
  race(
      threads,
      [&](int t, int round) { got[t] = map.get_or_create(round % 3, [&] { return std::make_shared<int>(++made); }); },
      [&](int round) {
        CHECK(made == round);
        for (auto& g : got) CHECK((g == got[0]));
        for (auto& g : got) g.reset();
      });
}

TEST_CASE("a weak map and a weak set stay whole while eight threads use them and objects die") {
  tidemark::weak_value_map<int, int> map;
  tidemark::weak_set<int> set;
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      std::vector<std::shared_ptr<int>> own(16);
      for (int r = 0; r < rounds; ++r) {
        const int key = (r * 7 + t) % 64;
        auto& place = own[static_cast<std::size_t>(r) % own.size()];
        place = map.get_or_create(key, [key] { return std::make_shared<int>(key); });
        if (*place != key) ++wrong;
        set.insert(place);
        if (!set.contains(place)) ++wrong;
        if (const auto found = map.find((key + 1) % 64); found != nullptr && *found != (key + 1) % 64) ++wrong;
        if (r % 100 == 0) {
          for (const auto& [k, v] : map.snapshot()) wrong += *v == k ? 0 : 1;
          for (const auto& v : set.snapshot()) wrong += *v >= 0 && *v < 64 ? 0 : 1;
        }
        if (r % 150 == 0) map.erase(key);
        if (r % 900 == 0) map.clear();
      }
    });
  }
  for (std::thread& t : all) t.join();
  CHECK(wrong == 0);
  CHECK(map.size() == 0);
  CHECK(set.size() == 0);
}
