// SPDX-License-Identifier: MIT
#include <tidemark/core/path.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dice.hpp"
#include "test.hpp"

#if TIDEMARK_HAS_POSIX()
  #include <sys/wait.h>
  #include <unistd.h>
#endif

using tidemark::detail::name_limit;
using tidemark::detail::path_node;
using tidemark::detail::path_text;
using tidemark::detail::path_tree;
using tidemark::detail::short_name;
using namespace std::string_view_literals;

namespace {

/// What `path_text` wrote, taken apart again.
std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') {
      names.emplace_back();
    } else if (text[i] == '%') {
      const std::string_view code = text.substr(i + 1, 2);
      names.back() += code == "2F"sv ? '/' : code == "25"sv ? '%' : '?';
      i += 2;
    } else {
      names.back() += text[i];
    }
  }
  return names;
}

std::vector<std::string> names_above(const path_node* node) {
  std::vector<std::string> names;
  for (; node != nullptr; node = node->parent) names.emplace_back(node->name);
  std::reverse(names.begin(), names.end());
  return names;
}

/// Whole UTF-8 characters and nothing else. Source: RFC 3629, section 4.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xC2 ? 0
                               : first < 0xE0 ? 2
                               : first < 0xF0 ? 3
                               : first < 0xF5 ? 4
                                              : 0;
    if (length == 0) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
    }
    if ((first == 0xE0 && byte(i + 1) < 0xA0) || (first == 0xED && byte(i + 1) > 0x9F) ||
        (first == 0xF0 && byte(i + 1) < 0x90) || (first == 0xF4 && byte(i + 1) > 0x8F)) {
      return false;
    }
    i += length;
  }
  return true;
}

constexpr std::string_view ellipsis = "\xE2\x80\xA6";
constexpr std::string_view characters[] = {"x", "\xC3\xA9", "\xE6\xBC\xA2", "\xF0\x9F\x8C\x8A"};  // of 1 to 4 bytes

std::string repeat(std::string_view what, std::size_t bytes) {
  std::string text;
  while (text.size() + what.size() <= bytes) text += what;
  return text;
}

// A tree of 64k paths takes megabytes that are never given back, so the cases that can share one do.
path_tree& shared_tree() {
  static path_tree tree;
  return tree;
}

std::vector<const path_node*> children_of(const path_node& parent) {
  std::vector<const path_node*> all;
  for (const path_node* c = parent.first_child; c != nullptr; c = c->next_sibling) all.push_back(c);
  return all;
}

}  // namespace

