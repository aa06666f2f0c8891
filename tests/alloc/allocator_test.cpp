// SPDX-License-Identifier: MIT
#include <tidemark/alloc/allocator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <forward_list>
#include <functional>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <queue>
#include <scoped_allocator>
#include <set>
#include <stack>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "conformance.hpp"
#include "test.hpp"

using tidemark::allocator;
using tidemark::domain;
using tidemark::usage;

namespace {

/// An upstream with a state: the heap that it allocates from. It cannot be made from nothing.
template <class T>
class heap_allocator {
 public:
  using value_type = T;

  explicit heap_allocator(test_heap& heap) : heap_(&heap) {}
  template <class U>
  heap_allocator(const heap_allocator<U>& other) noexcept : heap_(&other.heap()) {}

  [[nodiscard]] T* allocate(std::size_t n) { return static_cast<T*>(heap_->allocate(n * sizeof(T), alignof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { heap_->deallocate(p, n * sizeof(T), alignof(T)); }
  [[nodiscard]] test_heap& heap() const noexcept { return *heap_; }

  template <class U>
  [[nodiscard]] bool operator==(const heap_allocator<U>& other) const noexcept {
    return heap_ == &other.heap();
  }
  template <class U>
  [[nodiscard]] bool operator!=(const heap_allocator<U>& other) const noexcept {
    return !(*this == other);
  }

 private:
  test_heap* heap_;
};

/// A pointer that is not one.
template <class T>
class fancy {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using difference_type = std::ptrdiff_t;
  using pointer = fancy;
  using reference = T&;
  using iterator_category = std::random_access_iterator_tag;

  fancy() = default;
  fancy(std::nullptr_t) {}
  explicit fancy(T* p) : p_(p) {}
  template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  fancy(const fancy<U>& other) : p_(other.get()) {}
  [[nodiscard]] static fancy pointer_to(T& to) { return fancy(std::addressof(to)); }

  [[nodiscard]] T* get() const { return p_; }
  T& operator*() const { return *p_; }
  T* operator->() const { return p_; }
  T& operator[](difference_type i) const { return p_[i]; }
  explicit operator bool() const { return p_ != nullptr; }
  fancy& operator++() { return ++p_, *this; }
  fancy& operator--() { return --p_, *this; }
  fancy operator++(int) { return fancy(p_++); }
  fancy operator--(int) { return fancy(p_--); }
  fancy& operator+=(difference_type n) { return p_ += n, *this; }
  fancy& operator-=(difference_type n) { return p_ -= n, *this; }
  friend fancy operator+(fancy a, difference_type n) { return a += n; }
  friend fancy operator+(difference_type n, fancy a) { return a += n; }
  friend fancy operator-(fancy a, difference_type n) { return a -= n; }
  friend difference_type operator-(fancy a, fancy b) { return a.p_ - b.p_; }
  friend bool operator==(fancy a, fancy b) { return a.p_ == b.p_; }
  friend bool operator!=(fancy a, fancy b) { return a.p_ != b.p_; }
  friend bool operator<(fancy a, fancy b) { return a.p_ < b.p_; }
  friend bool operator>(fancy a, fancy b) { return a.p_ > b.p_; }
  friend bool operator<=(fancy a, fancy b) { return a.p_ <= b.p_; }
  friend bool operator>=(fancy a, fancy b) { return a.p_ >= b.p_; }

 private:
  T* p_ = nullptr;
};

/// Its pointers, sizes and name are its own: it holds at most 1,000 elements, and is found by a number.
template <class T>
class fancy_allocator {
 public:
  using value_type = T;
  using pointer = fancy<T>;
  using const_pointer = fancy<const T>;
  using void_pointer = fancy<unsigned char>;
  using const_void_pointer = fancy<const unsigned char>;
  using size_type = std::uint32_t;
  using difference_type = std::int32_t;

  fancy_allocator(int id, test_heap& heap) : id_(id), heap_(&heap) {}
  template <class U>
  fancy_allocator(const fancy_allocator<U>& other) noexcept : id_(other.id()), heap_(&other.heap()) {}

  [[nodiscard]] pointer allocate(size_type n) {
    return pointer(static_cast<T*>(heap_->allocate(n * sizeof(T), alignof(T))));
  }
  void deallocate(pointer p, size_type n) noexcept { heap_->deallocate(p.get(), n * sizeof(T), alignof(T)); }
  [[nodiscard]] size_type max_size() const noexcept { return 1'000; }
  [[nodiscard]] fancy_allocator select_on_container_copy_construction() const { return {id_ + 1, *heap_}; }
  [[nodiscard]] int id() const noexcept { return id_; }
  [[nodiscard]] test_heap& heap() const noexcept { return *heap_; }

  friend bool operator==(const fancy_allocator& a, const fancy_allocator& b) { return a.id_ == b.id_; }
  friend bool operator!=(const fancy_allocator& a, const fancy_allocator& b) { return a.id_ != b.id_; }

 private:
  int id_;
  test_heap* heap_;
};

template <class T>
using counted = allocator<T, heap_allocator<T>>;

template <class T>
counted<T> make(const domain& d, test_heap& heap) {
  return counted<T>(d, heap_allocator<T>(heap));
}

struct alignas(64) line {
  char bytes[64];
};

template <class T>
struct through_allocator {
  static constexpr std::size_t unit = sizeof(T);
  static constexpr std::size_t alignment = alignof(T);

  class blocks {
   public:
    blocks(const domain& d, test_heap& below) : allocator_(make<T>(d, below)) {}
    void* allocate(std::size_t units) { return allocator_.allocate(units); }
    void deallocate(void* p, std::size_t units) { allocator_.deallocate(static_cast<T*>(p), units); }

   private:
    counted<T> allocator_;
  };
};

/// Made for another type, as a container does it.
template <class T>
struct through_rebound {
  static constexpr std::size_t unit = sizeof(T);
  static constexpr std::size_t alignment = alignof(T);

  class blocks {
   public:
    blocks(const domain& d, test_heap& below) : allocator_(make<std::string>(d, below)) {}
    void* allocate(std::size_t units) { return allocator_.allocate(units); }
    void deallocate(void* p, std::size_t units) { allocator_.deallocate(static_cast<T*>(p), units); }

   private:
    typename std::allocator_traits<counted<std::string>>::template rebind_alloc<T> allocator_;
  };
};

using chars_through_allocator = through_allocator<char>;
using lines_through_allocator = through_allocator<line>;
using words_through_rebound = through_rebound<std::int64_t>;

}  // namespace

ADAPTOR_CONFORMS(chars_through_allocator);
ADAPTOR_CONFORMS(lines_through_allocator);
ADAPTOR_CONFORMS(words_through_rebound);

// ---- what an allocator is ----

static_assert(std::is_same_v<std::allocator_traits<counted<int>>::rebind_alloc<char>, counted<char>>);
static_assert(std::is_same_v<std::allocator_traits<allocator<int>>::rebind_alloc<char>, allocator<char>>);
static_assert(std::allocator_traits<allocator<int>>::propagate_on_container_copy_assignment::value);
static_assert(std::allocator_traits<allocator<int>>::propagate_on_container_move_assignment::value);
static_assert(std::allocator_traits<allocator<int>>::propagate_on_container_swap::value);
static_assert(!std::allocator_traits<allocator<int>>::is_always_equal::value);
static_assert(std::is_nothrow_copy_constructible_v<allocator<int>>);
static_assert(std::is_nothrow_constructible_v<allocator<char>, const allocator<int>&>);
static_assert(std::is_convertible_v<domain, allocator<int>>);
static_assert(std::is_same_v<allocator<int, fancy_allocator<int>>::pointer, fancy<int>>);
static_assert(std::is_same_v<allocator<int, fancy_allocator<int>>::size_type, std::uint32_t>);

TEST_CASE("allocators are equal where their domain and their upstream are") {
  test_heap one;
  test_heap other;
  const domain a("equal a");
  const domain b("equal b");
  CHECK(make<int>(a, one) == make<int>(a, one));
  CHECK(!(make<int>(a, one) != make<int>(a, one)));
  CHECK(make<int>(a, one) != make<int>(b, one));
  CHECK(make<int>(a, one) != make<int>(a, other));
  CHECK(make<int>(a, one) == make<char>(a, one));
  CHECK(make<int>(a, one) != make<char>(b, one));
  CHECK(make<int>(a, one) != make<char>(a, other));
  const domain copy = a;
  CHECK(allocator<int>(a) == allocator<int>(copy));
  CHECK(allocator<int>(a) != allocator<int>(b));
  CHECK(allocator<int>() == allocator<char>(tidemark::default_domain()));
  const allocator<int> converted = allocator<char>(a);
  CHECK(converted == allocator<int>(a));
  CHECK(&converted.node() == &a.node());
}

TEST_CASE("an allocator feeds the domain \"default\" where none is named") {
  const domain d = tidemark::default_domain();
  const std::int64_t before = d.current().live_bytes;
  {
    std::vector<float, allocator<float>> v(100);
    CHECK(d.current().live_bytes - before == 400);
    std::vector<float, allocator<float>> w;
    w.reserve(10);
    CHECK(d.current().live_bytes - before == 440);
  }
  CHECK(d.current().live_bytes == before);
}

TEST_CASE("a domain stands where a container wants an allocator") {
  const domain weights("weights");
  const std::vector<float, allocator<float>> v(100, 1.0F, weights);
  CHECK(weights.current().live_bytes == 400);
  CHECK(weights.current().live_blocks == 1);
  const std::vector<float, allocator<float>> empty(weights);
  CHECK(empty.get_allocator() == v.get_allocator());
  std::map<int, int, std::less<int>, allocator<std::pair<const int, int>>> m(weights);
  m.emplace(1, 2);
  CHECK(weights.current().live_blocks == 2);
}

TEST_CASE("what the upstream says of itself holds: its largest size, its copies, its pointers") {
  test_heap heap;
  const domain d("fancy");
  using fancy_counted = allocator<int, fancy_allocator<int>>;
  fancy_counted a(d, fancy_allocator<int>(7, heap));
  CHECK(a.max_size() == 1'000);
  CHECK(a.upstream().id() == 7);
  CHECK(a.select_on_container_copy_construction().upstream().id() == 8);
  CHECK(&a.select_on_container_copy_construction().node() == &d.node());
  CHECK(a != a.select_on_container_copy_construction());
  fancy<int> p = a.allocate(10);
  CHECK(d.current().live_bytes == 40);
  CHECK(holds_what_is_live(d, heap));
  a.deallocate(p, 10);
#if TIDEMARK_HAS_EXCEPTIONS()
  CHECK_THROWS_AS(static_cast<void>(a.allocate(1'001)), std::bad_array_new_length);
#endif
  {
    std::vector<int, fancy_counted> v(a);
    for (int i = 0; i < 300; ++i) v.push_back(i);
    CHECK(holds_what_is_live(d, heap));
    const std::vector<int, fancy_counted> copy(v);
    CHECK(copy.get_allocator().upstream().id() == 8);
    CHECK(copy == v);
    CHECK(holds_what_is_live(d, heap));
    v = copy;
    CHECK(v.get_allocator().upstream().id() == 8);
    CHECK(holds_what_is_live(d, heap));
  }
  CHECK(d.current().live_bytes == 0);
}

TEST_CASE("the largest size is what 63 bits can count") {
  CHECK(allocator<char>().max_size() <= static_cast<std::size_t>(INT64_MAX));
  CHECK(allocator<line>().max_size() <= static_cast<std::size_t>(INT64_MAX) / sizeof(line));
  CHECK(allocator<line>().max_size() > 0);
}

#if TIDEMARK_HAS_EXCEPTIONS()

TEST_CASE("more than an array can hold is bad_array_new_length, not over_budget, and is counted nowhere") {
  domain d("too long");
  allocator<line> a(d);
  constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
  for (const std::int64_t limit : {std::int64_t{-1}, std::int64_t{100}}) {
    d.limit(limit);
    for (const std::size_t n : {most, most / 64, most / 64 + 2, a.max_size() + 1}) {
      CAPTURE(n);
      CHECK_THROWS_AS(static_cast<void>(a.allocate(n)), std::bad_array_new_length);
    }
  }
  CHECK(is_same_usage(d.current(), usage{}));
}

TEST_CASE("a container that meets the limit is as it was, and goes on within it") {
  test_heap heap;
  domain d("container at its limit");
  d.limit(1'000);
  std::vector<std::int64_t, counted<std::int64_t>> v(make<std::int64_t>(d, heap));
  int pushed = 0;
  try {
    for (;; ++pushed) v.push_back(pushed);
  } catch (const std::bad_alloc&) {
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

#endif

// ---- containers ----

namespace {

template <class T>
using in_vector = std::vector<T, counted<T>>;
template <class T>
using in_deque = std::deque<T, counted<T>>;
using ints = counted<int>;
using pairs = counted<std::pair<const int, int>>;
using string = std::basic_string<char, std::char_traits<char>, counted<char>>;
using forward_list = std::forward_list<int, ints>;

template <class C>
typename C::allocator_type make_for(const domain& d, test_heap& heap) {
  return make<typename C::value_type>(d, heap);
}

template <class C>
void fill(C& c, int from, int count) {
  for (int i = from; i < from + count; ++i) {
    if constexpr (std::is_same_v<C, string>) {
      c.push_back(static_cast<char>('a' + i % 26));
    } else if constexpr (std::is_same_v<C, forward_list>) {
      c.push_front(i);
    } else if constexpr (std::is_same_v<typename C::value_type, std::pair<const int, int>>) {
      c.emplace(i, i);
    } else {
      c.insert(c.end(), i);
    }
  }
}

/// Two domains, each over a heap that counts by itself.
struct two_domains {
  test_heap left_heap;
  test_heap right_heap;
  const domain left{"left"};
  const domain right{"right"};

  [[nodiscard]] bool hold_what_is_live() const {
    return holds_what_is_live(left, left_heap) && holds_what_is_live(right, right_heap);
  }
  [[nodiscard]] bool are_empty() const {
    return hold_what_is_live() && left.current().live_bytes == 0 && left.current().live_blocks == 0 &&
           right.current().live_bytes == 0 && right.current().live_blocks == 0;
  }
};

template <class C>
bool feeds(const C& c, const domain& d) {
  return &c.get_allocator().node() == &d.node();
}

}  // namespace

using int_list = std::list<int, ints>;
using int_set = std::set<int, std::less<int>, ints>;
using int_multiset = std::multiset<int, std::less<int>, ints>;
using int_map = std::map<int, int, std::less<int>, pairs>;
using int_multimap = std::multimap<int, int, std::less<int>, pairs>;
using int_unordered_set = std::unordered_set<int, std::hash<int>, std::equal_to<int>, ints>;
using int_unordered_multiset = std::unordered_multiset<int, std::hash<int>, std::equal_to<int>, ints>;
using int_unordered_map = std::unordered_map<int, int, std::hash<int>, std::equal_to<int>, pairs>;
using int_unordered_multimap = std::unordered_multimap<int, int, std::hash<int>, std::equal_to<int>, pairs>;

TEST_CASE_TEMPLATE("every container takes its bytes along to the right domain, and leaves nothing", C, in_vector<int>,
                   in_deque<int>, int_list, forward_list, int_set, int_multiset, int_map, int_multimap,
                   int_unordered_set, int_unordered_multiset, int_unordered_map, int_unordered_multimap, string,
                   in_vector<bool>) {
  two_domains two;
  const auto on_left = make_for<C>(two.left, two.left_heap);
  const auto on_right = make_for<C>(two.right, two.right_heap);
  {
    C a(on_left);
    fill(a, 0, 500);
    CHECK(two.left.current().live_bytes > 0);
    CHECK(two.right.current().allocations == 0);
    CHECK(two.hold_what_is_live());
    const C expected_a(a);  // a copy feeds the same domain
    CHECK(feeds(expected_a, two.left));
    CHECK(two.right.current().allocations == 0);
    CHECK(two.hold_what_is_live());

    C b(a, on_right);  // unless another is named
    CHECK(b == expected_a);
    CHECK(feeds(b, two.right));
    CHECK(two.right.current().live_bytes > 0);
    CHECK(two.hold_what_is_live());
    fill(b, 1'000, 300);
    const C expected_b(b);

    C c(on_left);
    fill(c, 0, 10);
    c = b;  // the domain comes with what is assigned
    CHECK(c == expected_b);
    CHECK(feeds(c, two.right));
    CHECK(two.hold_what_is_live());

    swap(a, b);
    CHECK(a == expected_b);
    CHECK(b == expected_a);
    CHECK(feeds(a, two.right));
    CHECK(feeds(b, two.left));
    CHECK(two.hold_what_is_live());

    C moved(std::move(a));
    CHECK(moved == expected_b);
    CHECK(feeds(moved, two.right));
    CHECK(two.hold_what_is_live());

    b = std::move(moved);
    CHECK(b == expected_b);
    CHECK(feeds(b, two.right));
    CHECK(two.hold_what_is_live());

    C over_there(std::move(b), on_left);  // elsewhere it must be copied
    CHECK(over_there == expected_b);
    CHECK(feeds(over_there, two.left));
    CHECK(two.hold_what_is_live());

    C& same_one = over_there;
    over_there = same_one;
    CHECK(over_there == expected_b);
    over_there.clear();
    over_there = C(on_left);
    CHECK(two.hold_what_is_live());
  }
  CHECK(two.are_empty());
}

TEST_CASE("the domains count what moves: bytes of one container are at no time in two domains") {
  const domain a("a");
  const domain b("b");
  using vector = std::vector<double, allocator<double>>;
  vector on_a(10, 0.0, a);
  vector on_b(1'000, 0.0, b);
  CHECK(a.current().live_bytes == 80);
  CHECK(b.current().live_bytes == 8'000);
  swap(on_a, on_b);
  CHECK(a.current().live_bytes == 80);
  CHECK(b.current().live_bytes == 8'000);
  on_a = std::move(on_b);  // what was on b goes, what was on a stays there
  CHECK(a.current().live_bytes == 80);
  CHECK(b.current().live_bytes == 0);
  CHECK(a.current().allocations == 1);
  CHECK(b.current().deallocations == 1);
  on_a = vector(b);
  CHECK(a.current().live_bytes == 0);
  vector on_default = vector(5);
  on_default = vector(7, 0.0, b);
  CHECK(b.current().live_bytes == 56);
  CHECK(on_default.get_allocator() == allocator<double>(b));
}

TEST_CASE("stack, queue and priority_queue feed the domain of what they are made on") {
  two_domains two;
  {
    std::stack<int, in_deque<int>> s(make<int>(two.left, two.left_heap));
    std::stack<int, in_vector<int>> over_vector(make<int>(two.left, two.left_heap));
    std::queue<int, int_list> q(make<int>(two.right, two.right_heap));
    std::priority_queue<int, in_vector<int>> p(make<int>(two.right, two.right_heap));
    for (int i = 0; i < 1'000; ++i) {
      s.push(i);
      over_vector.push(i);
      q.push(i);
      p.push(i);
      if (i % 3 == 0) {
        s.pop();
        q.pop();
        p.pop();
      }
      CHECK(two.hold_what_is_live());
    }
    CHECK(p.top() == 998);
    std::stack<int, in_deque<int>> other(make<int>(two.right, two.right_heap));
    other.push(1);
    swap(other, s);
    CHECK(s.size() == 1);
    CHECK(two.hold_what_is_live());
    q = std::queue<int, int_list>(make<int>(two.left, two.left_heap));
    CHECK(two.hold_what_is_live());
  }
  CHECK(two.are_empty());
}

TEST_CASE("lists and maps hand over nodes within a domain") {
  two_domains two;
  {
    int_list from(make<int>(two.left, two.left_heap));
    int_list to(make<int>(two.left, two.left_heap));
    fill(from, 0, 100);
    to.splice(to.end(), from);
    CHECK(to.size() == 100);
    int_map source(make_for<int_map>(two.right, two.right_heap));
    int_map target(make_for<int_map>(two.right, two.right_heap));
    fill(source, 0, 100);
    target.merge(source);
    auto node = target.extract(50);
    CHECK(two.hold_what_is_live());
    CHECK(two.right.current().live_blocks == 100);
    target.insert(std::move(node));
    CHECK(two.hold_what_is_live());
  }
  CHECK(two.are_empty());
}

TEST_CASE("a shared object and its counts are in the domain until the last weak handle goes") {
  two_domains two;
  const auto a = make<std::int64_t>(two.left, two.left_heap);
  std::shared_ptr<std::int64_t> p = std::allocate_shared<std::int64_t>(a, 42);
  CHECK(*p == 42);
  CHECK(two.left.current().live_blocks == 1);
  CHECK(two.left.current().live_bytes >= 8);
  CHECK(two.hold_what_is_live());
  const std::shared_ptr<std::int64_t> again = p;
  std::weak_ptr<std::int64_t> weak = p;
  p.reset();
  CHECK(two.left.current().live_blocks == 1);
  std::shared_ptr<std::int64_t> taken = again;
  const_cast<std::shared_ptr<std::int64_t>&>(again).reset();
  taken.reset();
  CHECK(weak.expired());
  CHECK(two.left.current().live_blocks == 1);  // object and counts are one block
  weak.reset();
  CHECK(two.are_empty());
  {
    const std::shared_ptr<int> with_deleter(
        new int(7), [](const int* raw) { delete raw; }, make<int>(two.right, two.right_heap));
    CHECK(two.right.current().live_blocks == 1);  // the counts; the object is another's
  }
  CHECK(two.are_empty());
}

TEST_CASE("containers inside containers feed the domain that a scoped allocator hands in") {
  two_domains two;
  using inner = std::vector<int, allocator<int>>;
  using outer = std::vector<inner, std::scoped_allocator_adaptor<allocator<inner>>>;
  {
    outer v{allocator<inner>(two.left)};
    for (int i = 0; i < 10; ++i) v.emplace_back(100);
    CHECK(v.back().get_allocator() == allocator<int>(two.left));
    CHECK(two.left.current().live_blocks == 11);
    CHECK(two.left.current().live_bytes >= 10 * 400 + static_cast<std::int64_t>(10 * sizeof(inner)));
  }
  CHECK(two.are_empty());
}

TEST_CASE("an allocator honours the alignment of over-aligned types") {
  const domain d("over-aligned");
  std::vector<line, allocator<line>> v(d);
  std::list<line, allocator<line>> l(d);
  std::map<int, line, std::less<int>, allocator<std::pair<const int, line>>> m(d);
  for (int i = 0; i < 20; ++i) {
    v.emplace_back();
    l.emplace_back();
    m[i] = line{};
    CHECK(reinterpret_cast<std::uintptr_t>(v.data()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(&l.back()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(&m[i]) % 64 == 0);
  }
  CHECK(d.current().live_blocks == 41);
}

TEST_CASE("an allocator over an allocator counts in both domains") {
  two_domains two;
  using twice = allocator<int, counted<int>>;
  {
    std::vector<int, twice> v(twice(two.right, make<int>(two.left, two.left_heap)));
    v.resize(100);
    CHECK(two.left.current().live_bytes == 400);
    CHECK(two.right.current().live_bytes == 400);
    std::list<int, std::allocator_traits<twice>::rebind_alloc<int>> l(v.get_allocator());
    l.push_back(1);
    CHECK(two.left.current().live_blocks == 2);
    CHECK(two.right.current().live_blocks == 2);
  }
  CHECK(two.left.current().live_bytes == 0);
  CHECK(two.right.current().live_bytes == 0);
}

TEST_CASE("a container outlives its domain's handle, and is still found") {
  std::vector<int, allocator<int>> v{[] { return allocator<int>(domain("gone")); }()};
  v.resize(1'000);
  const auto find = [] {
    std::int64_t live = -1;
    for (const domain& d : tidemark::domains()) {
      if (d.name() == "gone") live = d.current().live_bytes;
    }
    return live;
  };
  CHECK(find() == 4'000);
  const auto a = v.get_allocator();
  v = std::vector<int, allocator<int>>(a);  // without exceptions shrink_to_fit does nothing
  CHECK(find() == -1);
  v.resize(10);
  CHECK(find() == 40);
}

namespace {

/// Leaves numbers as the memory has them, and is neither assigned nor made from nothing.
template <class T>
class raw_allocator {
 public:
  using value_type = T;

  explicit raw_allocator(int) noexcept {}
  template <class U>
  raw_allocator(const raw_allocator<U>&) noexcept {}
  raw_allocator(const raw_allocator&) noexcept = default;
  raw_allocator& operator=(const raw_allocator&) = delete;

  T* allocate(std::size_t n) { return std::allocator<T>().allocate(n); }
  void deallocate(T* p, std::size_t n) noexcept { std::allocator<T>().deallocate(p, n); }
  template <class U>
  void construct(U* p) noexcept {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U>
  [[nodiscard]] friend bool operator==(const raw_allocator&, const raw_allocator<U>&) noexcept {
    return true;
  }
  template <class U>
  [[nodiscard]] friend bool operator!=(const raw_allocator&, const raw_allocator<U>&) noexcept {
    return false;
  }
};
using raw_ints = allocator<int, raw_allocator<int>>;

static_assert(std::is_default_constructible_v<allocator<int>>);
static_assert(!std::is_default_constructible_v<raw_ints>);
static_assert(allocator<int>::propagate_on_container_move_assignment::value);

}  // namespace

TEST_CASE("elements are made as the upstream makes them") {
  const domain d("raw");
  std::vector<int, raw_ints> v(raw_ints(d, raw_allocator<int>(1)));
  v.reserve(100);
  int* const p = v.data();
  for (int i = 0; i < 100; ++i) v.push_back(i + 1);
  v.clear();
  v.resize(100);  // values, as std::allocator makes them, would be 0
  tidemark::escape(p);
  CHECK(v[0] == 1);
  CHECK(v[99] == 100);
}

TEST_CASE("an upstream that cannot be assigned stays where it is when containers are copied, moved and swapped") {
  const domain a("stays a");
  const domain b("stays b");
  using list = std::vector<int, raw_ints>;
  list one(10, 7, raw_ints(a, raw_allocator<int>(1)));
  list other(raw_ints(b, raw_allocator<int>(1)));
  other = one;
  CHECK(b.current().live_bytes == 40);
  other = std::move(one);  // the domains differ: element by element
  CHECK(other == list(10, 7, raw_ints(a, raw_allocator<int>(1))));
  CHECK(b.current().live_bytes == 40);
  list third(3, 1, raw_ints(b, raw_allocator<int>(1)));
  std::swap(other, third);
  CHECK(other.size() == 3);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("what a number cannot hold is refused without a limit too") {
  domain d("vast");
  d.allocated(INT64_MAX);
  using chars = std::vector<char, allocator<char>>;
  CHECK_THROWS_AS(chars(10, 'x', d), tidemark::over_budget);
  CHECK(d.current().live_bytes == INT64_MAX);
  d.freed(INT64_MAX);
  const chars fits(10, 'x', d);
  CHECK(d.current().live_bytes == 10);
}
#endif
