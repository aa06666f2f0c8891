// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/object/weak.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tidemark/object/edges.hpp>
#include <tidemark/scope/scope.hpp>

#include "barrier.hpp"
#include "standard_error.hpp"
#include "test.hpp"

#if TIDEMARK_HAS_POSIX()
  #include <pthread.h>
  #include <sys/wait.h>
  #include <unistd.h>
#endif

using tidemark::expiry_token;
using tidemark::make_tracked;
using tidemark::on_expire;
using tidemark::tracked_weak;
using tidemark::zombie;
using tidemark::zombies;

namespace nn {

struct part {
  virtual ~part() = default;
  int value = 1;
};
struct named {
  virtual ~named() = default;
  std::string name = "a name that is too long for the short string optimisation";
};
struct layer : part, named, std::enable_shared_from_this<layer> {
  layer() = default;
  layer(int v, std::unique_ptr<int> o) : owned(std::move(o)) { value = v; }
  std::unique_ptr<int> owned;
};

}  // namespace nn

namespace {

struct block {
  std::byte bytes[10'000];
};

std::int64_t heap_bytes() { return tidemark::thread_usage().value().live_bytes; }
std::int64_t heap_blocks() { return tidemark::thread_usage().value().live_blocks; }

struct knot {
  tracked_weak<knot> self;
  TIDEMARK_EDGES(knot, self);
};

/// Says when it ends.
struct mortal {
  explicit mortal(std::string* a) : log(a) {}
  mortal(const mortal&) = delete;
  mortal& operator=(const mortal&) = delete;
  ~mortal() { *log += "destructor "; }
  std::string* log;
};

#if TIDEMARK_HAS_POSIX()
/// Runs `f` on a thread with a stack of that size.
template <class F>
void with_stack(std::size_t bytes, F f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread{};
  const auto run = [](void* p) -> void* {
    (*static_cast<F*>(p))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &f) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

/// Whether `f` ends and returns true in a child of fork(). One that hangs is killed by its alarm.
template <class F>
bool holds_in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
#endif

// Made before main, with a callback that runs after it.
int callbacks_of_the_eternal = 0;
const std::shared_ptr<std::string> eternal = make_tracked<std::string>("older than main");
const expiry_token eternal_token = on_expire(tracked_weak<std::string>(eternal), [] { ++callbacks_of_the_eternal; });

}  // namespace

TEST_CASE("a tracked object is made as by make_shared") {
  const std::shared_ptr<nn::layer> l = make_tracked<nn::layer>(7, std::make_unique<int>(8));
  CHECK(l->value == 7);
  CHECK(*l->owned == 8);
  CHECK(l.use_count() == 1);
  CHECK(l->shared_from_this() == l);
  CHECK(*make_tracked<const int>(3) == 3);

  struct alignas(256) wide {
    char c = 'w';
  };
  const std::shared_ptr<wide> w = make_tracked<wide>();
  CHECK(reinterpret_cast<std::uintptr_t>(w.get()) % 256 == 0);

  struct last final {
    int i = 4;
  };
  CHECK(make_tracked<last>()->i == 4);
}

TEST_CASE("aliases and pointers to bases are the same object, another object is another") {
  const std::shared_ptr<nn::layer> l = make_tracked<nn::layer>();
  const std::shared_ptr<nn::named> base = l;  // at another address
  const std::shared_ptr<int> alias(l, &l->value);
  REQUIRE(static_cast<const void*>(base.get()) != static_cast<const void*>(l.get()));
  const tracked_weak<nn::layer> of_layer = l;
  const tracked_weak<nn::named> of_base = base;
  const tracked_weak<int> of_alias = alias;
  const tracked_weak<nn::part> converted = of_layer;
  CHECK(of_layer == of_base);
  CHECK(of_base == of_alias);
  CHECK(of_alias == converted);
  CHECK(of_alias.type() == "nn::layer");
  CHECK(of_base.bytes() == sizeof(nn::layer));
  CHECK(of_alias.lock() == alias);
  CHECK(of_base.lock() == base);

  const std::shared_ptr<nn::layer> other = make_tracked<nn::layer>();
  const tracked_weak<nn::layer> of_other = other;
  CHECK(of_other != of_layer);
  CHECK(of_layer < of_other);
  CHECK_FALSE(of_other < of_layer);
}

TEST_CASE("an object outlives the pointer that it was made with as long as an alias or a base holds it") {
  std::string log;
  std::shared_ptr<mortal> m = make_tracked<mortal>(&log);
  const tracked_weak<mortal> w = m;
  on_expire(w, [&log] { log += "callback "; });
  std::shared_ptr<std::string*> alias(m, &m->log);
  m.reset();
  CHECK_FALSE(w.expired());
  CHECK(log.empty());
  alias.reset();
  CHECK(w.expired());
  CHECK(log == "destructor callback ");
}

TEST_CASE("ids are never used again, however often the memory is") {
  std::set<std::uint64_t> ids;
  std::set<const void*> addresses;
  std::uint64_t last = 0;
  for (int i = 0; i < 1'000; ++i) {
    const auto p = make_tracked<int>(i);
    const std::uint64_t id = tracked_weak<int>(p).id();
    CHECK(id > last);
    last = id;
    ids.insert(id);
    addresses.insert(p.get());
  }
  CHECK(ids.size() == 1'000);
#if !TIDEMARK_HAS_SANITIZER_ALLOCATOR()
  CHECK(addresses.size() < 10);
#endif
}

TEST_CASE("what is made in a constructor is younger than what makes it") {
  struct parent {
    std::shared_ptr<int> child = make_tracked<int>(1);
  };
  const auto p = make_tracked<parent>();
  CHECK(tracked_weak<parent>(p) < tracked_weak<int>(p->child));
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("of many objects each is found by its own pointer, also where others have gone") {
  constexpr std::size_t count = 20'000;
  std::vector<std::shared_ptr<int>> all;
  const std::uint64_t before = tracked_weak<int>(make_tracked<int>(0)).id();
  for (std::size_t i = 0; i < count; ++i) all.push_back(make_tracked<int>(static_cast<int>(i)));
  for (std::size_t i = 0; i < count; i += 3) all[i].reset();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t expected = all[i] == nullptr ? 0 : before + 1 + i;
    if (tracked_weak<int>(all[i]).id() != expected) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a shared_ptr of another origin is refused with a text that says what to do") {
  const auto plain = std::make_shared<int>(1);
  CHECK_THROWS_WITH_AS(static_cast<void>(tracked_weak<int>(plain)), doctest::Contains("tidemark::make_tracked"),
                       std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(tracked_weak<int>(std::shared_ptr<int>(new int(2)))), std::invalid_argument);
  const auto tracked = make_tracked<int>(3);
  CHECK_THROWS_AS(static_cast<void>(tracked_weak<int>(std::shared_ptr<int>(plain, tracked.get()))),
                  std::invalid_argument);
}

TEST_CASE("a constructor that throws leaves nothing") {
  struct thrower {
    thrower() { throw std::runtime_error("no"); }
    std::string name = "a name that is too long for the short string optimisation";
  };
  const std::int64_t objects = tidemark::live_tracked().objects;
  const std::int64_t bytes = heap_bytes();
  for (int i = 0; i < 100; ++i) CHECK_THROWS_AS(static_cast<void>(make_tracked<thrower>()), std::runtime_error);
  CHECK(tidemark::live_tracked().objects == objects);
  CHECK(heap_bytes() == bytes);
}
#endif

TEST_CASE("null is not dead, and nothing is both") {
  const tracked_weak<int> null;
  CHECK(null.is_null());
  CHECK(null.expired());
  CHECK(null.id() == 0);
  CHECK(null.type().empty());
  CHECK(null.lock() == nullptr);
  CHECK(tracked_weak<int>(std::shared_ptr<int>()).is_null());
  int i = 0;
  CHECK(tracked_weak<int>(std::shared_ptr<int>(std::shared_ptr<int>(), &i)).is_null());  // it points and owns nothing

  std::shared_ptr<int> p = make_tracked<int>(1);
  tracked_weak<int> w = p;
  CHECK_FALSE(w.is_null());
  CHECK_FALSE(w.expired());
  p.reset();
  CHECK_FALSE(w.is_null());
  CHECK(w.expired());
  CHECK(w.lock() == nullptr);
  CHECK(w != null);

  const tracked_weak<int> moved = std::move(w);
  CHECK(w.is_null());  // NOLINT: what a move leaves is documented
  CHECK_FALSE(moved.is_null());
}

TEST_CASE("a dead handle still says what it was") {
  std::shared_ptr<nn::layer> l = make_tracked<nn::layer>();
  const tracked_weak<nn::part> w = tracked_weak<nn::layer>(l);
  const std::uint64_t id = w.id();
  l.reset();
  CHECK(w.expired());
  CHECK(w.id() == id);
  CHECK(w.type() == "nn::layer");
  CHECK(w.bytes() == sizeof(nn::layer));
}

TEST_CASE("handles copy, move, swap, and are keys") {
  const auto a = make_tracked<int>(1);
  const auto b = make_tracked<int>(2);
  tracked_weak<int> wa = a;
  tracked_weak<int> wb = b;
  swap(wa, wb);
  CHECK(*wa.lock() == 2);
  wa = wb;
  CHECK(wa == wb);
  tracked_weak<int>& self = wa;
  wa = std::move(self);
  CHECK(*wa.lock() == 1);
  wa.reset();
  CHECK(wa.is_null());

  std::unordered_set<tracked_weak<int>> set{a, b, a, std::shared_ptr<int>(b, a.get())};
  CHECK(set.size() == 2);
  CHECK(set.count(tracked_weak<int>(b)) == 1);
}

TEST_CASE("the bytes of zombies are those that the heap still holds") {
  const std::int64_t bytes = heap_bytes();
  const std::int64_t blocks = heap_blocks();
  std::shared_ptr<block> p = make_tracked<block>();
  const std::int64_t made = heap_bytes() - bytes;
  CHECK(made == sizeof(block) + 6 * sizeof(void*));
  CHECK(heap_blocks() - blocks == 1);
  tracked_weak<block> w = p;
  p.reset();
  CHECK(heap_bytes() - bytes == made);

  const std::vector<zombie> dead = zombies();
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].bytes == made);
  CHECK(dead[0].id == w.id());
  CHECK(dead[0].type == w.type());
  CHECK(tidemark::zombie_totals().bytes == made);
  CHECK(tidemark::zombie_totals().objects == 1);

  w.reset();
  CHECK(heap_bytes() == bytes);
  CHECK(heap_blocks() == blocks);
  CHECK(zombies().empty());
  CHECK(tidemark::zombie_totals().bytes == 0);
}

TEST_CASE("a weak handle of what the object owns is no matter: that went with the object") {
  const std::int64_t bytes = heap_bytes();
  auto p = make_tracked<std::vector<char>>(1'000'000);
  CHECK(heap_bytes() - bytes > 1'000'000);
  const tracked_weak<std::vector<char>> w = p;
  p.reset();
  CHECK(heap_bytes() - bytes == tidemark::zombie_totals().bytes);
  CHECK(tidemark::zombie_totals().bytes < 100);
}

TEST_CASE("a plain weak_ptr makes a zombie too") {
  auto p = make_tracked<int>(1);
  const std::weak_ptr<int> w = p;
  p.reset();
  CHECK(tidemark::zombie_totals().objects == 1);
}

TEST_CASE("of many objects the user's heap holds the blocks and nothing of the library's") {
  const std::int64_t objects = tidemark::live_tracked().objects;
  std::vector<std::shared_ptr<int>> all(2'000);
  const std::int64_t bytes = heap_bytes();
  for (auto& p : all) p = make_tracked<int>(1);
  const std::int64_t each = tidemark::live_tracked().objects == objects ? 0 : (heap_bytes() - bytes) / 2'000;
  CHECK((heap_bytes() - bytes) % 2'000 == 0);
  CHECK(each <= 64);
  CHECK(tidemark::live_tracked().objects - objects == 2'000);
  const std::int64_t with_objects = heap_bytes();
  std::vector<tracked_weak<int>> weak(all.begin(), all.end());
  const std::int64_t with_handles = heap_bytes();
  CHECK(with_handles - with_objects == 2'000 * static_cast<std::int64_t>(sizeof(tracked_weak<int>)));
  for (const auto& w : weak) on_expire(w, [] {});
  CHECK(heap_bytes() == with_handles);
  all.clear();
  const std::vector<zombie> dead = zombies();
  CHECK(dead.size() == 2'000);
  weak.clear();
  CHECK(tidemark::live_tracked().objects == objects);
}

TEST_CASE("zombies are told by size, with their scope path, place and age") {
  std::vector<std::shared_ptr<void>> alive;
  {
    const tidemark::scope train("train");
    const tidemark::scope step("step");
    alive.push_back(make_tracked<int>(1));
    alive.push_back(TIDEMARK_MAKE_TRACKED(block));
  }
  const int line = __LINE__ - 2;
  alive.push_back(TIDEMARK_MAKE_TRACKED(std::string, 3, 'x'));
  std::vector<tracked_weak<void>> weak(alive.begin(), alive.end());
  CHECK(zombies().empty());
  for (auto& object : alive) object.reset();  // in order, which clear() does not promise

  const std::vector<zombie> first = zombies();
  REQUIRE(first.size() == 3);
  CHECK(first[0].type == "(anonymous namespace)::block");
  CHECK(first[0].path == "train/step");
  CHECK(std::string_view(first[0].where.file_name()).find("weak_test.cpp") != std::string_view::npos);
  CHECK(first[0].where.line() == static_cast<std::uint32_t>(line));
  CHECK(first[1].path.empty());
  CHECK(first[1].where.line() == static_cast<std::uint32_t>(line + 3));
  CHECK(first[2].path == "train/step");
  CHECK(first[2].where.line() == 0);
  CHECK(first[0].bytes > first[1].bytes);
  CHECK(first[1].bytes > first[2].bytes);
  CHECK(first[2].age_ns >= first[0].age_ns);  // the first that died is the first that was made

  const std::vector<zombie> later = zombies();
  REQUIRE(later.size() == 3);
  CHECK(first[0].age_ns >= 0);
  CHECK(later[0].age_ns > first[0].age_ns);
}

TEST_CASE("an object may hold handles of itself and of others") {
  const std::int64_t bytes = heap_bytes();
  {
    auto a = make_tracked<knot>();
    auto b = make_tracked<knot>();
    a->self = a;
    b->self = a;
    CHECK(a.use_count() == 1);
    a.reset();
    CHECK(tidemark::zombie_totals().objects == 1);
  }
  CHECK(tidemark::zombie_totals().objects == 0);
  CHECK(heap_bytes() == bytes);
}

// ---- on_expire ----

TEST_CASE("a callback runs once, after the destructor, on the thread that lets go last") {
  std::string log;
  std::shared_ptr<mortal> p = make_tracked<mortal>(&log);
  std::thread::id where;
  on_expire(tracked_weak<mortal>(p), [&] {
    log += "callback ";
    where = std::this_thread::get_id();
  });
  std::thread last([owner = std::move(p)]() mutable { owner.reset(); });
  const std::thread::id expected = last.get_id();
  last.join();
  CHECK(log == "destructor callback ");
  CHECK(where == expected);
}

TEST_CASE("of one object the newest callback comes first") {
  std::string log;
  auto p = make_tracked<int>(1);
  const tracked_weak<int> w = p;
  for (const char* name : {"a", "b", "c"}) on_expire(w, [&log, name] { log += name; });
  p.reset();
  CHECK(log == "cba");
}

TEST_CASE("a callback for a dead object runs at once") {
  auto p = make_tracked<int>(1);
  const tracked_weak<int> w = p;
  p.reset();
  int calls = 0;
  expiry_token token = on_expire(w, [&calls] { ++calls; });
  CHECK(calls == 1);
  CHECK_FALSE(token.cancel());
}

TEST_CASE("a callback that is set in the destructor of its object runs after it") {
  struct setter {
    ~setter() {
      on_expire(*self, [l = log] { *l += "callback "; });
      *log += "destructor ";
    }
    tracked_weak<setter>* self;
    std::string* log;
  };
  std::string log;
  tracked_weak<setter> w;
  auto p = make_tracked<setter>();
  w = p;
  p->self = &w;
  p->log = &log;
  p.reset();
  CHECK(log == "destructor callback ");
}

TEST_CASE("a cancelled callback never runs, and what it holds goes at once") {
  auto p = make_tracked<int>(1);
  const auto held = std::make_shared<int>(2);
  int calls = 0;
  expiry_token first = on_expire(tracked_weak<int>(p), [&calls, held] { ++calls; });
  expiry_token second = on_expire(tracked_weak<int>(p), [&calls, held] { ++calls; });
  expiry_token third = on_expire(tracked_weak<int>(p), [&calls, held] { ++calls; });
  expiry_token copy = second;
  CHECK(held.use_count() == 4);
  CHECK(second.cancel());
  CHECK(held.use_count() == 3);
  CHECK_FALSE(second.cancel());
  CHECK_FALSE(copy.cancel());
  p.reset();
  CHECK(calls == 2);
  CHECK(held.use_count() == 1);
  CHECK_FALSE(first.cancel());
  CHECK_FALSE(third.cancel());
  CHECK_FALSE(expiry_token().cancel());
}

TEST_CASE("cancelling leaves the others in any order, and takes no memory that stays") {
  auto p = make_tracked<int>(1);
  const tracked_weak<int> w = p;
  int calls = 0;
  std::vector<expiry_token> tokens;
  for (int i = 0; i < 4; ++i) tokens.push_back(on_expire(w, [&calls, i] { calls += 1 << i; }));
  CHECK(tokens[3].cancel());  // the newest
  CHECK(tokens[0].cancel());  // the oldest
  const std::uint64_t own = tidemark::self().own_bytes;
  for (int i = 0; i < 10'000; ++i) CHECK(on_expire(w, [&calls] { calls += 1'000; }).cancel());
  CHECK(tidemark::self().own_bytes < own + 1'000);
  p.reset();
  CHECK(calls == 0b0110);
}

TEST_CASE("a token may outlive its object, and cancels nothing by its end") {
  int calls = 0;
  auto p = make_tracked<int>(1);
  expiry_token token = on_expire(tracked_weak<int>(p), [&calls] { ++calls; });
  {
    const expiry_token ended = on_expire(tracked_weak<int>(p), [&calls] { ++calls; });
  }
  p.reset();
  CHECK(calls == 2);
  // The record of the object serves another by now.
  auto other = make_tracked<int>(2);
  on_expire(tracked_weak<int>(other), [&calls] { ++calls; });
  CHECK_FALSE(token.cancel());
  other.reset();
  CHECK(calls == 3);
}

TEST_CASE("a callback may do anything that the program may") {
  auto p = make_tracked<int>(1);
  auto other = make_tracked<int>(2);
  tracked_weak<int> w = p;
  std::string log;
  expiry_token mine;
  std::shared_ptr<int> made;
  mine = on_expire(w, [&] {
    log += "first ";
    CHECK_FALSE(mine.cancel());  // from inside: it returns
    w.reset();                   // the last handle
    made = make_tracked<int>(3);
    on_expire(tracked_weak<int>(other), [&log] { log += "other "; });
    CHECK(zombies().size() == 1);  // the pointer that lets go holds the memory until this returns
    other.reset();
    log += "last ";
  });
  p.reset();
  CHECK(zombies().empty());
  CHECK(log == "first last other ");  // what falls due meanwhile follows
  CHECK(*made == 3);
}

TEST_CASE("what a callback allocates is the program's") {
  auto p = make_tracked<int>(1);
  std::vector<char> kept;
  on_expire(tracked_weak<int>(p), [&kept] { kept.resize(1'000); });
  const std::int64_t bytes = heap_bytes();
  const std::int64_t of_object = tidemark::live_tracked().bytes;
  p.reset();
  CHECK(heap_bytes() - bytes == 1'000 - (of_object - tidemark::live_tracked().bytes));
}

TEST_CASE("a callback may hold the last pointer of another object, a hundred thousand times") {
#if TIDEMARK_HAS_POSIX()
  int calls = 0;
  with_stack(256 * 1'024, [&calls] {
    std::shared_ptr<int> first;
    for (int i = 0; i < 100'000; ++i) {
      auto p = make_tracked<int>(i);
      on_expire(tracked_weak<int>(p), [&calls, next = std::move(first)] { ++calls; });
      first = std::move(p);
    }
    first.reset();
  });
  CHECK(calls == 100'000);
#endif
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("what a callback throws is said, and disturbs no other") {
  auto p = make_tracked<int>(1);
  const tracked_weak<int> w = p;
  int calls = 0;
  on_expire(w, [&calls] { ++calls; });
  on_expire(w, [] { throw std::runtime_error("the disk is full"); });
  on_expire(w, [&calls] { ++calls; });
  standard_error error;
  p.reset();
  CHECK(error.text().find("the disk is full") != std::string::npos);
  CHECK(calls == 2);
}

TEST_CASE("a null handle takes no callback") {
  CHECK_THROWS_AS(on_expire(tracked_weak<int>(), [] {}), std::invalid_argument);
}
#endif

TEST_CASE("a callback that is due, but not called yet, can be cancelled") {
  auto a = make_tracked<int>(1);
  auto b = make_tracked<int>(2);
  int calls = 0;
  expiry_token of_b = on_expire(tracked_weak<int>(b), [&calls] { ++calls; });
  on_expire(tracked_weak<int>(a), [&] {
    b.reset();
    CHECK(calls == 0);
    CHECK(of_b.cancel());
  });
  a.reset();
  CHECK(calls == 0);
}

#if TIDEMARK_HAS_POSIX()
TEST_CASE("a fork child uses the objects that it was left with, while other threads were busy with theirs") {
  bool is_over = false;
  barrier begun(2);
  std::mutex mutex;
  std::thread busy([&] {
    begun.arrive_and_wait();
    for (;;) {
      const auto p = make_tracked<int>(1);
      on_expire(tracked_weak<int>(p), [] {});
      static_cast<void>(zombies());
      const std::lock_guard<std::mutex> held(mutex);
      if (is_over) return;
    }
  });
  begun.arrive_and_wait();
  for (int i = 0; i < 20; ++i) {
    auto p = make_tracked<int>(1);
    int calls = 0;
    on_expire(tracked_weak<int>(p), [&calls] { ++calls; });
    CHECK(holds_in_child([&] {
      const auto own = make_tracked<int>(2);
      const tracked_weak<int> w = p;
      p.reset();
      return calls == 1 && w.expired() && tracked_weak<int>(own).id() > w.id() && tidemark::zombie_totals().objects > 0;
    }));
    CHECK(calls == 0);
  }
  {
    const std::lock_guard<std::mutex> held(mutex);
    is_over = true;
  }
  busy.join();
}

TEST_CASE("in a fork child nothing waits for a callback of a thread that is not there") {
  auto p = make_tracked<int>(1);
  barrier running(2);
  barrier may_end(2);
  expiry_token token = on_expire(tracked_weak<int>(p), [&] {
    running.arrive_and_wait();
    may_end.arrive_and_wait();
  });
  std::thread other([&] { p.reset(); });
  running.arrive_and_wait();
  CHECK(holds_in_child([&] {
    auto own = make_tracked<int>(2);
    int calls = 0;
    on_expire(tracked_weak<int>(own), [&calls] { ++calls; });
    own.reset();
    return !token.cancel() && calls == 1;
  }));
  may_end.arrive_and_wait();
  other.join();
}
#endif

TEST_CASE("an object that is older than main lives, and its callback waits for the end of the program") {
  CHECK(*eternal == "older than main");
  CHECK(callbacks_of_the_eternal == 0);
  CHECK(tracked_weak<std::string>(eternal).id() == 1);
}
