// SPDX-License-Identifier: MIT
// Writes pictures for dot_check.py to have drawn: real ones, and one with the names that the script made up.
// Usage: dot_pictures NAMES FOLDER. NAMES has a name per line, in hexadecimal digits. Prints for each picture its file, and how
// many nodes, edges and dashed edges it has.
#include <tidemark/object/cycles.hpp>
#include <tidemark/scope/scope.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

struct layer {
  std::map<std::string, std::shared_ptr<layer>> inputs;
  std::vector<std::shared_ptr<layer>> outputs;
  std::shared_ptr<layer> model;
  TIDEMARK_EDGES(layer, inputs, outputs, model);
};

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

template <class What>
void write(const std::string& folder, const char* name, const What& what, std::size_t nodes, std::size_t edges,
           std::size_t dashed) {
  const auto written = tidemark::write_dot(folder + "/" + name, what);
  if (!written) std::fprintf(stderr, "%s\n", std::string(written.why()).c_str());
  std::printf("%s %zu %zu %zu\n", name, nodes, edges, dashed);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = argv[2];

  // Two that hold each other, with a key to be escaped, and beside them one that holds itself.
  std::weak_ptr<layer> first;
  std::weak_ptr<layer> alone;
  {
    const tidemark::scope building("build \"model\"/first");
    const auto a = TIDEMARK_MAKE_TRACKED(layer);
    const auto b = tidemark::make_tracked<layer>();
    const auto c = tidemark::make_tracked<layer>();
    first = a;
    alone = c;
    a->outputs = {b, b};
    b->inputs["a \"quoted\\\" key\n"] = a;
    b->model = a;
    c->model = c;
  }
  // Made weak, `outputs` breaks the first: two edges; and the second is one.
  write(folder, "cycles.dot", tidemark::find_cycles(), 3, 5, 3);
  first.lock()->outputs.clear();
  alone.lock()->model.reset();
  write(folder, "none.dot", tidemark::find_cycles(), 1, 0, 0);

  const auto model = tidemark::make_tracked<layer>();
  for (int i = 0; i < 3; ++i) {
    model->outputs.push_back(tidemark::make_tracked<layer>());
    model->outputs.back()->inputs["in"] = tidemark::make_tracked<layer>();
  }
  // With the node "outside", and an edge from it to what is held from there.
  write(folder, "refs.dot", tidemark::refs_of(model), 7 + 1, 6 + 1, 0);
  write(folder, "backrefs.dot", tidemark::backrefs_of(model->outputs[2]->inputs["in"]), 3 + 1, 2 + 1, 0);

  tidemark::object_picture hostile;
  std::ifstream names(argv[1]);
  for (std::string line; std::getline(names, line);) {
    tidemark::object_info o;
    o.id = hostile.objects.size() + 1;
    o.type = o.path = from_hex(line);
    if (o.id > 1) hostile.edges.push_back({o.id - 1, o.id, o.type, "", ""});
    hostile.objects.push_back(o);
  }
  write(folder, "hostile.dot", hostile, hostile.objects.size(), hostile.edges.size(), 0);
}
