// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/object/slot_handle.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dice.hpp"
#include "test.hpp"

using tidemark::slot_handle;
using tidemark::slot_map;

namespace {

std::int64_t heap_bytes() { return tidemark::thread_usage().value().live_bytes; }

/// Throws when it is copied for the n-th time, and counts its lives.
struct fragile {
  explicit fragile(int v) : value(v) { pass(); }
  fragile(const fragile& other) : value(other.value) { pass(); }
  fragile& operator=(const fragile& other) {
    if (--left == 0) fail();
    value = other.value;
    return *this;
  }
  ~fragile() { --alive; }

  void pass() {
    if (--left == 0) fail();
    ++alive;
  }
  static void fail() {
#if TIDEMARK_HAS_EXCEPTIONS()
    throw std::runtime_error("fragile");
#endif
  }
  inline static int left = 0;
  inline static int alive = 0;
  int value;
};

}  // namespace

static_assert(sizeof(slot_handle<std::string>) == 8);
static_assert(std::is_trivially_copyable_v<slot_handle<std::string>>);
static_assert(!std::is_convertible_v<slot_handle<int>, slot_handle<long>>);

TEST_CASE("a handle finds its object until that is erased, and never another") {
  slot_map<std::string> map;
  const auto a = map.emplace("a");
  const auto b = map.emplace(3U, 'b');
  CHECK(*map.find(a) == "a");
  CHECK(*std::as_const(map).find(b) == "bbb");
  CHECK(map.size() == 2);
  CHECK(a != b);
  CHECK(map.erase(a));
  CHECK_FALSE(map.erase(a));
  CHECK(map.find(a) == nullptr);
  CHECK_FALSE(map.contains(a));
  CHECK(*map.find(b) == "bbb");

  const auto c = map.emplace("c");  // in the slot of the first
  CHECK(c.index == a.index);
  CHECK(c != a);
  CHECK(map.find(a) == nullptr);
  CHECK(*map.find(c) == "c");
}

TEST_CASE("a null handle, one of no slot, and one of a life to come find nothing") {
  slot_map<int> map;
  CHECK(slot_handle<int>().is_null());
  CHECK(map.find({}) == nullptr);
  const auto h = map.emplace(1);
  CHECK_FALSE(h.is_null());
  CHECK(map.find({}) == nullptr);
  CHECK(map.find({h.index, h.generation + 1}) == nullptr);
  CHECK(map.find({h.index, h.generation + 2}) == nullptr);
  CHECK(map.find({h.index + 1, h.generation}) == nullptr);
  map.erase(h);
  CHECK(map.find({h.index, h.generation + 1}) == nullptr);  // how a free slot is marked
  CHECK_FALSE(map.erase({h.index, h.generation + 1}));
  CHECK_FALSE(map.erase({}));
}

TEST_CASE("a slot is retired, not used again, once it has served as often as its generation can count") {
  slot_map<int, std::uint8_t> map;
  std::set<slot_handle<int>> seen;
  for (int i = 0; i < 1'000; ++i) {
    const auto h = map.emplace(i);
    CHECK(seen.insert(h).second);
    CHECK(*map.find(h) == i);
    CHECK(map.erase(h));
  }
  // 128 lives each: 1,000 of them wear seven slots out.
  CHECK(map.retired_slots() == 7);
  for (const auto& h : seen) CHECK_FALSE(map.contains(h));
  for (std::uint32_t index = 0; index < 9; ++index) CHECK_FALSE(map.contains({index, 0}));
  const auto last = map.emplace(-1);
  CHECK(last.index == 7);
  CHECK(std::count_if(seen.begin(), seen.end(), [&](auto h) { return map.contains(h); }) == 0);
}

TEST_CASE("clear() ends every handle, and retires as erase() does") {
  slot_map<int, std::uint8_t> map;
  std::vector<slot_handle<int>> handles;
  for (int round = 0; round < 128; ++round) {
    for (int i = 0; i < 3; ++i) handles.push_back(map.emplace(i));
    CHECK(map.size() == 3);
    map.clear();
    CHECK(map.empty());
  }
  CHECK(map.retired_slots() == 3);
  for (const auto& h : handles) CHECK_FALSE(map.contains(h));
  CHECK(std::set<slot_handle<int>>(handles.begin(), handles.end()).size() == 3 * 128);
}

TEST_CASE("objects lie side by side, and each knows its handle") {
  slot_map<int> map;
  std::vector<slot_handle<int>> handles;
  for (int i = 0; i < 10; ++i) handles.push_back(map.emplace(i));
  map.erase(handles[0]);
  map.erase(handles[5]);
  map.erase(handles[9]);
  CHECK(map.end() - map.begin() == 7);
  CHECK(std::accumulate(map.begin(), map.end(), 0) == 45 - 14);
  for (const int& i : std::as_const(map)) CHECK(map.handle_of(i) == handles[static_cast<std::size_t>(i)]);
  for (int& i : map) i += 100;
  CHECK(*map.find(handles[3]) == 103);
}

TEST_CASE("objects may be movable alone") {
  slot_map<std::unique_ptr<int>> map;
  const auto a = map.emplace(std::make_unique<int>(1));
  const auto b = map.emplace(std::make_unique<int>(2));
  map.erase(a);
  CHECK(**map.find(b) == 2);
  slot_map<std::unique_ptr<int>> moved = std::move(map);
  CHECK(**moved.find(b) == 2);
  CHECK(map.empty());  // NOLINT: what a move leaves is documented
  const auto c = map.emplace(std::make_unique<int>(3));
  CHECK(**map.find(c) == 3);
  swap(map, moved);
  CHECK(**map.find(b) == 2);
  CHECK(**moved.find(c) == 3);
}