#if TIDEMARK_HAS_POSIX()
// The first case here: the tree is made before the table of names, as in a program whose first word is a
// scope.
TEST_CASE("a fork while another thread makes paths ends in both processes, and the child can make more") {
  path_tree& tree = *tidemark::detail::registry<path_tree>();
  std::atomic<bool> done{false};
  std::thread maker([&] {
    for (int i = 0; i < 20'000 && !done; ++i) static_cast<void>(tree.child(nullptr, "forked " + std::to_string(i)));
  });
  int right = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const path_node* node = tree.child(nullptr, "in the child");
      _exit(node->name == "in the child" ? 7 : 8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    right += WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 1 : 0;
  }
  done = true;
  maker.join();
  CHECK(right == 50);
}
#endif

TEST_CASE("a name up to 255 bytes is kept whole; a longer one ends in an ellipsis, on a whole character") {
  for (const std::string_view wide : characters) {
    // Every phase of the cut within a character.
    for (std::size_t lead = 0; lead < 4; ++lead) {
      for (const std::size_t bytes :
           {250U, 251U, 252U, 253U, 254U, 255U, 256U, 257U, 258U, 259U, 260U, 400U, 10'000U}) {
        std::string name = std::string(lead, 'a') + repeat(wide, bytes - lead);
        name += std::string(bytes - name.size(), 'b');
        CAPTURE(name);
        const short_name made(name);
        const std::string_view kept = made.view();
        CHECK(kept.size() <= 255);
        CHECK(is_utf8(kept));
        if (bytes <= 255) {
          CHECK(kept == name);
          continue;
        }
        REQUIRE(kept.size() > ellipsis.size());
        CHECK(kept.substr(kept.size() - ellipsis.size()) == ellipsis);
        const std::string_view front = kept.substr(0, kept.size() - ellipsis.size());
        CHECK(front == name.substr(0, front.size()));
        // As much is kept as fits: not even one more character would.
        CHECK(front.size() + wide.size() + ellipsis.size() > 255);
      }
    }
  }
}

TEST_CASE("a long name that is no UTF-8 is cut too") {
  dice d(1);
  for (int i = 0; i < 2'000; ++i) {
    std::string name(256 + static_cast<std::size_t>(d.below(300)), '\0');
    const std::uint64_t kind = d.below(3);
    for (char& c : name) {
      c = static_cast<char>(kind == 0 ? d.below(256) : kind == 1 ? 0x80 + d.below(64) : 0xF0 + d.below(16));
    }
    const short_name made(name);
    const std::string_view kept = made.view();
    CHECK(kept.size() <= 255);
    CHECK(kept.size() >= 252);
    CHECK(name.substr(0, kept.size() - ellipsis.size()) == kept.substr(0, kept.size() - ellipsis.size()));
  }
  const std::string whole(name_limit, '\x80');
  CHECK(short_name(whole).view() == whole);
}

TEST_CASE("hostile names are kept as they are, and path_text escapes them so that they can be read back") {
  path_tree& tree = shared_tree();
  const std::string long_utf8 = repeat(characters[3], 10'000);
  const std::string_view names[] = {"",
                                    "/",
                                    "%",
                                    "%2F",
                                    "%25",
                                    "%%2F/",
                                    "//",
                                    "a/b",
                                    "\0"sv,
                                    "a\0b"sv,
                                    "a\0c"sv,
                                    "\"quo\"te's\\",
                                    " ",
                                    "\n\t",
                                    "\xFF\xFE",
                                    "\xC3",
                                    "\x80\x80",
                                    "(other)",
                                    "..",
                                    long_utf8,
                                    "plain",
                                    "12345678"sv,
                                    "1234567",
                                    "123456781"sv,
                                    "1234",
                                    "123",
                                    "12",
                                    "1",
                                    "1234567812345678"};
  std::set<const path_node*> nodes;
  std::set<std::string> texts;
  for (const std::string_view outer : names) {
    const path_node* top = tree.child(nullptr, outer);
    CHECK(tree.child(nullptr, outer) == top);
    CHECK(top->name == short_name(outer).view());
    nodes.insert(top);
    texts.insert(path_text(top));
    CHECK(names_in(path_text(top)) == names_above(top));
    for (const std::string_view inner : names) {
      const path_node* below = tree.child(top, inner);
      CHECK(tree.child(top, std::string(inner)) == below);  // the same text, elsewhere in memory
      CHECK(below->parent == top);
      CHECK(below->name == short_name(inner).view());
      nodes.insert(below);
      const std::string text = path_text(below);
      texts.insert(text);
      CHECK(names_in(text) == names_above(below));
    }
  }
  const std::size_t all = std::size(names) * (std::size(names) + 1);
  CHECK(nodes.size() == all);  // none is mistaken for another
  CHECK(texts.size() == all);
  CHECK(path_text(nullptr).empty());
  CHECK(path_text(tree.child(tree.child(nullptr, "train step"), "a/b%")) == "train step/a%2Fb%25");
  CHECK(tree.overflows() == 0);
}

TEST_CASE("paths with the same names read from the tail differ where their order does") {
  path_tree& tree = shared_tree();
  const path_node* ab = tree.child(tree.child(nullptr, "a"), "b");
  const path_node* ba = tree.child(tree.child(nullptr, "b"), "a");
  const path_node* aab = tree.child(tree.child(tree.child(nullptr, "a"), "a"), "b");
  CHECK(ab != ba);
  CHECK(ab != aab);
  CHECK(path_text(ab) == "a/b");
  CHECK(path_text(ba) == "b/a");
  CHECK(path_text(aab) == "a/a/b");
}

TEST_CASE("eight threads that make the same 1,000 paths get one node each") {
  path_tree& tree = shared_tree();
  constexpr std::size_t threads = 8;
  constexpr std::size_t count = 1'000;
  const path_node* parent = tree.child(nullptr, "racing");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back("racer " + std::to_string(i));
  std::vector<std::vector<const path_node*>> found(threads, std::vector<const path_node*>(count));
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      dice d(t);
      std::vector<std::size_t> order(count);
      std::iota(order.begin(), order.end(), std::size_t{0});
      // Mostly the same order, so that the same name is wanted at the same time.
      for (int swaps = 0; swaps < 100; ++swaps) {
        std::swap(order[static_cast<std::size_t>(d.below(count))], order[static_cast<std::size_t>(d.below(count))]);
      }
      ++ready;
      while (ready != threads) std::this_thread::yield();
      for (const std::size_t i : order) found[t][i] = tree.child(parent, names[i]);
    });
  }
  for (std::thread& w : workers) w.join();
  std::set<const path_node*> nodes;
  std::set<std::uint32_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(found[0][i]->name == names[i]);
    nodes.insert(found[0][i]);
    ids.insert(found[0][i]->id);
    for (std::size_t t = 1; t < threads; ++t) CHECK(found[t][i] == found[0][i]);
  }
  CHECK(nodes.size() == count);
  CHECK(ids.size() == count);
  const std::vector<const path_node*> children = children_of(*parent);
  CHECK(std::set<const path_node*>(children.begin(), children.end()) == nodes);
  CHECK(children.size() == count);
}

