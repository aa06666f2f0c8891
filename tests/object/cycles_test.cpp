// SPDX-License-Identifier: MIT
// What find_cycles() and who_holds() tell, of graphs made by hand, and of random ones against a model that searches from the
// outside handles.
#include <tidemark/object/cycles.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/scope/scope.hpp>

#include "dice.hpp"
#include "test.hpp"

using tidemark::cycle;
using tidemark::cycle_options;
using tidemark::find_cycles;
using tidemark::holding_chain;
using tidemark::make_tracked;
using tidemark::object_edge;
using tidemark::object_info;
using tidemark::tracked_weak;
using tidemark::who_holds;

namespace {

struct node {
  std::shared_ptr<node> next;
  std::vector<std::shared_ptr<node>> children;
  std::shared_ptr<node> parent;
  TIDEMARK_EDGES(node, next, children, parent);
};

using nodes = std::vector<std::shared_ptr<node>>;

/// Breaks whatever cycles a test left.
class cleared_at_end {
 public:
  ~cleared_at_end() {
    for (const std::weak_ptr<node>& w : all_) {
      if (const std::shared_ptr<node> n = w.lock()) *n = node();
    }
  }
  std::shared_ptr<node> make() {
    auto n = make_tracked<node>();
    all_.push_back(n);
    return n;
  }

 private:
  std::vector<std::weak_ptr<node>> all_;
};

std::set<std::uint64_t> ids_in(const std::vector<object_info>& objects) {
  std::set<std::uint64_t> ids;
  for (const object_info& o : objects) ids.insert(o.id);
  return ids;
}

/// Each step leads on from where the last one ended, and the last to the first.
bool is_closed(const std::vector<object_edge>& walk) {
  for (std::size_t i = 0; i < walk.size(); ++i) {
    if (walk[i].to != walk[(i + 1) % walk.size()].from) return false;
  }
  return !walk.empty();
}

std::string names_on(const std::vector<object_edge>& walk) {
  std::string names;
  for (const object_edge& e : walk) names += e.name + ' ';
  return names;
}

std::vector<std::string> weakened_in(const cycle& c) {
  std::vector<std::string> members;
  for (const tidemark::edge_member& m : c.weaken) members.push_back(m.member);
  return members;
}

using texts = std::vector<std::string>;

}  // namespace

TEST_CASE("where nothing is tracked there is no cycle") {
  const auto found = find_cycles();
  REQUIRE(found.has_value());
  CHECK(found->empty());
}

TEST_CASE("an object that holds itself is a cycle of one") {
  cleared_at_end all;
  std::uint64_t id = 0;
  {
    auto n = all.make();
    id = tracked_weak<node>(n).id();
    n->next = n;
    CHECK(find_cycles()->empty());
  }
  const auto found = find_cycles();
  REQUIRE(found->size() == 1);
  const cycle& c = found->front();
  CHECK(ids_in(c.objects) == std::set<std::uint64_t>{id});
  CHECK(c.object_count == 1);
  CHECK(names_on(c.walk) == "next ");
  CHECK(is_closed(c.walk));
  CHECK(weakened_in(c) == texts{"next"});
  CHECK(c.text().find("1 object holds itself and nobody else does: ") == 0);
}

TEST_CASE("a child that holds its parent is a cycle of two, and the edge from the younger to the older is to be weak") {
  cleared_at_end all;
  std::uint64_t parent_id = 0;
  std::uint64_t child_id = 0;
  {
    auto parent = all.make();
    auto child = all.make();
    parent_id = tracked_weak<node>(parent).id();
    child_id = tracked_weak<node>(child).id();
    parent->children.resize(4);
    parent->children[3] = child;
    child->parent = parent;
  }
  const auto found = find_cycles();
  REQUIRE(found->size() == 1);
  const cycle& c = found->front();
  REQUIRE(c.objects.size() == 2);
  CHECK(c.objects[0].id == parent_id);
  CHECK(c.objects[1].id == child_id);
  CHECK(names_on(c.walk) == "children[3] parent ");
  CHECK(names_on(c.edges) == "children[3] parent ");
  CHECK(c.edges[0].from == parent_id);
  CHECK(c.edges[0].to == child_id);
  CHECK(c.edges[0].member == "children");
  CHECK(c.edges[0].type == c.objects[0].type);
  CHECK(weakened_in(c) == texts{"parent"});
  CHECK(c.bytes == c.objects[0].bytes + c.objects[1].bytes);
  CHECK(c.objects[0].bytes > static_cast<std::int64_t>(sizeof(node)));
  CHECK(c.retained_bytes == c.bytes);
  const std::string type = c.objects[0].type;
  CHECK(c.text() == "2 objects hold each other and nobody else does: " + tidemark::format_bytes(c.bytes) + ". " + type +
                        ".children[3] -> " + type + ".parent -> " + type + " #" + std::to_string(parent_id) +
                        ". Make " + type + ".parent a std::weak_ptr.");
}