TEST_CASE("a copy of a map is found by the same handles") {
  slot_map<std::string> map;
  const auto a = map.emplace("a");
  const auto b = map.emplace("b");
  map.erase(a);
  slot_map<std::string> copy = map;
  *map.find(b) = "changed";
  CHECK(*copy.find(b) == "b");
  CHECK(copy.emplace("c") == map.emplace("d"));
}

TEST_CASE("the destructor of an erased object may use the map") {
  struct chain {
    chain(slot_map<std::unique_ptr<chain>>& m, slot_handle<std::unique_ptr<chain>> n) : map(m), next(n) {}
    ~chain() {
      map.erase(next);
      map.emplace(nullptr);
    }
    slot_map<std::unique_ptr<chain>>& map;
    slot_handle<std::unique_ptr<chain>> next;
  };
  slot_map<std::unique_ptr<chain>> map;
  slot_handle<std::unique_ptr<chain>> first;
  for (int i = 0; i < 10; ++i) first = map.emplace(std::make_unique<chain>(map, first));
  map.erase(first);
  CHECK(map.size() == 10);
  CHECK(std::all_of(map.begin(), map.end(), [](const auto& p) { return p == nullptr; }));
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("an object that throws when it is made, moved or erased leaves the map whole") {
  for (int failure = 1; failure < 60; ++failure) {
    fragile::left = 0;
    slot_map<fragile> map;
    std::vector<slot_handle<fragile>> handles;
    fragile::left = failure;
    try {
      for (int i = 0; i < 9; ++i) handles.push_back(map.emplace(i));
      for (int i = 0; i < 4; ++i) map.erase(handles[static_cast<std::size_t>(2 * i)]);
    } catch (const std::runtime_error&) {
    }
    fragile::left = 0;
    // What is there is found by its handle, and what was not made is not there.
    CHECK(static_cast<std::size_t>(
              std::count_if(handles.begin(), handles.end(), [&](auto h) { return map.contains(h); })) == map.size());
    CHECK(static_cast<std::size_t>(fragile::alive) == map.size());
    for (const fragile& f : map) CHECK(map.find(map.handle_of(f)) == &f);
    const auto fresh = map.emplace(77);
    CHECK(map.find(fresh)->value == 77);
    map.clear();
    CHECK(fragile::alive == 0);
  }
}
#endif

TEST_CASE("bytes() is what the map takes of the heap") {
  slot_map<std::int64_t> map;
  CHECK(map.bytes() == 0);
  const std::int64_t before = heap_bytes();
  for (int i = 0; i < 1'000; ++i) map.emplace(i);
  CHECK(map.bytes() == heap_bytes() - before);
  CHECK(map.capacity() >= 1'000);

  slot_map<std::int64_t> reserved;
  const std::int64_t empty = heap_bytes();
  reserved.reserve(1'000);
  CHECK(reserved.bytes() == 1'000 * (8 + 12));
  CHECK(heap_bytes() - empty == reserved.bytes());
  for (int i = 0; i < 1'000; ++i) reserved.emplace(i);
  CHECK(heap_bytes() - empty == 1'000 * (8 + 12));
}

TEST_CASE("a map answers as a model does, over two hundred thousand random calls with short generations") {
  slot_map<std::string, std::uint8_t> map;
  std::unordered_map<slot_handle<std::string>, std::string> model;
  std::vector<slot_handle<std::string>> all;
  dice d(11);
  for (int i = 0; i < 200'000; ++i) {
    if (all.size() < 10 || d.below(2) == 0) {
      std::string text = "object number " + std::to_string(i);
      const auto h = map.emplace(text);
      CHECK(model.emplace(h, std::move(text)).second);
      all.push_back(h);
      if (all.size() > 5'000) all.erase(all.begin(), all.begin() + 2'500);
    }
    const auto h = model.size() > 100 ? map.handle_of(map.begin()[d.below(map.size())]) : all[d.below(all.size())];
    const auto known = model.find(h);
    if (d.below(2) == 0 || model.size() > 100) {
      CHECK(map.erase(h) == (known != model.end()));
      if (known != model.end()) model.erase(known);
    } else {
      const std::string* found = map.find(h);
      CHECK((found != nullptr) == (known != model.end()));
      if (found != nullptr) CHECK(*found == known->second);
    }
    CHECK(map.size() == model.size());
    if (d.below(20'000) == 0) {
      map.clear();
      model.clear();
    }
  }
  CHECK(map.retired_slots() > 100);
  for (const std::string& s : map) CHECK(model.at(map.handle_of(s)) == s);
}

TEST_CASE("handles are keys") {
  slot_map<int> map;
  std::unordered_set<slot_handle<int>> set;
  for (int i = 0; i < 100; ++i) set.insert(map.emplace(i));
  CHECK(set.size() == 100);
  const slot_handle<int> a{1, 1};
  const slot_handle<int> b{1, 3};
  CHECK(a < b);
  CHECK_FALSE(b < a);
  CHECK(b < slot_handle<int>{2, 1});
}
