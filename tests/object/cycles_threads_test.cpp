// SPDX-License-Identifier: MIT
// Searches while other threads make, share and destroy tracked objects whose edges nobody changes, search themselves, or fork.
#include <tidemark/object/cycles.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>

#include "test.hpp"

using tidemark::escape;
using tidemark::find_cycles;
using tidemark::make_tracked;

namespace {

struct node {
  explicit node(std::shared_ptr<node> n = nullptr) : next(std::move(n)) {}
  std::shared_ptr<node> next;
  TIDEMARK_EDGES(node, next);
};

std::shared_ptr<node> make_pair_that_holds_itself() {
  auto a = make_tracked<node>();
  a->next = make_tracked<node>();
  a->next->next = a;
  return a;
}

/// Runs `f` again and again on its own threads, until it is destroyed.
class background {
 public:
  template <class F>
  background(int threads, F f) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, f] {
        while (!is_over_) {
          f();
          ++rounds_;
        }
      });
    }
  }
  ~background() {
    is_over_ = true;
    for (std::thread& t : threads_) t.join();
  }
  [[nodiscard]] int rounds() const { return rounds_; }

 private:
  std::atomic<bool> is_over_{false};
  std::atomic<int> rounds_{0};
  std::vector<std::thread> threads_;
};

constexpr int searches = 300;

}  // namespace

TEST_CASE("objects that other threads make and destroy meanwhile are never told, and one that is leaked always is") {
  std::weak_ptr<node> leaked = make_pair_that_holds_itself();
  {
    const background others(2, [] {
      // With its edge from the start: one set later would be a change under the search's eyes.
      const auto chain = make_tracked<node>(make_tracked<node>());
      escape(chain.get());
    });
    int found = 0;
    for (int i = 0; i < searches || others.rounds() < searches; ++i) {
      const auto cycles = find_cycles();
      if (!cycles.has_value()) {
        REQUIRE(cycles.why().find("unstable: ") == 0);
        continue;
      }
      REQUIRE(cycles->size() == 1);
      REQUIRE(cycles->front().objects.size() == 2);
      ++found;
    }
    CHECK(found > 0);
  }
  leaked.lock()->next.reset();
}

TEST_CASE("a cycle that other threads hold, and hand on, is never told") {
  const std::shared_ptr<node> held = make_pair_that_holds_itself();
  const std::weak_ptr<node> weak = held;
  {
    const background others(2, [&weak] {
      std::shared_ptr<node> mine = weak.lock();
      const std::shared_ptr<node> copy = mine->next;
      mine.reset();
    });
    for (int i = 0; i < searches || others.rounds() < searches; ++i) {
      const auto cycles = find_cycles();
      if (cycles.has_value()) {
        REQUIRE(cycles->empty());
      } else {
        REQUIRE(cycles.why().find("unstable: ") == 0);
      }
    }
  }
  held->next.reset();
}

TEST_CASE("of two searches at once one says that another is running, and neither is wrong") {
  std::weak_ptr<node> leaked = make_pair_that_holds_itself();
  const auto search = [] {
    const auto cycles = find_cycles();
    return cycles.has_value() ? cycles->size() == 1 && cycles->front().objects.size() == 2
                              : cycles.why() == std::string_view("another search over the tracked objects is running");
  };
  std::atomic<int> wrong{0};
  {
    const background others(1, [&] { wrong += search() ? 0 : 1; });
    for (int i = 0; i < searches || others.rounds() < searches; ++i) wrong += search() ? 0 : 1;
  }
  CHECK(wrong == 0);
  leaked.lock()->next.reset();
}

#if !TIDEMARK_HAS_TSAN()  // which knows no fork of a process with threads
TEST_CASE("a child forked while another thread searches can search") {
  const std::shared_ptr<node> held = make_pair_that_holds_itself();
  {
    const background others(1, [] { static_cast<void>(find_cycles()); });
    for (int i = 0; i < 20; ++i) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) ::_exit(find_cycles().has_value() ? 0 : 1);
      int status = -1;
      REQUIRE(::waitpid(child, &status, 0) == child);
      CHECK(status == 0);
    }
  }
  held->next.reset();
}
#endif