TEST_CASE("a ring of 1,000 is one cycle with every object and the whole walk") {
  cleared_at_end all;
  std::set<std::uint64_t> ids;
  {
    nodes ring;
    for (int i = 0; i < 1'000; ++i) ring.push_back(all.make());
    for (std::size_t i = 0; i < ring.size(); ++i) {
      ring[i]->next = ring[(i + 1) % ring.size()];
      ids.insert(tracked_weak<node>(ring[i]).id());
    }
  }
  const auto found = find_cycles();
  REQUIRE(found->size() == 1);
  const cycle& c = found->front();
  CHECK(ids_in(c.objects) == ids);
  CHECK(c.object_count == 1'000);
  CHECK(c.walk.size() == 1'000);
  CHECK(c.walk_length == 1'000);
  CHECK(is_closed(c.walk));
  CHECK(c.text().find("(992 more) -> ") != std::string::npos);
  cycle_options few;
  few.max_objects = 10;
  few.max_edges = 5;
  const auto cut = find_cycles(few);
  REQUIRE(cut->size() == 1);
  CHECK(cut->front().objects.size() == 10);
  CHECK(cut->front().edges.size() == 5);
  CHECK(cut->front().walk.size() == 10);
  CHECK(cut->front().walk_length == 1'000);
  CHECK(cut->front().object_count == 1'000);
  CHECK(cut->front().bytes == c.bytes);
  few.max_cycles = 0;
  CHECK(find_cycles(few)->empty());
}

TEST_CASE("two rings that share an object are one cycle, whose walk is the shorter ring of the oldest object") {
  cleared_at_end all;
  {
    const auto shared = all.make();
    nodes left = {shared, all.make()};
    nodes right = {shared, all.make(), all.make()};
    for (std::size_t i = 0; i < left.size(); ++i) left[i]->next = left[(i + 1) % left.size()];
    for (std::size_t i = 0; i < right.size(); ++i) right[i]->parent = right[(i + 1) % right.size()];
  }
  const auto found = find_cycles();
  REQUIRE(found->size() == 1);
  CHECK(found->front().objects.size() == 4);
  CHECK(found->front().edges.size() == 5);
  CHECK(names_on(found->front().walk) == "next next ");
  CHECK(weakened_in(found->front()) == texts{"next", "parent"});  // neither alone is enough
}

TEST_CASE("a cycle that is held from outside is not told, through whatever it is held") {
  cleared_at_end all;
  auto a = all.make();
  auto b = all.make();
  a->next = b;
  b->next = a;
  const std::weak_ptr<node> weak = a;
  CHECK(find_cycles()->empty());
  {
    const std::shared_ptr<std::shared_ptr<node>> alias(a, &a->next);
    a.reset();
    b.reset();
    CHECK(find_cycles()->empty());
  }
  CHECK(find_cycles()->size() == 1);
  {
    const auto untracked = std::make_shared<node>();
    untracked->next = weak.lock();
    CHECK(find_cycles()->empty());
  }
  CHECK(find_cycles()->size() == 1);
  {
    const auto holder = make_tracked<node>();
    holder->next = weak.lock();
    CHECK(find_cycles()->empty());
  }
  CHECK(find_cycles()->size() == 1);
}

TEST_CASE("an edge that is an alias counts for its owner") {
  cleared_at_end all;
  {
    auto a = all.make();
    auto b = all.make();
    b->children.resize(1);
    a->next = std::shared_ptr<node>(b, a.get());
    b->next = a;
  }
  CHECK(find_cycles()->size() == 1);
}

TEST_CASE("what only a cycle keeps alive is retained by it, and is no part of it") {
  cleared_at_end all;
  {
    const auto a = all.make();
    const auto b = all.make();
    a->next = b;
    b->next = a;
    b->children = {all.make()};
    b->children[0]->children = {all.make(), all.make()};
    b->children[0]->next = b->children[0]->children[0];
    // Another cycle keeps one of them too, and is itself kept by nobody but itself.
    const auto other = all.make();
    other->parent = other;
    other->next = b->children[0]->children[1];
    a->parent = other;
  }
  const auto found = find_cycles();
  REQUIRE(found->size() == 2);
  const std::int64_t each = found->at(0).objects[0].bytes;
  CHECK(found->at(0).objects.size() == 2);
  CHECK(found->at(0).bytes == 2 * each);
  CHECK(found->at(0).retained_bytes == 4 * each);
  CHECK(found->at(1).objects.size() == 1);
  CHECK(found->at(1).retained_bytes == each);
  CHECK(found->at(0).text().find(", " + tidemark::format_bytes(4 * each) + " with what only they keep alive. ") !=
        std::string::npos);
}

TEST_CASE("the cycle that keeps most comes first, however old the others are") {
  cleared_at_end all;
  for (const unsigned kept : {1U, 3U, 2U}) {
    const auto n = all.make();
    n->next = n;
    while (n->children.size() < kept) n->children.push_back(all.make());
  }
  const auto found = find_cycles();
  REQUIRE(found->size() == 3);
  const std::int64_t each = found->at(0).objects[0].bytes;
  CHECK(found->at(0).retained_bytes == 4 * each);
  CHECK(found->at(1).retained_bytes == 3 * each);
  CHECK(found->at(2).retained_bytes == 2 * each);
}

TEST_CASE("the scope path open at an object's creation is told, and file and line where they are noted") {
  cleared_at_end all;
  {
    const tidemark::scope outer("train step");
    const tidemark::scope inner("forward");
    auto n = TIDEMARK_MAKE_TRACKED(node);
    n->next = n;
  }
  const int line = __LINE__ - 3;
  const auto found = find_cycles();
  REQUIRE(found->size() == 1);
  const object_info& o = found->front().objects[0];
  CHECK(o.path == "train step/forward");
  CHECK(std::string_view(o.where.file_name()) == __FILE__);
  CHECK(o.where.line() == static_cast<std::uint32_t>(line));
  CHECK(found->front().text().find(", which was made in train step/forward at " __FILE__ ":" + std::to_string(line) +
                                   '.') != std::string::npos);
  static_cast<node*>(const_cast<void*>(o.address))->next.reset();
  CHECK(find_cycles()->empty());
}

// ---- types that tell otherwise ----

namespace {

struct twice_base {
  std::shared_ptr<twice_base> link;
  TIDEMARK_EDGES(twice_base, link);
  virtual ~twice_base() = default;
};
/// Tells its base's member again.
struct twice : twice_base {
  TIDEMARK_EDGES(twice, link, tidemark::edges_of_base<twice_base>(*this), link);
};

/// Tells only one of its two.
struct secretive {
  std::shared_ptr<secretive> told, hidden;
  TIDEMARK_EDGES(secretive, told);
};

}  // namespace

TEST_CASE("a pointer that is told three times is one reference: what is held from outside stays so") {
  auto a = make_tracked<twice>();
  auto b = make_tracked<twice>();
  a->link = b;
  b->link = a;
  auto outside = a;
  auto again = a;
  a.reset();
  b.reset();
  CHECK(find_cycles()->empty());
  const std::weak_ptr<twice> weak = outside;
  outside.reset();
  again.reset();
  CHECK(find_cycles()->size() == 1);
  weak.lock()->link.reset();
}

namespace {

/// Tells what lies in an untracked object that it shares with others.
struct sharer {
  struct common {
    std::shared_ptr<sharer> target;
  };
  std::shared_ptr<common> shared;
  std::shared_ptr<sharer> next;
};
template <class Visitor>
void for_each_edge(const sharer& s, Visitor&& visit) {
  visit("next", s.next);
  if (s.shared != nullptr) visit("target", s.shared->target);
}

/// Tells a reference of its own making.
struct liar {
  std::shared_ptr<liar> next;
};
template <class Visitor>
void for_each_edge(const liar& l, Visitor&& visit) {
  visit("next", l.next);
  visit("same", std::shared_ptr<liar>(l.next));
}

}  // namespace

TEST_CASE("a pointer that two objects tell of is one reference: what is held from outside stays so") {
  auto a = make_tracked<sharer>();
  auto b = make_tracked<sharer>();
  a->shared = b->shared = std::make_shared<sharer::common>();
  a->shared->target = a;
  a->next = b;
  b->next = a;
  const auto outside = a;
  a.reset();
  b.reset();
  CHECK(find_cycles()->empty());
  CHECK(who_holds(outside)->object.outside_references == 1);
  outside->shared->target.reset();
  outside->next.reset();
}

namespace {

/// Visits copies.
struct copier {
  std::vector<std::shared_ptr<copier>> links;
  std::shared_ptr<copier> back;
};
template <class Visitor>
void for_each_edge(const copier& c, Visitor&& visit) {
  const std::vector<std::shared_ptr<copier>> copy = c.links;
  visit("links", copy);
  const std::shared_ptr<copier> back = c.back;
  visit("back", back);
}

}  // namespace

TEST_CASE("copies that visitors make, all at the same place, are a reference each") {
  auto root = make_tracked<copier>();
  for (int i = 0; i < 5; ++i) {
    root->links.push_back(make_tracked<copier>());
    root->links.back()->back = root;
  }
  const std::weak_ptr<copier> weak = root;
  root.reset();
  REQUIRE(find_cycles()->size() == 1);
  CHECK(find_cycles()->front().objects.size() == 6);
  weak.lock()->links.clear();
}

TEST_CASE("more references than there are make the answer unstable") {
  auto a = make_tracked<liar>();
  a->next = make_tracked<liar>();
  CHECK(find_cycles().why().find("unstable: ") == 0);
}

TEST_CASE("a reference that is not told keeps its object from being called leaked") {
  auto a = make_tracked<secretive>();
  auto b = make_tracked<secretive>();
  a->told = b;
  b->told = a;
  a->hidden = b;
  const std::weak_ptr<secretive> weak = a;
  a.reset();
  b.reset();
  CHECK(find_cycles()->empty());
  weak.lock()->hidden.reset();
  CHECK(find_cycles()->size() == 1);
  weak.lock()->told.reset();
}

// ---- graphs that change ----

namespace {

std::function<void()> on_visit;  // called by each visit of a restless object

struct restless {
  std::shared_ptr<restless> next, other;
};
template <class Visitor>
void for_each_edge(const restless& r, Visitor&& visit) {
  if (on_visit) on_visit();
  visit("next", r.next);
  visit("other", r.other);
}

struct restless_pair {
  std::shared_ptr<restless> a = make_tracked<restless>();
  std::shared_ptr<restless> b = make_tracked<restless>();
  restless_pair() {
    a->next = b;
    b->next = a;
  }
  ~restless_pair() {
    on_visit = nullptr;
    *a = restless();
    *b = restless();
  }
};

}  // namespace

TEST_CASE("a graph that changes from inside its visitor is unstable") {
  const restless_pair pair;
  // By every means: an edge that moves, one that goes and comes, a reference that comes from outside.
  on_visit = [&] { std::swap(pair.a->next, pair.a->other); };
  const auto moved = find_cycles();
  REQUIRE_FALSE(moved.has_value());
  CHECK(moved.why().find("unstable: ") == 0);
  CHECK(who_holds(pair.a).why().find("unstable: ") == 0);
  CHECK(tidemark::refs_of(pair.a).why().find("unstable: ") == 0);

  on_visit = [&] { pair.a->other = pair.a->other == nullptr ? pair.b : nullptr; };
  CHECK(find_cycles().why().find("unstable: ") == 0);

  std::vector<std::shared_ptr<restless>> outside;
  on_visit = [&] { outside.push_back(pair.a); };
  CHECK(find_cycles().why().find("unstable: ") == 0);

  on_visit = nullptr;
  CHECK(find_cycles()->empty());
}

TEST_CASE("a graph that comes to rest within the tries is found") {
  const restless_pair pair;
  int visits = 0;
  on_visit = [&] {
    if (++visits <= 6) std::swap(pair.a->next, pair.a->other);
  };
  cycle_options once;
  once.tries = 1;
  CHECK_FALSE(find_cycles(once).has_value());
  CHECK(find_cycles().has_value());
}

TEST_CASE("a visitor may make and destroy objects, and drop the last handles of others") {
  const restless_pair pair;
  auto doomed = make_tracked<restless>();
  on_visit = [&] {
    doomed.reset();
    const auto short_lived = make_tracked<restless>();
    static_cast<void>(short_lived);
  };
  CHECK(find_cycles().has_value());
  CHECK(doomed.get() == nullptr);
  CHECK(tidemark::live_tracked().objects == 2);
}

TEST_CASE("a search inside a visitor says that one is running, and the outer one goes on") {
  const restless_pair pair;
  std::string why;
  on_visit = [&] { why = std::string(find_cycles().why()); };
  CHECK(find_cycles().has_value());
  CHECK(why == "another search over the tracked objects is running");
  on_visit = nullptr;
  CHECK(find_cycles().has_value());
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE("what a visitor throws passes through, and the next search works") {
  const restless_pair pair;
  on_visit = [] { throw 7; };
  CHECK_THROWS_AS(static_cast<void>(find_cycles()), int);
  on_visit = nullptr;
  CHECK(find_cycles().has_value());
}
#endif

// ---- who_holds ----

TEST_CASE("the shortest chains to an object are told, each from another object that is held from outside") {
  const auto root = make_tracked<node>();
  const auto other = make_tracked<node>();
  root->children = {nullptr, make_tracked<node>()};
  node& middle = *root->children[1];
  middle.next = make_tracked<node>();
  other->parent = middle.next->next = make_tracked<node>();
  const node* const target = other->parent.get();

  const auto found = who_holds(target);
  REQUIRE(found.has_value());
  CHECK(found->object.id == tracked_weak<node>(other->parent).id());
  CHECK(found->root_count == 2);
  REQUIRE(found->chains.size() == 2);
  const std::string type = found->object.type;
  CHECK(found->chains[0].text == "outside -> " + type + ".parent -> this");
  CHECK(found->chains[1].text ==
        "outside -> " + type + ".children[1] -> " + type + ".next -> " + type + ".next -> this");
  CHECK(found->chains[1].length == 3);
  CHECK(names_on(found->chains[1].edges) == "children[1] next next ");
  CHECK(found->object.outside_references == 0);
  CHECK(found->text().find("\n  " + found->chains[0].text + "\n  " + found->chains[1].text + '\n') !=
        std::string::npos);
  const auto one = who_holds(target, 1);
  CHECK(one->chains.size() == 1);
  CHECK(one->root_count == 2);
  CHECK(one->text().find("  and from 1 other objects\n") != std::string::npos);

  // The pointer that is passed is from outside as well.
  CHECK(who_holds(other->parent)->object.outside_references == 0);
  const auto mine = other->parent;
  const auto held = who_holds(mine);
  CHECK(held->object.outside_references == 1);
  CHECK(held->root_count == 3);
  CHECK(held->chains[0].text == "outside -> this");
  CHECK(held->chains[0].edges.empty());
}

TEST_CASE("an object is named by a shared_ptr, an alias, a weak handle, its address or that of a member") {
  const auto n = make_tracked<node>();
  const std::uint64_t id = tracked_weak<node>(n).id();
  const std::shared_ptr<std::shared_ptr<node>> alias(n, &n->next);
  const tracked_weak<node> weak = n;
  CHECK(who_holds(n)->object.id == id);
  CHECK(who_holds(alias)->object.id == id);
  CHECK(who_holds(weak)->object.id == id);
  CHECK(who_holds(n.get())->object.id == id);
  CHECK(who_holds(&n->parent)->object.id == id);
  const auto* const bytes = reinterpret_cast<const char*>(n.get());
  CHECK(who_holds(bytes + sizeof(node) - 1)->object.id == id);
  CHECK_FALSE(who_holds(bytes + sizeof(node)).has_value());
  CHECK_FALSE(who_holds(bytes - 1).has_value());
  CHECK(who_holds(n)->object.outside_references == 2);
}

TEST_CASE("what is null, dead or not tracked is told so") {
  auto n = make_tracked<node>();
  const tracked_weak<node> weak = n;
  const node on_stack;
  n.reset();
  for (const std::string_view why : {who_holds(n).why(), who_holds(weak).why(), who_holds(&on_stack).why(),
                                     who_holds(std::make_shared<node>()).why(), who_holds(tracked_weak<node>()).why(),
                                     who_holds(static_cast<const void*>(nullptr)).why()}) {
    CHECK(why == "no live object of that is known: it is null, dead, or was not made with make_tracked");
  }
}

TEST_CASE("an object that only a cycle holds is told so") {
  cleared_at_end all;
  const node* address = nullptr;
  {
    auto n = all.make();
    n->next = n;
    address = n.get();
  }
  const auto found = who_holds(address);
  REQUIRE(found.has_value());
  CHECK(found->chains.empty());
  CHECK(found->root_count == 0);
  CHECK(found->text().find("held only by a cycle") != std::string::npos);
}

TEST_CASE("a long chain is told by its ends") {
  auto first = make_tracked<node>();
  std::shared_ptr<node> last = first;
  for (int i = 0; i < 100; ++i) {
    last->next = make_tracked<node>();
    last = last->next;
  }
  const node* const target = last.get();
  last.reset();
  const auto found = who_holds(target);
  REQUIRE(found->chains.size() == 1);
  CHECK(found->chains[0].length == 100);
  CHECK(found->chains[0].edges.size() == 64);
  CHECK(found->chains[0].text.find("(36 more) -> ") != std::string::npos);
  while (first != nullptr) first = std::exchange(first->next, nullptr);
}

namespace {
struct keyed {
  std::map<std::string, std::shared_ptr<node>> table;
  TIDEMARK_EDGES(keyed, table);
};
}  // namespace

TEST_CASE("a key of a map that holds control characters does not break a line") {
  const auto k = make_tracked<keyed>();
  k->table["a\nb\x1B[31m"] = make_tracked<node>();
  const auto found = who_holds(k->table.begin()->second);
  REQUIRE(found->chains.size() == 1);
  CHECK(found->chains[0].text.find(".table[\"a\\nb\\x1b[31m\"] -> this") != std::string::npos);
}

// ---- random graphs ----

namespace {

/// A tracked object with an edge of every kind.
struct crowd;
struct crowd_part {
  std::shared_ptr<crowd> inside;
  TIDEMARK_EDGES(crowd_part, inside);
};
struct crowd {
  std::shared_ptr<crowd> one;
  std::vector<std::shared_ptr<crowd>> list;
  std::map<int, std::shared_ptr<crowd>> table;
  std::unique_ptr<crowd_part> part;
  std::vector<std::weak_ptr<crowd>> weak;
  TIDEMARK_EDGES(crowd, one, list, table, part, weak);

  void clear() {
    std::vector<std::shared_ptr<crowd>> let_go = std::move(list);
    let_go.push_back(std::move(one));
    for (auto& entry : table) let_go.push_back(std::move(entry.second));
    table.clear();
    if (part != nullptr) let_go.push_back(std::move(part->inside));
  }
};

/// A random graph, made of tracked objects and of numbers.
class random_graph {
 public:
  explicit random_graph(dice& d) : count_(1 + d.below(8)), to_(count_), is_held_(count_) {
    for (std::size_t i = 0; i < count_; ++i) {
      objects_.push_back(make_tracked<crowd>());
      ids_.push_back(tracked_weak<crowd>(objects_.back()).id());
      place_[ids_.back()] = i;
    }
    const std::size_t edges = d.below(count_ * 2 + 1);
    for (std::size_t e = 0; e < edges; ++e) add(d, d.below(count_), d.below(count_));
    const std::uint64_t handles = d.below(3);
    for (std::uint64_t h = 0; h < handles; ++h) {
      const std::size_t i = d.below(count_);
      outside_.push_back(objects_[i]);
      is_held_[i] = true;
    }
    for (const auto& o : objects_) all_.push_back(o);
    objects_.clear();  // what nothing holds dies here
  }
  ~random_graph() {
    for (const auto& w : all_) {
      if (const auto o = w.lock()) o->clear();
    }
  }

  /// The same, from the numbers alone.
  [[nodiscard]] std::vector<bool> reached_from(std::vector<std::size_t> start) const {
    std::vector<bool> is_reached(count_);
    while (!start.empty()) {
      const std::size_t i = start.back();
      start.pop_back();
      if (is_reached[i]) continue;
      is_reached[i] = true;
      start.insert(start.end(), to_[i].begin(), to_[i].end());
    }
    return is_reached;
  }
  [[nodiscard]] std::vector<bool> reached_by_an_edge_from(std::size_t i) const { return reached_from(to_[i]); }

  /// Sets of ids: what no outside handle reaches and what reaches itself, by who reaches whom.
  [[nodiscard]] std::set<std::set<std::uint64_t>> cycles() const {
    const std::vector<bool> is_live = reached_from(held());
    std::set<std::set<std::uint64_t>> found;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::vector<bool> from_i = reached_by_an_edge_from(i);
      if (is_live[i] || !from_i[i]) continue;
      std::set<std::uint64_t> one;
      for (std::size_t j = 0; j < count_; ++j) {
        if (from_i[j] && reached_by_an_edge_from(j)[i]) one.insert(ids_[j]);
      }
      found.insert(one);
    }
    return found;
  }

  /// How many objects go when those of a cycle go: by taking away what has lost every holder, until nothing more does.
  [[nodiscard]] std::size_t retained(const std::set<std::uint64_t>& ids) const {
    std::vector<bool> is_gone(count_);
    for (const std::uint64_t id : ids) is_gone[place_.at(id)] = true;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t i = 0; i < count_; ++i) {
        bool has_gone_holder = false;
        bool has_holder = is_held_[i];
        for (std::size_t j = 0; j < count_; ++j) {
          const bool holds = std::count(to_[j].begin(), to_[j].end(), i) > 0 && exists(j);
          has_gone_holder = has_gone_holder || (holds && is_gone[j]);
          has_holder = has_holder || (holds && !is_gone[j]);
        }
        if (is_gone[i] || !has_gone_holder || has_holder) continue;
        is_gone[i] = goes_on = true;
      }
    }
    return static_cast<std::size_t>(std::count(is_gone.begin(), is_gone.end(), true));
  }

  [[nodiscard]] std::size_t edges_among(const std::set<std::uint64_t>& ids) const {
    std::size_t edges = 0;
    for (const std::uint64_t id : ids) {
      for (const std::size_t to : to_[place_.at(id)]) edges += ids.count(ids_[to]);
    }
    return edges;
  }

  /// Steps from an outside handle to it, per object that is held and leads there; without an entry for the others.
  [[nodiscard]] std::multiset<std::size_t> distances_to(std::size_t target) const {
    std::multiset<std::size_t> distances;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!is_held_[i]) continue;
      std::vector<std::size_t> level = {i};
      std::vector<bool> is_seen(count_);
      for (std::size_t steps = 0; !level.empty() && steps <= count_; ++steps) {
        if (std::count(level.begin(), level.end(), target) > 0) {
          distances.insert(steps);
          break;
        }
        std::vector<std::size_t> next;
        for (const std::size_t j : level) {
          if (is_seen[j]) continue;
          is_seen[j] = true;
          next.insert(next.end(), to_[j].begin(), to_[j].end());
        }
        level = next;
      }
    }
    return distances;
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::shared_ptr<crowd> lock(std::size_t i) const { return all_[i].lock(); }
  [[nodiscard]] const void* address(std::size_t i) const { return all_[i].lock().get(); }
  [[nodiscard]] bool exists(std::size_t i) const { return !all_[i].expired(); }
  [[nodiscard]] bool has_edge(std::uint64_t from, std::uint64_t to) const {
    const auto& all = to_[place_.at(from)];
    return std::count(all.begin(), all.end(), place_.at(to)) > 0;
  }

 private:
  void add(dice& d, std::size_t from, std::size_t to) {
    crowd& c = *objects_[from];
    const std::shared_ptr<crowd>& target = objects_[to];
    switch (d.below(6)) {
      case 0:
        if (c.one != nullptr) return;
        c.one = target;
        break;
      case 1:
        c.list.push_back(target);
        break;
      case 2:
        c.table.emplace(static_cast<int>(c.table.size()), target);
        break;
      case 3:
        if (c.part != nullptr) return;
        c.part = std::make_unique<crowd_part>();
        c.part->inside = target;
        break;
      case 4:
        c.list.push_back(std::shared_ptr<crowd>(target, &c));
        break;  // an alias
      default:
        c.weak.push_back(target);
        return;
    }
    to_[from].push_back(to);
  }
  [[nodiscard]] std::vector<std::size_t> held() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < count_; ++i) {
      if (is_held_[i]) all.push_back(i);
    }
    return all;
  }

  std::size_t count_;
  std::vector<std::vector<std::size_t>> to_;
  std::vector<bool> is_held_;
  std::vector<std::shared_ptr<crowd>> objects_;
  std::vector<std::uint64_t> ids_;
  std::map<std::uint64_t, std::size_t> place_;
  std::vector<std::shared_ptr<crowd>> outside_;
  std::vector<std::weak_ptr<crowd>> all_;
};

/// Whether no way along the edges leads back, but for those of the members.
bool is_open_without(const cycle& c, const std::vector<tidemark::edge_member>& members) {
  std::map<std::uint64_t, std::vector<std::uint64_t>> to;
  for (const object_edge& e : c.edges) {
    const bool is_weak = std::any_of(members.begin(), members.end(), [&](const tidemark::edge_member& m) {
      return m.type == e.type && m.member == e.member;
    });
    if (!is_weak) to[e.from].push_back(e.to);
  }
  for (const object_info& o : c.objects) {
    std::set<std::uint64_t> seen;
    std::vector<std::uint64_t> to_do = to[o.id];
    while (!to_do.empty()) {
      const std::uint64_t id = to_do.back();
      to_do.pop_back();
      if (id == o.id) return false;
      if (seen.insert(id).second) to_do.insert(to_do.end(), to[id].begin(), to[id].end());
    }
  }
  return true;
}

}  // namespace

TEST_CASE("20,000 random graphs: the cycles are those that the model finds from the outside handles") {
  dice d(7);
  std::size_t cycles_seen = 0;
  std::size_t of_several = 0;
  for (int round = 0; round < 20'000; ++round) {
    const random_graph g(d);
    const auto found = find_cycles();
    REQUIRE(found.has_value());
    std::set<std::set<std::uint64_t>> sets;
    for (const cycle& c : *found) sets.insert(ids_in(c.objects));
    REQUIRE(sets == g.cycles());
    REQUIRE(sets.size() == found->size());
    for (const cycle& c : *found) {
      ++cycles_seen;
      const std::set<std::uint64_t> ids = ids_in(c.objects);
      const std::int64_t each = c.objects[0].bytes;
      REQUIRE(c.object_count == ids.size());
      REQUIRE(c.bytes == each * static_cast<std::int64_t>(ids.size()));
      REQUIRE(c.retained_bytes == each * static_cast<std::int64_t>(g.retained(ids)));
      REQUIRE(c.edges.size() == g.edges_among(ids));
      REQUIRE(is_closed(c.walk));
      REQUIRE(c.walk_length == c.walk.size());
      for (const object_edge& e : c.walk) {
        REQUIRE(ids.count(e.from) == 1);
        REQUIRE(g.has_edge(e.from, e.to));
      }
      for (const object_edge& e : c.edges) REQUIRE(g.has_edge(e.from, e.to));
      REQUIRE_FALSE(c.weaken.empty());
      REQUIRE(is_open_without(c, c.weaken));
      of_several += c.weaken.size() > 1 ? 1U : 0U;
      for (std::size_t i = 0; c.weaken.size() > 1 && i < c.weaken.size(); ++i) {  // none is too many
        std::vector<tidemark::edge_member> others = c.weaken;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        REQUIRE_FALSE(is_open_without(c, others));
      }
    }
  }
  CHECK(cycles_seen > 5'000);
  CHECK(of_several > 500);
}

TEST_CASE("5,000 random graphs: the chains to each object are as long as the model finds them") {
  dice d(11);
  std::size_t chains_seen = 0;
  for (int round = 0; round < 5'000; ++round) {
    const random_graph g(d);
    for (std::size_t i = 0; i < g.count(); ++i) {
      if (!g.exists(i)) continue;
      const auto found = who_holds(g.address(i));
      REQUIRE(found.has_value());
      std::multiset<std::size_t> lengths;
      for (const holding_chain& c : found->chains) {
        REQUIRE(c.edges.size() == c.length);
        for (std::size_t e = 0; e < c.edges.size(); ++e) {
          REQUIRE(g.has_edge(c.edges[e].from, c.edges[e].to));
          REQUIRE(c.edges[e].to == (e + 1 < c.edges.size() ? c.edges[e + 1].from : found->object.id));
        }
        lengths.insert(c.length);
        ++chains_seen;
      }
      REQUIRE(lengths == g.distances_to(i));
      REQUIRE(found->root_count == lengths.size());
    }
  }
  CHECK(chains_seen > 5'000);
}
