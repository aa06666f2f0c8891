// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/object/counted.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/scope/measure.hpp>
#include <tidemark/scope/scope.hpp>

#include "barrier.hpp"
#include "dice.hpp"
#include "test.hpp"

#if TIDEMARK_HAS_POSIX()
  #include <sys/wait.h>
  #include <unistd.h>
#endif

using tidemark::count_sites;
using tidemark::counted;
using tidemark::live_type;
using tidemark::live_type_of;

namespace nn {
struct layer : counted<layer> {
  std::int64_t weights = 0;
};
}  // namespace nn

namespace {

/// Fails the program when it is destroyed, which is after every object with static storage below.
struct last_judge {
  bool (*is_right)();
  ~last_judge() {
    if (!is_right()) std::_Exit(9);
  }
};

struct early : counted<early> {};
const last_judge judge{[] {
  const live_type r = live_type_of<early>();
  return r.live == 0 && r.total == 3;
}};
const early before_main;
const std::array<early, 2> more_before_main;

/// The counts, from outside.
struct expected {
  std::int64_t live, peak;
  std::uint64_t total;
};
template <class T>
void check_counts(const expected& e) {
  const live_type r = live_type_of<T>();
  CHECK(r.live == e.live);
  CHECK(r.peak == e.peak);
  CHECK(r.total == e.total);
  CHECK(r.bytes == e.live * static_cast<std::int64_t>(sizeof(T)));
}

/// The row of a list, or one of zeros.
template <class Rows>
auto row_of(const Rows& rows, std::string_view type) {
  for (const auto& r : rows) {
    if (r.type == type) return r;
  }
  return std::decay_t<decltype(rows[0])>{};
}

}  // namespace

TEST_CASE("objects with static storage count before main, and their end counts after it") {
  check_counts<early>({3, 3, 3});
}

TEST_CASE("the base takes no room") {
  struct plain {
    std::int64_t weights;
  };
  struct empty : counted<empty> {};
  struct child : nn::layer, counted<child> {};
  CHECK(sizeof(nn::layer) == sizeof(plain));
  CHECK(sizeof(empty) == 1);
  CHECK(sizeof(child) == sizeof(plain));
  CHECK(std::is_empty_v<counted<empty>>);
  CHECK(std::is_nothrow_default_constructible_v<nn::layer>);
  CHECK(std::is_nothrow_copy_constructible_v<nn::layer>);
  CHECK(std::is_nothrow_move_constructible_v<nn::layer>);
  CHECK(std::is_trivially_copy_assignable_v<nn::layer>);
}

TEST_CASE("constructors of every kind count, assignments do not") {
  struct item : counted<item> {
    int value = 0;
  };
  check_counts<item>({0, 0, 0});
  {
    item a;
    item b{{}, 3};  // an aggregate
    check_counts<item>({2, 2, 2});
    item c = a;
    item d = std::move(a);
    check_counts<item>({4, 4, 4});
    b = c;
    d = std::move(c);
    check_counts<item>({4, 4, 4});
    std::optional<item> e(std::in_place);
    e = b;
    e.reset();
    check_counts<item>({4, 5, 5});
    std::swap(b, d);
    check_counts<item>({4, 5, 6});
  }
  check_counts<item>({0, 5, 6});
}

TEST_CASE("a copy constructor that forgets its base counts") {
  struct careless : counted<careless> {
    careless() = default;
#if defined(__GNUC__)
  #pragma GCC diagnostic push
  #pragma GCC diagnostic ignored "-Wextra"
#endif
    careless(const careless&) {}
#if defined(__GNUC__)
  #pragma GCC diagnostic pop
#endif
  };
  const careless a;
  const careless b = a;  // NOLINT: the copy is the point
  check_counts<careless>({2, 2, 2});
}

