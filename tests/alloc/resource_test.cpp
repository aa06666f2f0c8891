// SPDX-License-Identifier: MIT
#include <tidemark/alloc/resource.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "conformance.hpp"
#include "test.hpp"

using tidemark::domain;
using tidemark::resource;
using tidemark::usage;

namespace {

class heap_resource final : public std::pmr::memory_resource {
 public:
  explicit heap_resource(test_heap& heap) : heap_(&heap) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override { return heap_->allocate(bytes, alignment); }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    heap_->deallocate(p, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  test_heap* heap_;
};

template <std::size_t Unit, std::size_t Alignment>
struct through_resource {
  static constexpr std::size_t unit = Unit;
  static constexpr std::size_t alignment = Alignment;

  class blocks {
   public:
    blocks(const domain& d, test_heap& below) : below_(below), resource_(d, &below_) {}
    void* allocate(std::size_t units) {
      // Where a multiplication overflows no caller asks.
      const std::size_t bytes = units > SIZE_MAX / Unit ? SIZE_MAX : units * Unit;
      return resource_.allocate(bytes, Alignment);
    }
    void deallocate(void* p, std::size_t units) { resource_.deallocate(p, units * Unit, Alignment); }

   private:
    heap_resource below_;
    resource resource_;
  };
};

using bytes_through_resource = through_resource<1, 1>;
using words_through_resource = through_resource<24, 8>;
using pages_through_resource = through_resource<3, 4'096>;

}  // namespace

ADAPTOR_CONFORMS(bytes_through_resource);
ADAPTOR_CONFORMS(words_through_resource);
ADAPTOR_CONFORMS(pages_through_resource);

TEST_CASE("a resource feeds the domain \"default\" where none is named, and takes the default resource below") {
  const domain d = tidemark::default_domain();
  resource r;
  CHECK(r.upstream() == std::pmr::get_default_resource());
  void* p = r.allocate(100, 8);
  CHECK(d.current().live_bytes == 100);
  r.deallocate(p, 100, 8);
  CHECK(d.current().live_bytes == 0);

  test_heap heap;
  heap_resource below(heap);
  std::pmr::memory_resource* before = std::pmr::set_default_resource(&below);
  const domain other("other");
  resource late(other);
  std::pmr::set_default_resource(before);
  CHECK(late.upstream() == &below);
  p = late.allocate(10);
  CHECK(holds_what_is_live(other, heap));
  late.deallocate(p, 10);
}

TEST_CASE("a resource is equal to itself alone") {
  const domain d("equal");
  const resource a(d);
  const resource b(d);
  CHECK(a == a);
  CHECK(a != b);
  CHECK(!a.is_equal(*std::pmr::get_default_resource()));
  CHECK(!std::pmr::get_default_resource()->is_equal(a));
}

namespace {

template <class C>
void fill(C& c, int from) {
  for (int i = from; i < from + 100; ++i) c.insert(c.end(), i);
}
void fill(std::pmr::string& c, int from) { c.append(100, static_cast<char>('a' + from % 26)); }
void fill(std::pmr::forward_list<int>& c, int from) {
  for (int i = from; i < from + 100; ++i) c.push_front(i);
}
template <class C>
void fill_map(C& c, int from) {
  for (int i = from; i < from + 100; ++i) c.emplace(i, i);
}
void fill(std::pmr::map<int, int>& c, int from) { fill_map(c, from); }
void fill(std::pmr::multimap<int, int>& c, int from) { fill_map(c, from); }
void fill(std::pmr::unordered_map<int, int>& c, int from) { fill_map(c, from); }
void fill(std::pmr::unordered_multimap<int, int>& c, int from) { fill_map(c, from); }

}  // namespace

TEST_CASE_TEMPLATE("containers of a resource are counted, and leave nothing", C, std::pmr::vector<int>,
                   std::pmr::deque<int>, std::pmr::list<int>, std::pmr::forward_list<int>, std::pmr::set<int>,
                   std::pmr::multiset<int>, std::pmr::map<int, int>, std::pmr::multimap<int, int>,
                   std::pmr::unordered_set<int>, std::pmr::unordered_multiset<int>, std::pmr::unordered_map<int, int>,
                   std::pmr::unordered_multimap<int, int>, std::pmr::string) {
  test_heap left_heap;
  test_heap right_heap;
  heap_resource left_below(left_heap);
  heap_resource right_below(right_heap);
  const domain left("left");
  const domain right("right");
  resource left_resource(left, &left_below);
  resource right_resource(right, &right_below);
  const auto both_hold = [&] { return holds_what_is_live(left, left_heap) && holds_what_is_live(right, right_heap); };
  {
    C a(&left_resource);
    C b(&right_resource);
    fill(a, 0);
    fill(b, 1'000);
    fill(b, 2'000);
    CHECK(left.current().live_bytes > 0);
    CHECK(right.current().live_bytes > left.current().live_bytes);
    CHECK(both_hold());
    const C expected(a, std::pmr::new_delete_resource());
    b = a;  // a pmr container keeps its resource
    CHECK(b == expected);
    CHECK(both_hold());
    C c(std::move(a));
    CHECK(c == expected);
    C moved(std::move(c), &right_resource);
    CHECK(moved == expected);
    CHECK(both_hold());
    b = std::move(moved);
    CHECK(b == expected);
    CHECK(both_hold());
  }
  CHECK(both_hold());
  CHECK(left.current().live_bytes == 0);
  CHECK(right.current().live_bytes == 0);
  CHECK(left.current().live_blocks == 0);
  CHECK(right.current().live_blocks == 0);
}

TEST_CASE("containers inside containers share the resource") {
  test_heap heap;
  heap_resource below(heap);
  const domain d("nested");
  resource r(d, &below);
  {
    std::pmr::vector<std::pmr::string> words(&r);
    for (int i = 0; i < 50; ++i) words.emplace_back(std::string(200, 'x').c_str());
    CHECK(words.back().get_allocator().resource() == &r);
    CHECK(d.current().live_bytes > 50 * 200);
    CHECK(holds_what_is_live(d, heap));
  }
  CHECK(d.current().live_bytes == 0);
}

TEST_CASE("below a monotonic buffer a resource counts what the buffer reserves, until it is released") {
  test_heap heap;
  heap_resource below(heap);
  const domain d("monotonic");
  resource r(d, &below);
  {
    std::pmr::monotonic_buffer_resource buffer(1'000, &r);
    std::pmr::vector<int> v(&buffer);
    for (int i = 0; i < 10'000; ++i) v.push_back(i);
    v.clear();
    v.shrink_to_fit();
    CHECK(d.current().live_bytes > 40'000);
    CHECK(holds_what_is_live(d, heap));
    buffer.release();
    CHECK(d.current().live_bytes == 0);
    CHECK(holds_what_is_live(d, heap));
  }
  CHECK(d.current().live_bytes == 0);
}

TEST_CASE("above a monotonic buffer a resource counts what it hands out") {
  const domain d("above monotonic");
  std::pmr::monotonic_buffer_resource buffer;
  resource r(d, &buffer);
  std::pmr::vector<std::int64_t> v(&r);
  v.reserve(100);
  CHECK(d.current().live_bytes == 800);
  v.reserve(300);
  CHECK(d.current().live_bytes == 2'400);
  CHECK(d.current().peak_bytes == 3'200);
}

TEST_CASE_TEMPLATE("above and below a pool, a resource counts what is handed out and what is reserved", Pool,
                   std::pmr::unsynchronized_pool_resource, std::pmr::synchronized_pool_resource) {
  test_heap heap;
  heap_resource below(heap);
  const domain reserved("reserved");
  const domain handed_out("handed out");
  resource r(reserved, &below);
  {
    Pool pool(&r);
    resource above(handed_out, &pool);
    dice d(1);
    struct block {
      void* p;
      std::size_t bytes;
      std::size_t alignment;
    };
    std::vector<block> blocks;
    std::int64_t live = 0;
    const auto free_last = [&] {
      const block b = blocks.back();
      blocks.pop_back();
      live -= static_cast<std::int64_t>(b.bytes);
      above.deallocate(b.p, b.bytes, b.alignment);
    };
    for (int i = 0; i < 2'000; ++i) {
      if (blocks.empty() || d.below(100) < 55) {
        const std::size_t bytes = d.below(20) == 0 ? d.below(100'000) : d.below(500);
        const std::size_t alignment = std::size_t{1} << d.below(8);  // what libstdc++'s pools make of it is theirs
        blocks.push_back({above.allocate(bytes, alignment), bytes, alignment});
        live += static_cast<std::int64_t>(bytes);
      } else {
        std::swap(blocks[d.below(blocks.size())], blocks.back());
        free_last();
      }
      CHECK(handed_out.current().live_bytes == live);
      CHECK(holds_what_is_live(reserved, heap));
    }
    CHECK(reserved.current().live_bytes >= live);
    while (!blocks.empty()) free_last();
    CHECK(handed_out.current().live_bytes == 0);
    CHECK(holds_what_is_live(reserved, heap));
    pool.release();
    CHECK(reserved.current().live_bytes == 0);
  }
  CHECK(reserved.current().live_blocks == 0);
}

TEST_CASE("a synchronized pool between two resources serves 8 threads") {
  test_heap heap;
  heap_resource below(heap);
  const domain reserved("reserved by 8");
  const domain handed_out("handed out to 8");
  resource r(reserved, &below);
  {
    std::pmr::synchronized_pool_resource pool(&r);
    resource above(handed_out, &pool);
    conformance::in_threads([&](std::size_t self) {
      for (int i = 0; i < (conformance::is_slow ? 50 : 500); ++i) {
        std::pmr::list<std::size_t> l(&above);
        for (std::size_t k = 0; k < 20; ++k) l.push_back(self + k);
      }
    });
    CHECK(handed_out.current().live_bytes == 0);
    CHECK(holds_what_is_live(reserved, heap));
  }
  CHECK(reserved.current().live_bytes == 0);
}

TEST_CASE("a resource over a resource counts in both domains") {
  test_heap heap;
  heap_resource below(heap);
  const domain lower("lower");
  const domain upper("upper");
  resource r(lower, &below);
  resource over(upper, &r);
  void* p = over.allocate(100, 64);
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
  CHECK(lower.current().live_bytes == 100);
  CHECK(upper.current().live_bytes == 100);
  over.deallocate(p, 100, 64);
  CHECK(lower.current().live_bytes == 0);
  CHECK(upper.current().live_bytes == 0);
}

TEST_CASE("a resource honours the alignment of over-aligned types") {
  struct alignas(256) wide {
    char bytes[256];
  };
  const domain d("over-aligned");
  resource r(d);
  std::pmr::vector<wide> v(&r);
  std::pmr::list<wide> l(&r);
  for (int i = 0; i < 10; ++i) {
    v.emplace_back();
    l.emplace_back();
    CHECK(reinterpret_cast<std::uintptr_t>(v.data()) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(&l.back()) % 256 == 0);
  }
  CHECK(d.current().live_blocks == 11);
}

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE("a pmr container that meets the limit is as it was, and goes on within it") {
  test_heap heap;
  heap_resource below(heap);
  domain d("container at its limit");
  d.limit(1'000);
  resource r(d, &below);
  std::pmr::vector<std::int64_t> v(&r);
  int pushed = 0;
  try {
    for (;; ++pushed) v.push_back(pushed);
  } catch (const tidemark::over_budget&) {
  }
  CHECK(v.size() == static_cast<std::size_t>(pushed));
  CHECK(v.back() == pushed - 1);
  CHECK(holds_what_is_live(d, heap));
  CHECK(d.current().peak_bytes <= 1'000);
  v.clear();
  v.shrink_to_fit();
  v.reserve(125);
  CHECK(d.current().live_bytes == 1'000);
}

TEST_CASE("a resource over std::pmr::null_memory_resource counts nothing") {
  const domain d("null below");
  resource r(d, std::pmr::null_memory_resource());
  CHECK_THROWS_AS(static_cast<void>(r.allocate(1)), std::bad_alloc);
  CHECK(is_same_usage(d.current(), usage{}));
}

#endif
