// SPDX-License-Identifier: MIT
// Searches over many objects, a million in one ring, on a stack of 256 KiB: nothing recurses, however long the ways are. Were
// there a call for each step, 50,000 would be too many by far.
#include <tidemark/object/cycles.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pthread.h>

#include <tidemark/config/platform.hpp>

#include "dice.hpp"
#include "test.hpp"

using tidemark::find_cycles;
using tidemark::make_tracked;
using tidemark::who_holds;

namespace {

// A sanitizer makes each object several times as large.
constexpr std::size_t most = TIDEMARK_HAS_SANITIZER_ALLOCATOR() ? 100'000 : 1'000'000;
constexpr std::size_t many = 50'000;

struct element {
  std::shared_ptr<element> next;
  std::shared_ptr<element> back;
  TIDEMARK_EDGES(element, next, back);
};

using elements = std::vector<std::shared_ptr<element>>;

elements make(std::size_t count) {
  elements all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(make_tracked<element>());
  return all;
}

/// Lets go of objects one by one: a chain of them would recurse in its destructors.
class weak_elements {
 public:
  explicit weak_elements(const elements& all) : all_(all.begin(), all.end()) {}
  ~weak_elements() {
    elements locked;
    for (const std::weak_ptr<element>& w : all_) locked.push_back(w.lock());
    for (const std::shared_ptr<element>& l : locked) {
      if (l != nullptr) *l = element();
    }
  }

 private:
  std::vector<std::weak_ptr<element>> all_;
};

/// Runs `f` on a thread with a stack of 256 KiB.
template <class F>
void on_small_stack(F f) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread{};
  const int failed = pthread_create(
      &thread, &attributes,
      [](void* p) -> void* {
        (*static_cast<F*>(p))();
        return nullptr;
      },
      &f);
  REQUIRE(failed == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("a ring of a million objects is found, all of it") {
  on_small_stack([] {
    elements all = make(most);
    for (std::size_t i = 0; i < most; ++i) all[i]->next = all[(i + 1) % most];
    const weak_elements kept(all);
    CHECK(find_cycles()->empty());
    all = elements();
    const auto found = find_cycles();
    REQUIRE(found.has_value());
    REQUIRE(found->size() == 1);
    CHECK(found->front().object_count == most);
    CHECK(found->front().walk_length == most);
    CHECK(found->front().objects.size() == 1'000);
    CHECK(found->front().walk.size() == 1'000);
    CHECK(found->front().bytes == static_cast<std::int64_t>(most) * found->front().objects[0].bytes);
    REQUIRE(found->front().weaken.size() == 1);
    CHECK(found->front().weaken[0].member == "next");
  });
}

TEST_CASE("a long doubly linked list is one cycle, and its back edges are to be weak") {
  on_small_stack([] {
    elements all = make(many);
    for (std::size_t i = 0; i + 1 < many; ++i) {
      all[i]->next = all[i + 1];
      all[i + 1]->back = all[i];
    }
    const weak_elements kept(all);
    all = elements();
    const auto found = find_cycles();
    REQUIRE(found->size() == 1);
    CHECK(found->front().object_count == many);
    CHECK(found->front().walk_length == 2);
    REQUIRE(found->front().weaken.size() == 1);
    CHECK(found->front().weaken[0].member == "back");
  });
}

TEST_CASE("a long chain behind a cycle is retained by it") {
  on_small_stack([] {
    elements all = make(many);
    for (std::size_t i = 0; i + 1 < many; ++i) all[i]->next = all[i + 1];
    all[0]->back = all[0];
    const weak_elements kept(all);
    all = elements();
    const auto found = find_cycles();
    REQUIRE(found->size() == 1);
    CHECK(found->front().object_count == 1);
    CHECK(found->front().retained_bytes == static_cast<std::int64_t>(many) * found->front().bytes);
  });
}

TEST_CASE("many cycles, each of which holds the next, are told one by one") {
  on_small_stack([] {
    elements all = make(many);
    for (std::size_t i = 0; i < many; i += 2) {
      all[i]->next = all[i + 1];
      all[i + 1]->next = all[i];
      if (i + 2 < many) all[i]->back = all[i + 2];
    }
    const weak_elements kept(all);
    all = elements();
    tidemark::cycle_options few;
    few.max_cycles = 100;
    CHECK(find_cycles(few)->size() == 100);
    CHECK(find_cycles()->size() == many / 2);
  });
}

TEST_CASE("the chain to the last of many objects has a step for each") {
  on_small_stack([] {
    elements all = make(many);
    for (std::size_t i = 0; i + 1 < many; ++i) all[i]->next = all[i + 1];
    const std::shared_ptr<element> first = all.front();
    const weak_elements kept(all);
    const element* const last = all.back().get();
    all = elements();
    const auto found = who_holds(last);
    REQUIRE(found->chains.size() == 1);
    CHECK(found->chains[0].length == many - 1);
    CHECK(found->chains[0].text.size() < 10'000);
    CHECK(find_cycles()->empty());
  });
}

namespace {

struct part {
  std::unique_ptr<part> next;
  std::shared_ptr<struct whole> owner;
  TIDEMARK_EDGES(part, next, owner);
};
struct whole {
  std::unique_ptr<part> head;
  TIDEMARK_EDGES(whole, head);
};

}  // namespace

TEST_CASE("an edge at the end of a unique_ptr chain of a million parts closes a cycle") {
  on_small_stack([] {
    std::weak_ptr<whole> weak;
    {
      const auto w = make_tracked<whole>();
      weak = w;
      std::unique_ptr<part>* end = &w->head;
      for (std::size_t i = 0; i < most; ++i) {
        *end = std::make_unique<part>();
        if (i + 1 == most) (*end)->owner = w;
        end = &(*end)->next;
      }
    }
    const auto found = find_cycles();
    REQUIRE(found->size() == 1);
    REQUIRE(found->front().weaken.size() == 1);
    CHECK(found->front().weaken[0].member == "owner");
    const auto w = weak.lock();
    while (w->head != nullptr) w->head = std::move(w->head->next);
  });
}

TEST_CASE("a large random graph is searched on a small stack") {
  on_small_stack([] {
    elements all = make(many);
    dice d(3);
    for (std::size_t i = 0; i < many; ++i) {
      all[i]->next = all[d.below(many)];
      if (d.below(2) == 0) all[i]->back = all[d.below(many)];
    }
    const std::shared_ptr<element> held = all[0];
    const weak_elements kept(all);
    all = elements();
    const auto found = find_cycles();
    REQUIRE(found.has_value());
    for (const tidemark::cycle& c : *found) {
      for (const tidemark::object_info& o : c.objects) CHECK(o.address != held.get());
    }
  });
}