TEST_CASE("a vector that grows, shrinks and moves its elements keeps the count of its elements") {
  struct element : counted<element> {
    std::string text = std::string(40, 'x');
  };
  std::vector<element> v;
  for (std::size_t n = 1; n <= 100; ++n) {
    v.emplace_back();
    REQUIRE(live_type_of<element>().live == static_cast<std::int64_t>(n));
  }
  v.erase(v.begin(), v.begin() + 30);
  v.shrink_to_fit();
  CHECK(live_type_of<element>().live == 70);
  v.clear();
  CHECK(live_type_of<element>().live == 0);
}

#if TIDEMARK_HAS_EXCEPTIONS()

namespace {
struct fragile : counted<fragile> {
  static inline int made_before_failure = 0;
  fragile() {
    if (made_before_failure-- == 0) throw std::runtime_error("no more");
  }
  std::string text = std::string(40, 'x');
};
}  // namespace

TEST_CASE("an object whose constructor throws was made and is gone, also within an array") {
  fragile::made_before_failure = 0;
  CHECK_THROWS(fragile());
  check_counts<fragile>({0, 1, 1});
  fragile::made_before_failure = 5;
  CHECK_THROWS(static_cast<void>(std::make_unique<fragile[]>(10)));
  check_counts<fragile>({0, 6, 7});
  fragile::made_before_failure = 10;
  const auto whole = std::make_unique<fragile[]>(10);
  check_counts<fragile>({10, 10, 17});
}

#endif

TEST_CASE("an object of a derived class counts as its base, and as itself where it says so") {
  struct base : counted<base> {};
  struct silent : base {};
  struct spoken : base, counted<spoken> {};
  const silent a;
  const spoken b, c;
  CHECK(live_type_of<base>().live == 3);
  CHECK(live_type_of<spoken>().live == 2);
}

TEST_CASE("types of the same name in two functions count apart") {
  const auto in_one = [] {
    struct namesake : counted<namesake> {};
    const namesake a, b;
    return live_type_of<namesake>().live;
  };
  const auto in_another = [] {
    struct namesake : counted<namesake> {};
    const namesake a;
    return live_type_of<namesake>().peak;
  };
  CHECK(in_one() == 2);
  CHECK(in_another() == 1);
}

