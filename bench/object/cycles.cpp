// SPDX-License-Identifier: MIT
// cycles OBJECTS SEARCHES [leaked]: makes a tree of OBJECTS tracked objects in which each holds its children and its parent,
// and searches for cycles SEARCHES times: while the root is held, or after it was let go of.
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

#include <tidemark/object/cycles.hpp>

#include "../arguments.hpp"

namespace {

struct element {
  std::vector<std::shared_ptr<element>> children;
  std::shared_ptr<element> parent;
  TIDEMARK_EDGES(element, children, parent);
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = bench::number(argc, argv, 1, 100'000);
  const std::size_t searches = bench::number(argc, argv, 2, 1);
  const bool is_leaked = argc > 3;
  std::vector<std::shared_ptr<element>> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(tidemark::make_tracked<element>());
  for (std::size_t i = 1; i < count; ++i) {
    all[i]->parent = all[(i - 1) / 4];
    all[i]->parent->children.push_back(all[i]);
  }
  std::shared_ptr<element> root = all[0];
  const std::weak_ptr<element> weak_root = root;
  all.clear();
  if (is_leaked) root.reset();
  std::size_t found = 0;
  for (std::size_t i = 0; i < searches; ++i) found += tidemark::find_cycles().value().size();

  all.push_back(weak_root.lock());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::shared_ptr<element> e = all[i];
    all.insert(all.end(), e->children.begin(), e->children.end());
    *e = element();
  }
  const std::size_t expected = is_leaked ? searches : 0;
  if (found == expected && all.size() == count) return 0;
  std::fprintf(stderr, "found %zu cycles, not %zu, and %zu objects\n", found, expected, all.size());
  return 1;
}
