// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>
#include <tidemark/object/footprint.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/scope/measure.hpp>
#include <tidemark/scope/scope.hpp>

#include "dice.hpp"
#include "test.hpp"

using tidemark::footprint_of;

namespace {

template <class T>
std::int64_t bytes_of(std::size_t n) {
  return static_cast<std::int64_t>(n * sizeof(T));
}

/// Counts what its containers hold, beside the hook.
std::int64_t requested_now = 0;

template <class T>
struct counting {
  using value_type = T;
  counting() = default;
  template <class U>
  counting(const counting<U>&) noexcept {}  // NOLINT: as every allocator's
  T* allocate(std::size_t n) {
    requested_now += bytes_of<T>(n);
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* p, std::size_t n) noexcept {
    requested_now -= bytes_of<T>(n);
    std::allocator<T>().deallocate(p, n);
  }
  friend bool operator==(const counting&, const counting&) { return true; }
  friend bool operator!=(const counting&, const counting&) { return false; }
};
using text = std::basic_string<char, std::char_traits<char>, counting<char>>;
using texts = std::vector<text, counting<text>>;
using word_index = std::map<int, texts, std::less<int>, counting<std::pair<const int, texts>>>;

}  // namespace

TEST_CASE("a value without heap needs none") {
  CHECK(*footprint_of(7) == 0);
  CHECK(*footprint_of(std::array<float, 1'000>{}) == 0);
  CHECK(*footprint_of(std::string("short")) == 0);
  CHECK(*footprint_of(std::vector<int>()) == 0);
  CHECK(*footprint_of(std::optional<std::vector<int>>()) == 0);
}

TEST_CASE("a vector's footprint is its elements") {
  CHECK(*footprint_of(std::vector<float>(1'000)) == 4'000);
  CHECK(*footprint_of(std::vector<char>(1)) == 1);
  CHECK(*footprint_of(std::vector<double>(1U << 20U)) == 8 << 20);
}

TEST_CASE("what lies in elements counts, at any depth") {
  const std::string long_text(100, 'x');
  const std::vector<std::string> words{long_text, "short", long_text};
  CHECK(*footprint_of(words) == bytes_of<std::string>(3) + 2 * 101);  // with the null that ends a text
  const std::vector<std::vector<std::string>> pages{words, {}, words};
  CHECK(*footprint_of(pages) == bytes_of<std::vector<std::string>>(3) + 2 * *footprint_of(words));
}

TEST_CASE("room to spare is not in it") {
  std::vector<int> v(10);
  v.reserve(100'000);
  CHECK(*footprint_of(v) == 40);
  std::string s(50, 'x');
  s.reserve(10'000);
  CHECK(*footprint_of(s) == 51);
}

TEST_CASE("what is shared is not in it") {
  const auto weights = std::make_shared<std::vector<float>>(1'000'000);
  CHECK(*footprint_of(weights) == 0);
  CHECK(*footprint_of(std::vector<std::shared_ptr<std::vector<float>>>(3, weights)) ==
        bytes_of<std::shared_ptr<std::vector<float>>>(3));
  CHECK(weights.use_count() == 1);
}

TEST_CASE("a value with room that is aligned beyond the usual counts what it asked for") {
  struct alignas(256) wide {
    char c[256];
  };
  CHECK(*footprint_of(std::vector<wide>(3)) == 3 * 256);
  CHECK(*footprint_of(wide{}) == 0);
}

TEST_CASE("a value larger than the stack can be measured") {
  struct huge {
    std::array<char, 64U << 20U> own{};
    std::vector<int> more = std::vector<int>(5);
  };
  const auto value = std::make_unique<huge>();
  CHECK(*footprint_of(*value) == 20);
}

TEST_CASE("random values: the footprint is what the containers' own allocator was asked for") {
  dice d(11);
  for (int round = 0; round < 300; ++round) {
    word_index value;
    for (std::uint64_t i = d.below(20); i > 0; --i) {
      texts& t = value[static_cast<int>(d.below(50))];
      for (std::uint64_t n = d.below(8); n > 0; --n) t.push_back(text(d.below(60), 'x'));
    }
    const std::int64_t before = requested_now;
    const word_index copy = value;
    const std::int64_t needed = requested_now - before;
    REQUIRE(*footprint_of(value) == needed);
    REQUIRE(requested_now == before + needed);  // and it left nothing
  }
}

TEST_CASE("no account, scope or event count sees it") {
  const std::vector<std::string> value(1'000, std::string(100, 'x'));
  const tidemark::usage before = *tidemark::thread_usage();
  const tidemark::usage all_before = *tidemark::process_usage();
  const std::uint64_t own_before = tidemark::self().own_bytes;
  tidemark::scope around("around");
  std::int64_t found = 0;
  const auto m = tidemark::measure([&] { found = *footprint_of(value); });
  CHECK(found == bytes_of<std::string>(1'000) + 1'000 * 101);
  CHECK(m.usage->allocations == 0);
  CHECK(m.usage->deallocations == 0);
  CHECK(m.usage->peak_growth() == 0);
  CHECK(around.usage()->allocations == 0);
  const tidemark::usage after = *tidemark::thread_usage();
  const tidemark::usage all_after = *tidemark::process_usage();
  CHECK(after.allocations == before.allocations);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.peak_bytes == before.peak_bytes);
  CHECK(all_after.live_bytes == all_before.live_bytes);
  CHECK(all_after.allocated_bytes == all_before.allocated_bytes);
  CHECK(tidemark::self().own_bytes <= own_before + 65'536);  // the path's
}

TEST_CASE("inside quiet it is the same") {
  const tidemark::quiet hidden;
  CHECK(*footprint_of(std::vector<float>(1'000)) == 4'000);
}

TEST_CASE("a value's domain sees the copy come and go") {
  tidemark::domain cache("footprint cache", {10'000});
  using floats = std::vector<float, tidemark::allocator<float>>;
  const floats value(1'000, 0.0F, cache);
  CHECK(*footprint_of(value) == 4'000);
  CHECK(cache.current().live_bytes == 4'000);
  CHECK(cache.current().peak_bytes == 8'000);
#if TIDEMARK_HAS_EXCEPTIONS()
  cache.limit(6'000);
  CHECK_THROWS_AS(static_cast<void>(footprint_of(value)), tidemark::over_budget);
  CHECK(cache.current().live_bytes == 4'000);
#endif
}

#if TIDEMARK_HAS_EXCEPTIONS()

namespace {
struct fragile {
  std::vector<int> data = std::vector<int>(100);
  static inline int copies_left = 0;
  fragile() = default;
  fragile(const fragile& other) : data(other.data) {
    if (copies_left-- == 0) throw std::runtime_error("no copy");
  }
};
}  // namespace

TEST_CASE("a copy that throws passes through and leaves nothing") {
  const std::vector<fragile> value(10);
  for (int copies = 0; copies < 10; ++copies) {
    fragile::copies_left = copies;
    const std::int64_t own = static_cast<std::int64_t>(tidemark::self().own_bytes);
    const std::int64_t live = tidemark::thread_usage()->live_bytes;
    CHECK_THROWS_AS(static_cast<void>(footprint_of(value)), std::runtime_error);
    CHECK(tidemark::thread_usage()->live_bytes == live);
    CHECK(static_cast<std::int64_t>(tidemark::self().own_bytes) == own);
  }
  fragile::copies_left = 10;
  CHECK(*footprint_of(value) == bytes_of<fragile>(10) + 10 * 400);
  CHECK(*footprint_of(std::vector<float>(1'000)) == 4'000);  // and events are counted again
  CHECK(tidemark::measure([] { tidemark::escape(std::vector<int>(9).data()); }).usage->allocations == 1);
}

#endif

TEST_CASE("threads do not see each other's copies") {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    const std::vector<int> mine(333);
    while (!stop.load()) {
      if (*footprint_of(mine) != 1'332) std::abort();
      const std::vector<int> noise(100);
      tidemark::escape(noise.data());
    }
  });
  const std::vector<std::string> value(50, std::string(100, 'x'));
  for (int i = 0; i < 2'000; ++i) REQUIRE(*footprint_of(value) == bytes_of<std::string>(50) + 50 * 101);
  stop = true;
  other.join();
}