TEST_CASE("a type that two threads begin at once has one row") {
  struct twice : counted<twice> {};
  const std::vector<twice> first(70'000);
  tidemark::detail::find_registry<tidemark::detail::counted_types>()->enlist(tidemark::detail::counts_of<twice>);
  CHECK(tidemark::live_types(2)[0].type == live_type_of<twice>().type);
  CHECK(tidemark::live_types(2)[1].live < 70'000);
}

TEST_CASE("a row says the name and the bytes of the type") {
  const std::vector<nn::layer> layers(3);
  const live_type r = live_type_of<nn::layer>();
  CHECK(r.type == "nn::layer");
  CHECK(r.live == 3);
  CHECK(r.bytes == 24);
}

TEST_CASE("live_types lists the types with live objects, most objects first, as many as wanted") {
  struct many : counted<many> {};
  struct few : counted<few> {};
  struct gone : counted<gone> {};
  const std::vector<many> a(50'000);
  const std::vector<few> b(40'000);
  { const gone c; }
  const auto all = tidemark::live_types(1'000);
  CHECK(row_of(all, live_type_of<few>().type).live == 40'000);
  CHECK(row_of(all, live_type_of<gone>().type).total == 0);  // not there
  CHECK(row_of(all, live_type_of<early>().type).live == 3);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].live >= all[i].live);
  const auto top = tidemark::live_types(2);
  REQUIRE(top.size() == 2);
  CHECK(top[0].type == live_type_of<many>().type);
  CHECK(top[1].type == live_type_of<few>().type);
  CHECK(tidemark::live_types(0).empty());
}

TEST_CASE("types alike in number are listed by name") {
  struct b_type : counted<b_type> {};
  struct a_type : counted<a_type> {};
  const std::vector<b_type> b(60'000);
  const std::vector<a_type> a(60'000);
  const auto top = tidemark::live_types(2);
  CHECK(top[0].type == live_type_of<a_type>().type);
  CHECK(top[1].type == live_type_of<b_type>().type);
}

TEST_CASE("growth is what there is more of than at the mark, the largest first") {
  struct grows : counted<grows> {
    char room[100];
  };
  struct shrinks : counted<shrinks> {};
  struct stays : counted<stays> {};
  struct is_new : counted<is_new> {};
  std::vector<grows> a(10);
  auto b = std::make_unique<std::array<shrinks, 5>>();
  std::vector<stays> c(7);
  const tidemark::type_mark mark = tidemark::mark_types();
  CHECK(tidemark::type_growth(mark).empty());
  a = std::vector<grows>(14);
  b.reset();
  c = std::vector<stays>(7);
  const std::vector<is_new> d(20);
  const auto grown = tidemark::type_growth(mark);
  REQUIRE(grown.size() == 2);
  CHECK(grown[0].type == live_type_of<is_new>().type);
  CHECK(grown[0].delta == 20);
  CHECK(grown[0].live == 20);
  CHECK(grown[1].type == live_type_of<grows>().type);
  CHECK(grown[1].delta == 4);
  CHECK(grown[1].live == 14);
  CHECK(grown[1].delta_bytes == 400);
  CHECK(tidemark::type_growth(mark, 1).size() == 1);
  CHECK(tidemark::type_growth(mark).size() == 2);  // a mark is not used up
}

// objgraph 3.6, growth(): only types whose count is above the highest that a call before it remembered, as
//   if count > old_count: deltas[name] = count - old_count; peak_stats[name] = count
TEST_CASE("growth from call to call is what rises beyond the highest count that a call saw, as objgraph's") {
  struct item : counted<item> {};
  std::map<std::string, std::int64_t> peak_stats;  // its own state
  const std::string name(live_type_of<item>().type);
  const auto objgraph = [&](std::int64_t count) {
    const std::int64_t old = peak_stats[name];
    if (count > old) peak_stats[name] = count;
    return count > old ? count - old : 0;
  };
  dice d(3);
  tidemark::type_mark mark = tidemark::mark_types();
  for (int round = 0; round < 200; ++round) {
    const std::vector<item> items(d.below(100 + static_cast<std::uint64_t>(round)));
    const auto grown = row_of(tidemark::next_type_growth(mark), name);
    REQUIRE(grown.delta == objgraph(static_cast<std::int64_t>(items.size())));
    REQUIRE((grown.delta == 0 || grown.live == static_cast<std::int64_t>(items.size())));
  }
}

TEST_CASE("the tables") {
  tidemark::counted_rows<live_type> live;
  live.rows = {{"nn::layer", 1'234'567, 2'000'000, 12'345'678'901U, 39'506'144}, {"tensor", -123, 3, 4, -984}};
  CHECK(live.table() ==
        "type            live       peak           total     bytes\n"
        "nn::layer  1,234,567  2,000,000  12,345,678,901  37.7 MiB\n"
        "tensor          -123          3               4    -984 B\n");
  tidemark::counted_rows<tidemark::grown_type> grown;
  grown.rows = {{"nn::layer", 1'500, 2'000, 48'000}, {"tensor", 1, 3, 8}};
  CHECK(grown.table() ==
        "type        delta   live      bytes\n"
        "nn::layer  +1,500  2,000  +46.9 KiB\n"
        "tensor         +1      3       +8 B\n");
  tidemark::counted_rows<tidemark::live_instance> instances;
  const auto at = [](int line) { return tidemark::location::current("server.cpp", line, "serve"); };
  instances.rows = {{nullptr, "", at(7), 40},
                    {nullptr, "", at(41), 30},
                    {nullptr, "serve/request\n", at(41), 20},
                    {nullptr, "serve/request\n", at(41), 10},
                    {nullptr, "", tidemark::location::current("model.cpp", 41, "serve"), 0}};
  CHECK(instances.table() ==
        "live  scope            made at\n"
        "   2  serve/request\\n  server.cpp:41\n"
        "   1  none             server.cpp:7\n"
        "   1  none             server.cpp:41\n"
        "   1  none             model.cpp:41\n");
  CHECK(tidemark::counted_rows<live_type>().table() == "type  live  peak  total  bytes\n");
}

TEST_CASE("random objects of one thread: the counts are those of a plain counter") {
  struct item : counted<item> {
    int value = 0;
  };
  dice d(5);
  expected model{0, 0, 0};
  const auto made = [&] {
    ++model.total;
    if (++model.live > model.peak) model.peak = model.live;
  };
  std::vector<std::unique_ptr<item>> items;
  for (int step = 0; step < 100'000; ++step) {
    const std::size_t at = items.empty() ? 0 : d.below(items.size());
    switch (d.below(items.size() > 40 ? 8 : 5)) {
      case 0:
        items.push_back(std::make_unique<item>());
        made();
        break;
      case 1:
        if (items.empty()) break;
        items.push_back(std::make_unique<item>(*items[at]));
        made();
        break;
      case 2:
        if (items.empty()) break;
        items.push_back(std::make_unique<item>(std::move(*items[at])));
        made();
        break;
      case 3:
        if (!items.empty()) *items[at] = *items.back();
        break;
      default:
        if (items.empty()) break;
        std::swap(items[at], items.back());
        items.pop_back();
        --model.live;
    }
    const live_type r = live_type_of<item>();
    REQUIRE(r.live == model.live);
    REQUIRE(r.peak == model.peak);
    REQUIRE(r.total == model.total);
  }
}

TEST_CASE("threads: live, peak and total are exact") {
  struct item : counted<item> {};
  constexpr std::size_t thread_count = 4;
  constexpr int rounds = 200;
  // In each round all threads first only make objects, and once all have, only destroy some.
  std::array<std::array<std::int64_t, rounds>, thread_count> made{}, kept{};
  barrier all(thread_count);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < thread_count; ++t) {
    threads.emplace_back([&, t] {
      dice d(100 + t);
      std::vector<std::unique_ptr<item>> items;
      for (std::size_t round = 0; round < rounds; ++round) {
        const std::uint64_t more = d.below(50);
        for (std::uint64_t i = 0; i < more; ++i) items.push_back(std::make_unique<item>());
        made[t][round] = static_cast<std::int64_t>(more);
        all.arrive_and_wait();
        const std::uint64_t fewer = d.below(items.size() + 1);
        for (std::uint64_t i = 0; i < fewer; ++i) items.pop_back();
        kept[t][round] = static_cast<std::int64_t>(items.size());
        all.arrive_and_wait();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  expected model{0, 0, 0};
  for (std::size_t round = 0; round < rounds; ++round) {
    for (const auto& of_thread : made) {
      model.live += of_thread[round];
      model.total += static_cast<std::uint64_t>(of_thread[round]);
    }
    if (model.live > model.peak) model.peak = model.live;
    model.live = 0;
    for (const auto& of_thread : kept) model.live += of_thread[round];
  }
  model.live = 0;  // the vectors went with their threads
  check_counts<item>(model);
}

TEST_CASE("the peak is never above what was live at once") {
  struct item : counted<item> {};
  constexpr std::size_t thread_count = 4;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < thread_count; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20'000; ++i) tidemark::escape(std::make_unique<item>().get());
    });
  }
  for (std::thread& t : threads) t.join();
  const live_type r = live_type_of<item>();
  CHECK(r.live == 0);
  CHECK(r.total == thread_count * 20'000);
  CHECK(r.peak >= 1);
  CHECK(r.peak <= static_cast<std::int64_t>(thread_count));
}

TEST_CASE("the peak is never below what was live at once, at any moment") {
  struct item : counted<item> {};
  constexpr std::size_t each = 100'000;
  std::atomic<int> arrived{0};
  std::atomic<std::int64_t> made{0};  // none is destroyed meanwhile: the peak is at least that
  std::atomic<int> too_low{0};
  const auto make_all = [&] {
    auto items = std::make_unique<std::array<std::optional<item>, each>>();
    ++arrived;
    while (arrived.load() < 2) {
    }
    for (std::optional<item>& i : *items) {
      i.emplace();
      const std::int64_t so_far = made.fetch_add(1) + 1;
      if (tidemark::detail::counts_of<item>.peak() < so_far) ++too_low;  // a row's is raised to what is live
    }
    return items;
  };
  std::unique_ptr<std::array<std::optional<item>, each>> others;
  std::thread other([&] { others = make_all(); });
  const auto mine = make_all();
  other.join();
  CHECK(too_low == 0);
  check_counts<item>({2 * each, 2 * each, 2 * each});
}

TEST_CASE("a list and a table are in no number") {
  const std::vector<nn::layer> layers(3);
  std::optional<tidemark::counted_rows<live_type>> kept;
  const auto m = tidemark::measure([&] {
    kept = tidemark::live_types();
    const auto mark = tidemark::mark_types();
    auto moved = mark;
    const nn::layer more;
    static_cast<void>(tidemark::type_growth(mark));
    static_cast<void>(tidemark::next_type_growth(moved));
  });
  CHECK(m.usage->allocations == 1);  // the copy of the mark is the test's own
  CHECK_FALSE(kept->empty());
  kept.reset();
  const auto one = tidemark::live_types();
  std::string table;
  CHECK(tidemark::measure([&] { table = one.table(); }).usage->allocations == 0);
  CHECK(tidemark::measure([] { tidemark::escape(nn::layer().weights == 0 ? &judge : nullptr); }).usage->allocations ==
        0);
}

// ---- objects that know where they were made ----

namespace {

class buffer : counted<buffer, count_sites> {
 public:
  explicit buffer(int n, tidemark::location where = tidemark::location::current()) : counted(where), size(n) {}
  virtual ~buffer() = default;
  buffer(const buffer&) = default;
  buffer(buffer&&) = default;
  buffer& operator=(const buffer&) = default;
  buffer& operator=(buffer&&) = default;

  int size;
};

struct plain_buffer : counted<plain_buffer, count_sites> {
  int size = 0;
};

struct before_it {
  std::array<char, 24> room{};
};
struct second_base : before_it, counted<second_base, count_sites> {};

}  // namespace

TEST_CASE("the list of objects says address, place, scope and age, oldest first") {
  CHECK(tidemark::live_instances<buffer>().empty());
  const std::uint32_t line = __LINE__ + 1;
  buffer first(1);
  std::optional<buffer> second;
  {
    tidemark::scope outer("serve");
    tidemark::scope inner("request");
    second.emplace(2);
  }
  const buffer third(3);
  const auto rows = tidemark::live_instances<buffer>();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].address == &first);
  CHECK(rows[1].address == &*second);
  CHECK(rows[2].address == &third);
  CHECK(rows[0].where.line() == line);
  CHECK(std::string_view(rows[0].where.file_name()) == __FILE__);
  CHECK(rows[0].path.empty());
  CHECK(rows[1].path == "serve/request");
  CHECK(rows[0].age_ns >= rows[1].age_ns);
  CHECK(rows[2].age_ns >= 0);
  CHECK(live_type_of<buffer>().live == 3);
  second.reset();
  const auto fewer = tidemark::live_instances<buffer>();
  REQUIRE(fewer.size() == 2);
  CHECK(fewer[0].address == &first);
  CHECK(fewer[1].address == &third);
}

TEST_CASE("a copy has the place of the original, and its own scope; an assignment changes nothing") {
  buffer original(1);
  const std::uint32_t line = __LINE__ - 1;
  tidemark::scope copies("copies");
  buffer copy = original;
  const buffer moved = std::move(original);
  copy = moved;
  const auto rows = tidemark::live_instances<buffer>();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].path.empty());
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(rows[i].where.line() == line);
    CHECK(rows[i].path == "copies");
  }
  CHECK(rows[1].address == &copy);
  CHECK(rows[2].address == &moved);
}

TEST_CASE("a type that says nothing of its places has the place of its constructor") {
  const plain_buffer a;
  const plain_buffer b{};
  const auto rows = tidemark::live_instances<plain_buffer>();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].address == &a);
  CHECK(std::string_view(rows[0].where.file_name()) == __FILE__);
  CHECK(rows[0].where.line() > 0);
}

TEST_CASE("an address is the object's, also where the count is its second base") {
  const second_base a;
  CHECK(tidemark::live_instances<second_base>()[0].address == &a);
}

TEST_CASE("the place takes 56 bytes") {
  struct with_place : counted<with_place, count_sites> {
    std::int64_t value = 0;
  };
  CHECK(sizeof(with_place) == 64);
}

TEST_CASE("a scope that another thread closed is not the one that an object is made in") {
  auto outer = std::make_unique<tidemark::scope>("outer");
  auto inner = std::make_unique<tidemark::scope>("inner");
  std::thread([&] { inner.reset(); }).join();
  const plain_buffer a;
  CHECK(tidemark::live_instances<plain_buffer>()[0].path == "outer");
  outer.reset();
}

TEST_CASE("random objects: the list holds the living, in the order of their making") {
  dice d(8);
  std::vector<std::unique_ptr<plain_buffer>> items;
  for (int step = 0; step < 3'000; ++step) {
    if (items.empty() || d.below(items.size() < 30 ? 3 : 2) != 0) {
      items.push_back(std::make_unique<plain_buffer>());
    } else {
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(d.below(items.size())));
    }
    const auto rows = tidemark::live_instances<plain_buffer>();
    REQUIRE(rows.size() == items.size());
    for (std::size_t i = 0; i < items.size(); ++i) REQUIRE(rows[i].address == items[i].get());
  }
}

TEST_CASE("threads: objects come and go while the list is read") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  const plain_buffer kept;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        const std::array<plain_buffer, 20> some;
        const auto copy = std::make_unique<plain_buffer>(some[3]);
      }
    });
  }
  for (int i = 0; i < 2'000; ++i) {
    const auto rows = tidemark::live_instances<plain_buffer>();
    REQUIRE(rows.size() >= 1);
    REQUIRE(rows[0].address == &kept);
    REQUIRE(rows.size() <= 64);
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  CHECK(tidemark::live_instances<plain_buffer>().size() == 1);
  CHECK(live_type_of<plain_buffer>().live == 1);
}

