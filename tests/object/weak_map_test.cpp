// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/object/weak_map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/object/weak.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

#if TIDEMARK_HAS_POSIX()
  #include <sys/wait.h>
  #include <unistd.h>
#endif

using tidemark::weak_set;
using tidemark::weak_value_map;

namespace {

std::int64_t heap_bytes() { return tidemark::thread_usage().value().live_bytes; }

/// A key whose copies can be made to throw, and all of which have the same hash.
struct key {
  explicit key(int v) : value(v) {}
  key(const key& other) : value(other.value) {
    if (--copies_left == 0) fail();
  }
  key(key&&) noexcept = default;
  key& operator=(const key&) = default;
  key& operator=(key&&) noexcept = default;
  ~key() = default;

  static void fail() {
#if TIDEMARK_HAS_EXCEPTIONS()
    throw std::runtime_error("a key");
#endif
  }
  friend bool operator==(const key& a, const key& b) {
    if (--comparisons_left == 0) fail();
    return a.value == b.value;
  }

  inline static int copies_left = 0;
  inline static int comparisons_left = 0;
  int value;
};
struct same_hash {
  std::size_t operator()(const key&) const { return 7; }
};

}  // namespace

TEST_CASE("a weak map finds what lives, and keeps nothing alive") {
  weak_value_map<std::string, int> map;
  auto one = std::make_shared<int>(1);
  map.put("one", one);
  CHECK(one.use_count() == 1);
  CHECK((map.find("one") == one));
  CHECK(map.find("two") == nullptr);
  CHECK(map.size() == 1);
  one.reset();
  CHECK(map.find("one") == nullptr);
  CHECK(map.size() == 0);
  CHECK_FALSE(map.erase("one"));
}

TEST_CASE("a weak map takes any shared_ptr: made by make_tracked or make_shared, with a deleter, or an alias") {
  weak_value_map<int, int> map;
  const auto tracked = tidemark::make_tracked<int>(1);
  const std::shared_ptr<int> deleted(new int(2), [](const int* p) { delete p; });
  const auto pair = std::make_shared<std::pair<int, int>>(3, 4);
  map.put(1, tracked);
  map.put(2, deleted);
  map.put(4, std::shared_ptr<int>(pair, &pair->second));
  CHECK(*map.find(1) == 1);
  CHECK(*map.find(2) == 2);
  CHECK(*map.find(4) == 4);
}

TEST_CASE("put() replaces, erase() and clear() forget") {
  weak_value_map<int, int> map;
  const auto a = std::make_shared<int>(1);
  const auto b = std::make_shared<int>(2);
  map.put(1, a);
  map.put(1, b);
  CHECK((map.find(1) == b));
  CHECK(map.size() == 1);
  CHECK(map.erase(1));
  CHECK_FALSE(map.erase(1));
  CHECK(map.find(1) == nullptr);
  map.put(1, a);
  map.put(2, b);
  map.clear();
  CHECK(map.size() == 0);
  CHECK(map.find(2) == nullptr);
  CHECK(a.use_count() == 1);
}

TEST_CASE("get_or_create() makes what is absent or dead, and only that") {
  weak_value_map<std::string, int> map;
  int made = 0;
  const auto factory = [&made] { return std::make_shared<int>(++made); };
  std::shared_ptr<int> first = map.get_or_create("a", factory);
  CHECK(*first == 1);
  CHECK((map.get_or_create("a", factory) == first));
  CHECK(made == 1);
  first.reset();
  CHECK(*map.get_or_create("a", factory) == 2);
  CHECK(*map.get_or_create("a", factory) == 3);  // nobody kept the second
}

TEST_CASE("a factory may use the map, for other keys") {
  weak_value_map<int, std::string> map;
  const auto outer = map.get_or_create(1, [&map] {
    const auto inner = map.get_or_create(2, [] { return std::make_shared<std::string>("inner"); });
    CHECK(map.find(1) == nullptr);  // not made yet
    CHECK(map.snapshot().size() == 1);
    return std::make_shared<std::string>(*inner + " and outer");
  });
  CHECK(*outer == "inner and outer");
  CHECK(map.find(2) == nullptr);
}

TEST_CASE("what is put while a factory runs wins, what is erased meanwhile comes again") {
  weak_value_map<int, int> map;
  const auto put = std::make_shared<int>(1);
  const auto got = map.get_or_create(1, [&] {
    map.put(1, put);
    return std::make_shared<int>(2);
  });
  CHECK((got == put));
  CHECK((map.find(1) == put));

  const auto again = map.get_or_create(2, [&map] {
    CHECK_FALSE(map.erase(2));
    map.clear();
    return std::make_shared<int>(3);
  });
  CHECK((map.find(2) == again));
  CHECK(map.find(1) == nullptr);
}

TEST_CASE("clear() empties keys that wait for their objects, too") {
  weak_value_map<int, int> map;
  const auto put = std::make_shared<int>(1);
  const auto got = map.get_or_create(1, [&] {
    map.put(1, put);
    map.clear();
    CHECK(map.size() == 0);
    return std::make_shared<int>(2);
  });
  CHECK(*got == 2);
}