TEST_CASE("a path may be 20,000 scopes deep") {
  path_tree& tree = shared_tree();
  constexpr std::size_t depth = 20'000;
  const path_node* node = nullptr;
  for (std::size_t i = 0; i < depth; ++i) node = tree.child(node, i % 2 == 0 ? "down/" : "%");
  const std::string text = path_text(node);
  CHECK(text.size() == depth / 2 * (7 + 3) + depth - 1);
  CHECK(names_in(text) == names_above(node));
  const path_node* again = nullptr;
  for (std::size_t i = 0; i < depth; ++i) again = tree.child(again, i % 2 == 0 ? "down/" : "%");
  CHECK(again == node);
  CHECK(tree.overflows() == 0);
}

TEST_CASE("what a path owns is the sum over it and all below it, over every thread, and outlives the thread") {
  path_tree& tree = shared_tree();
  dice d(3);
  const path_node* top = tree.child(nullptr, "owner");
  std::vector<const path_node*> nodes{top};
  for (int i = 0; i < 300; ++i) {  // more than a thread's first table holds
    nodes.push_back(tree.child(nodes[static_cast<std::size_t>(d.below(nodes.size()))], std::to_string(i)));
  }
  std::vector<std::int64_t> own(nodes.size(), 0);
  for (std::uint64_t t = 0; t < 4; ++t) {
    std::thread([&, t] {
      dice mine(100 + t);
      tidemark::detail::slot& s = *tidemark::detail::current_slot();
      for (int i = 0; i < 500; ++i) {
        const auto at = static_cast<std::size_t>(mine.below(nodes.size()));
        const std::int64_t bytes = static_cast<std::int64_t>(mine.below(1'000)) - 300;
        s.set_owner(nodes[at]->id, tidemark::detail::ledger().memory, tidemark::detail::ledger().table_lock);
        s.owner_cell->add(bytes);
        own[at] += bytes;
      }
    }).join();
  }
  for (const path_node* of : nodes) {
    std::int64_t want = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const path_node* up = nodes[i];
      while (up != nullptr && up != of) up = up->parent;
      if (up == of) want += own[i];
    }
    CHECK(tidemark::detail::owned_bytes(*of) == want);
  }
}

TEST_CASE("what paths own can be summed while other threads begin, end and grow their tables") {
  path_tree& tree = shared_tree();
  const path_node* parent = tree.child(nullptr, "growing");
  std::vector<const path_node*> nodes;
  for (int i = 0; i < 600; ++i) nodes.push_back(tree.child(parent, std::to_string(i)));
  std::atomic<int> running{4};
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < 4; ++t) {
    workers.emplace_back([&, t] {
      for (std::size_t round = 0; round < 8; ++round) {
        std::thread([&, t] {
          tidemark::detail::slot& s = *tidemark::detail::current_slot();
          for (std::size_t i = t; i < nodes.size(); i += 97) {
            s.set_owner(nodes[i]->id, tidemark::detail::ledger().memory, tidemark::detail::ledger().table_lock);
            s.owner_cell->add(1);
          }
        }).join();
      }
      --running;
    });
  }
  std::int64_t before = 0;
  bool fell = false;
  while (running != 0) {
    const std::int64_t now = tidemark::detail::owned_bytes(*parent);
    fell = fell || now < before;
    before = now;
    std::this_thread::yield();
  }
  for (std::thread& w : workers) w.join();
  CHECK(!fell);
  std::int64_t want = 0;
  for (std::size_t t = 0; t < 4; ++t) want += 8 * static_cast<std::int64_t>((nodes.size() - t + 96) / 97);
  CHECK(tidemark::detail::owned_bytes(*parent) == want);
}