TEST_CASE("while the library waits for a fork no type begins to count, and none is listed") {
  struct late : counted<late> {};
  const plain_buffer known;
  auto* const types = tidemark::detail::find_registry<tidemark::detail::counted_types>();
  REQUIRE(types != nullptr);
  types->on_fork(tidemark::detail::fork_moment::before);
  std::atomic<int> arrived{0}, done{0};
  std::thread first_of_a_type([&] {
    ++arrived;
    const late a;
    ++done;
  });
  std::thread list([&] {
    ++arrived;
    static_cast<void>(tidemark::live_instances<plain_buffer>());
    ++done;
  });
  while (arrived.load() < 2) std::this_thread::yield();
  for (int i = 0; i < 2'000; ++i) std::this_thread::yield();
  CHECK(done.load() == 0);
  types->on_fork(tidemark::detail::fork_moment::after_in_parent);
  first_of_a_type.join();
  list.join();
  CHECK(done.load() == 2);
}

#if TIDEMARK_HAS_POSIX() && !TIDEMARK_HAS_TSAN()

TEST_CASE("a fork child lists and makes objects, whatever other threads were doing") {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) {
      const plain_buffer a;
      static_cast<void>(tidemark::live_instances<plain_buffer>());
      static_cast<void>(tidemark::live_types());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      struct first_in_the_child : counted<first_in_the_child, count_sites> {};
      const std::size_t before = tidemark::live_instances<plain_buffer>().size();
      const plain_buffer a, b;
      const first_in_the_child c;
      const bool is_right = tidemark::live_instances<plain_buffer>().size() == before + 2 &&
                            tidemark::live_instances<first_in_the_child>().size() == 1;
      ::_exit(is_right ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  stop = true;
  other.join();
}

#endif