TEST_CASE("a factory that gives nothing leaves the key absent") {
  weak_value_map<int, int> map;
  CHECK(map.get_or_create(1, [] { return std::shared_ptr<int>(); }) == nullptr);
  CHECK(map.size() == 0);
  CHECK(*map.get_or_create(1, [] { return std::make_shared<int>(2); }) == 2);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("what a factory throws reaches its caller, and the key stays absent") {
  weak_value_map<int, int> map;
  const auto thrower = []() -> std::shared_ptr<int> { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(static_cast<void>(map.get_or_create(1, thrower)), std::runtime_error);
  CHECK(map.find(1) == nullptr);
  CHECK(*map.get_or_create(1, [] { return std::make_shared<int>(2); }) == 2);
}

TEST_CASE("those who wait for a factory that throws make the object themselves") {
  weak_value_map<int, int> map;
  barrier inside(2);
  std::thread other([&] {
    CHECK_THROWS_AS(static_cast<void>(map.get_or_create(1,
                                                        [&]() -> std::shared_ptr<int> {
                                                          inside.arrive_and_wait();
                                                          inside.arrive_and_wait();
                                                          throw std::runtime_error("no");
                                                        })),
                    std::runtime_error);
  });
  inside.arrive_and_wait();
  // Other keys do not wait.
  CHECK(*map.get_or_create(2, [] { return std::make_shared<int>(2); }) == 2);
  std::thread waiter([&] { CHECK(*map.get_or_create(1, [] { return std::make_shared<int>(3); }) == 3); });
  inside.arrive_and_wait();
  waiter.join();
  other.join();
}

TEST_CASE("a factory that asks for its own key is told so") {
  weak_value_map<int, int> map;
  const auto recursive = [&map] { return map.get_or_create(1, [] { return std::make_shared<int>(1); }); };
  CHECK_THROWS_WITH_AS(static_cast<void>(map.get_or_create(1, recursive)), doctest::Contains("that same key"),
                       std::logic_error);
  CHECK(*map.get_or_create(1, [] { return std::make_shared<int>(2); }) == 2);
}

TEST_CASE("empty pointers are refused") {
  weak_value_map<int, int> map;
  weak_set<int> set;
  CHECK_THROWS_AS(map.put(1, nullptr), std::invalid_argument);
  CHECK_THROWS_AS(set.insert(nullptr), std::invalid_argument);
  CHECK(map.size() + set.size() == 0);
}

TEST_CASE("a key that throws leaves the map as it was") {
  weak_value_map<key, int, same_hash> map;
  const auto one = std::make_shared<int>(1);
  map.put(key(1), one);
  map.put(key(2), one);
  key::comparisons_left = 1;
  CHECK_THROWS_AS(map.put(key(3), one), std::runtime_error);
  key::comparisons_left = 2;
  CHECK_THROWS_AS(static_cast<void>(map.find(key(1))), std::runtime_error);
  key::comparisons_left = 1;
  CHECK_THROWS_AS(static_cast<void>(map.get_or_create(key(1), [&] { return one; })), std::runtime_error);
  const key absent(4);
  key::copies_left = 1;
  CHECK_THROWS_AS(static_cast<void>(map.get_or_create(absent, [&] { return one; })), std::runtime_error);
  key::copies_left = 2;
  CHECK_THROWS_AS(static_cast<void>(map.snapshot()), std::runtime_error);
  CHECK(map.size() == 2);
  CHECK(map.snapshot().size() == 2);
  CHECK((map.find(key(1)) == one));
  CHECK(map.find(key(4)) == nullptr);
}
#endif

TEST_CASE("a snapshot keeps its objects alive and is not changed by what comes later") {
  weak_value_map<int, int> map;
  std::vector<std::shared_ptr<int>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(std::make_shared<int>(i));
    map.put(i, all.back());
  }
  auto snapshot = map.snapshot();
  all.clear();
  map.clear();
  for (int i = 0; i < 1'000; ++i) map.put(i, std::make_shared<int>(-1));
  std::sort(snapshot.begin(), snapshot.end());
  REQUIRE(snapshot.size() == 100);
  for (int i = 0; i < 100; ++i) {
    CHECK(snapshot[static_cast<std::size_t>(i)].first == i);
    CHECK(*snapshot[static_cast<std::size_t>(i)].second == i);
  }
}

TEST_CASE("the memory of a weak map is that of its living, not of all that ever were") {
  weak_value_map<int, int> map;
  const std::int64_t bytes = heap_bytes();
  std::vector<std::shared_ptr<int>> living;
  for (int i = 0; i < 64; ++i) {
    living.push_back(std::make_shared<int>(i));
    map.put(-1 - i, living.back());
  }
  const std::int64_t of_living = heap_bytes() - bytes;
  std::int64_t most = 0;
  for (int i = 0; i < 100'000; ++i) {
    map.put(i, std::make_shared<int>(i));
    most = std::max(most, heap_bytes() - bytes);
  }
  CHECK(most < 3 * of_living);  // twice the living, and their buckets
  CHECK(map.size() == 64);
}

TEST_CASE("calls that only look remove the dead as well, and the buckets of the many that were") {
  weak_value_map<int, int> map;
  const std::int64_t empty = heap_bytes();
  {
    std::vector<std::shared_ptr<int>> many;
    for (int i = 0; i < 10'000; ++i) {
      many.push_back(std::make_shared<int>(i));
      map.put(i, many.back());
    }
  }
  CHECK(heap_bytes() > empty + 10'000 * 40);
  for (int i = 0; i < 20'000; ++i) static_cast<void>(map.find(i));
  CHECK(heap_bytes() == empty);
}

TEST_CASE("purge() removes the dead at once") {
  weak_value_map<int, int> map;
  weak_set<int> set;
  const std::int64_t empty = heap_bytes();
  for (int i = 0; i < 10; ++i) {
    const auto p = std::make_shared<int>(i);
    map.put(i, p);
    set.insert(p);
  }
  CHECK(heap_bytes() > empty);
  map.purge();
  set.purge();
  CHECK(heap_bytes() == empty);
}

TEST_CASE("a weak map answers as a model does, over a hundred thousand random calls") {
  weak_value_map<int, int> map;
  std::map<int, std::weak_ptr<int>> model;
  std::vector<std::shared_ptr<int>> alive(40);
  const auto expected = [&model](int k) {
    const auto at = model.find(k);
    return at == model.end() ? nullptr : at->second.lock();
  };
  dice d(7);
  for (int i = 0; i < 100'000; ++i) {
    const int k = static_cast<int>(d.below(60));
    auto& place = alive[d.below(alive.size())];
    switch (d.below(8)) {
      case 0:
        place = std::make_shared<int>(i);
        map.put(k, place);
        model[k] = place;
        break;
      case 1: {
        const auto before = expected(k);
        const auto got = map.get_or_create(k, [i] { return std::make_shared<int>(i); });
        CHECK(((before == nullptr && *got == i) || got == before));
        place = got;
        model[k] = got;
        break;
      }
      case 2:
        CHECK(map.erase(k) == (expected(k) != nullptr));
        model.erase(k);
        break;
      case 3:
        place.reset();
        break;
      case 4: {
        if (d.below(50) != 0) break;
        std::map<int, std::shared_ptr<int>> living;
        for (const auto& [key, weak] : model) {
          if (auto p = weak.lock()) living[key] = std::move(p);
        }
        const auto got = map.snapshot();
        CHECK(map.size() == living.size());
        CHECK((std::map<int, std::shared_ptr<int>>(got.begin(), got.end()) == living));
        break;
      }
      case 5:
        if (d.below(5'000) != 0) break;
        map.clear();
        model.clear();
        break;
      default:
        CHECK((map.find(k) == expected(k)));
    }
  }
}

TEST_CASE("a weak set knows objects by their owner") {
  struct base {
    int b = 0;
  };
  struct other {
    int o = 0;
  };
  struct derived : base, other {};
  weak_set<other> set;
  auto d = std::make_shared<derived>();
  CHECK(set.insert(d));
  CHECK_FALSE(set.insert(d));
  CHECK_FALSE(set.insert(std::shared_ptr<other>(d)));
  CHECK(set.contains(d));
  CHECK(set.contains(std::shared_ptr<int>(d, &d->b)));
  CHECK_FALSE(set.contains(std::make_shared<derived>()));
  CHECK_FALSE(set.contains(std::shared_ptr<int>()));
  CHECK(set.size() == 1);
  REQUIRE(set.snapshot().size() == 1);
  CHECK((set.snapshot()[0] == d));
  CHECK(set.erase(std::shared_ptr<base>(d)));
  CHECK_FALSE(set.erase(d));
  CHECK(set.size() == 0);
  set.insert(d);
  d.reset();
  CHECK(set.size() == 0);
  CHECK(set.snapshot().empty());
}

TEST_CASE("a weak set of objects that come and go stays small") {
  weak_set<int> set;
  const std::int64_t empty = heap_bytes();
  for (int i = 0; i < 100'000; ++i) CHECK(set.insert(std::make_shared<int>(i)));
  CHECK(heap_bytes() - empty < 5'000);
  CHECK(set.size() == 0);
  const auto p = std::make_shared<int>(1);
  set.insert(p);
  set.clear();
  CHECK_FALSE(set.contains(p));
}

#if TIDEMARK_HAS_POSIX()
TEST_CASE("a fork child makes the object that a thread of its parent was about to make") {
  weak_value_map<int, int> map;
  barrier inside(2);
  std::thread other([&] {
    const auto got = map.get_or_create(1, [&] {
      inside.arrive_and_wait();
      inside.arrive_and_wait();
      return std::make_shared<int>(1);
    });
    CHECK(*got == 1);
  });
  inside.arrive_and_wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const auto got = map.get_or_create(1, [] { return std::make_shared<int>(2); });
    ::_exit(*got == 2 && map.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  inside.arrive_and_wait();
  other.join();
}
#endif