TEST_CASE("what paths own can be summed while threads are born") {
  path_tree& tree = shared_tree();
  const path_node* path = tree.child(nullptr, "newborn");
  constexpr std::size_t count = 100;
  std::atomic<std::size_t> alive{0};
  std::vector<std::thread> threads;
  std::thread starter([&] {
    for (std::size_t t = 0; t < count; ++t) {
      threads.emplace_back([&] {
        tidemark::detail::slot& s = *tidemark::detail::current_slot();
        s.set_owner(path->id, tidemark::detail::ledger().memory, tidemark::detail::ledger().table_lock);
        s.owner_cell->add(10);
        ++alive;
        while (alive != count) std::this_thread::yield();  // so that each has a slot of its own
      });
    }
  });
  std::int64_t last = 0;
  while (alive != count) {
    last = tidemark::detail::owned_bytes(*path);
    std::this_thread::yield();
  }
  starter.join();
  for (std::thread& t : threads) t.join();
  CHECK(last <= 10 * static_cast<std::int64_t>(count));
  CHECK(tidemark::detail::owned_bytes(*path) == 10 * static_cast<std::int64_t>(count));
}

TEST_CASE("beyond 65,536 paths new ones share \"(other)\", and are counted") {
  const auto tree = std::make_unique<path_tree>();
  constexpr std::uint64_t more = 70'000;
  // The numbers 0 and 1 stand for "no scope" and "(other)".
  constexpr std::uint64_t room = 65'536 - 2;
  std::vector<const path_node*> nodes;
  std::set<std::uint32_t> ids;
  for (std::uint64_t i = 0; i < more; ++i) {
    nodes.push_back(tree->child(i % 3 == 0 || nodes.empty() ? nullptr : nodes[i / 2], "n" + std::to_string(i)));
    ids.insert(nodes.back()->id);
  }
  CHECK(tree->overflows() == more - room);
  CHECK(ids.size() == room + 1);
  CHECK(*ids.rbegin() < 65'536);
  const path_node* other = nodes.back();
  CHECK(other->name == "(other)");
  CHECK(path_text(other) == "(other)");
  CHECK(other->id == tidemark::detail::other_path_id);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < more; ++i) {
    if (i >= room) {
      wrong += nodes[i] == other ? 0U : 1U;
    } else {
      wrong += nodes[i] != other && nodes[i]->name == "n" + std::to_string(i) ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
  // Those that were there before are still found, and so is what lies below "(other)": itself.
  CHECK(tree->child(nullptr, "n0") == nodes[0]);
  CHECK(tree->overflows() == more - room);
  CHECK(tree->child(other, "below") == other);
  CHECK(tree->child(nullptr, "(other)") == other);
  CHECK(tree->overflows() == more - room + 2);
}
