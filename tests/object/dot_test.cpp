// SPDX-License-Identifier: MIT
// What a picture says, and where it is written. dot_check.py has Graphviz draw pictures.
#include <tidemark/object/cycles.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "files.hpp"
#include "test.hpp"

using tidemark::cycle;
using tidemark::dot_text;
using tidemark::find_cycles;
using tidemark::make_tracked;
using tidemark::object_picture;
using tidemark::write_dot;

namespace {

struct node {
  std::vector<std::shared_ptr<node>> children;
  std::shared_ptr<node> parent;
  TIDEMARK_EDGES(node, children, parent);
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

cycle cycle_by_hand() {
  cycle c;
  c.objects.resize(2);
  c.objects[0].id = 7;
  c.objects[0].type = "parent_type";
  c.objects[0].bytes = 64;
  c.objects[0].path = "train/step";
  c.objects[0].where = tidemark::location::current("model.cpp", 12, "f");
  c.objects[1].id = 9;
  c.objects[1].type = "child_type";
  c.objects[1].bytes = 2'048;
  c.object_count = 2;
  c.edges = {{7, 9, "children[0]", "parent_type", "children"}, {9, 7, "parent", "child_type", "parent"}};
  c.walk = c.edges;
  c.walk_length = 2;
  c.bytes = 2'112;
  c.retained_bytes = 4'096;
  c.weaken = {{"child_type", "parent"}};
  return c;
}

}  // namespace

TEST_CASE("a cycle is a cluster with each object and edge, and the edge to make weak is dashed") {
  CHECK(dot_text(cycle_by_hand()) == R"(digraph tidemark {
  charset="UTF-8";
  node [shape=box, fontname="Helvetica", fontsize=11];
  edge [fontname="Helvetica", fontsize=10];
  subgraph cluster_1 {
  label="cycle 1: 2 objects, 2.1 KiB, keeps 4.0 KiB\lmake weak: child_type.parent\l";
  o7 [label="parent_type #7\l64 B\ltrain/step\lmodel.cpp:12\l", style=filled, fillcolor="#ffe8e8"];
  o9 [label="child_type #9\l2.0 KiB\l", style=filled, fillcolor="#ffe8e8"];
  }
  o7 -> o9 [label="children[0]", color="#cc0000"];
  o9 -> o7 [label="parent", color="#cc0000", style=dashed];
}
)");
}

TEST_CASE("a cycle of which not all is listed says so") {
  cycle c = cycle_by_hand();
  c.object_count = 1'002;
  CHECK(has(dot_text(c), R"(\l1000 of the objects are not shown\l)"));
}

TEST_CASE("no cycle is a picture that says so") { CHECK(has(dot_text(std::vector<cycle>()), "no cycle")); }

TEST_CASE("a picture marks the object asked about, what is held from outside, and that there is more") {
  const auto root = make_tracked<node>();
  for (int i = 0; i < 2; ++i) {
    root->children.push_back(make_tracked<node>());
    root->children.back()->children.push_back(make_tracked<node>());
  }
  const auto refs = tidemark::refs_of(root);
  CHECK(refs->objects.size() == 5);
  CHECK(refs->edges.size() == 4);
  CHECK_FALSE(refs->is_cut);
  CHECK(refs->objects[0].id == refs->focus);
  tidemark::picture_options near_by;
  near_by.depth = 1;
  const auto cut = tidemark::refs_of(root, near_by);
  CHECK(cut->objects.size() == 3);
  CHECK(cut->is_cut);
  CHECK(has(dot_text(*cut), "there is more than is shown"));
  near_by.depth = 9;
  near_by.max_objects = 4;
  CHECK(tidemark::refs_of(root, near_by)->objects.size() == 4);
  near_by.max_objects = 100;
  near_by.max_edges = 1;
  CHECK(tidemark::refs_of(root, near_by)->edges.size() == 1);
  CHECK(tidemark::refs_of(root, near_by)->is_cut);
  near_by.depth = 0;
  CHECK(tidemark::refs_of(root, near_by)->objects.size() == 1);

  const auto back = tidemark::backrefs_of(root->children[1]->children[0]);
  CHECK(back->objects.size() == 3);
  CHECK(back->edges.size() == 2);
  const std::string text = dot_text(*back);
  CHECK(has(text, "penwidth=3"));
  CHECK(has(text, "outside -> o" + std::to_string(refs->focus) + " [style=dotted, label=\"1\"]"));
}

TEST_CASE("a file is written whole, over what was there, and through a link") {
  temporary_directory folder;
  const std::string path = folder.file("a.dot");
  const std::string text = dot_text(cycle_by_hand());
  const auto written = write_dot(path, cycle_by_hand());
  REQUIRE(written.has_value());
  CHECK(*written == static_cast<std::int64_t>(text.size()));
  CHECK(content(path) == text);
  const std::string link = folder.file("link.dot");
  REQUIRE(::symlink("a.dot", link.c_str()) == 0);
  CHECK(write_dot(link, std::vector<cycle>()).has_value());
  CHECK(content(path) == dot_text(std::vector<cycle>()));
  CHECK(write_dot(path.c_str(), find_cycles()).has_value());
}

TEST_CASE("what cannot be written is told, and the old file stays") {
  temporary_directory folder;
  CHECK(write_dot(folder.path() + "/none/a.dot", cycle_by_hand()).why() ==
        "'" + folder.path() + "/none/a.dot' cannot be written: No such file or directory");
  CHECK(has(std::string(write_dot(folder.path(), cycle_by_hand()).why()), "Is a directory"));
  CHECK(has(std::string(write_dot("/dev/full", cycle_by_hand()).why()), "it is no plain file; pass a FILE*"));
  CHECK(has(std::string(write_dot(std::string(), cycle_by_hand()).why()), "cannot be written"));
  CHECK(write_dot(stderr, tidemark::reading<object_picture>::absent("no reason")).why() == "no reason");
}

TEST_CASE("a stream gets the text after what it holds, and stays open; a full one is told") {
  temporary_directory folder;
  const std::string path = folder.file("stream.dot");
  std::FILE* stream = std::fopen(path.c_str(), "w");
  REQUIRE(stream != nullptr);
  std::fputs("// before\n", stream);
  CHECK(write_dot(stream, cycle_by_hand()).has_value());
  std::fputs("// after\n", stream);
  std::fclose(stream);
  CHECK(content(path) == "// before\n" + dot_text(cycle_by_hand()) + "// after\n");
  std::FILE* full = std::fopen("/dev/full", "w");
  REQUIRE(full != nullptr);
  CHECK(write_dot(full, cycle_by_hand()).why() == "the stream cannot be written: No space left on device");
  std::fclose(full);
}

TEST_CASE("in a label quotes, backslashes, entities, controls and what is no UTF-8 are written so that they show") {
  std::string out;
  tidemark::detail::append_dot(out, "a\"b\\N&lt;\n\x01\xFF\xC3\xA9\xE2\x82");
  CHECK(out == R"(a\"b\\N&amp;lt;\\x0A\\x01\\xFF)"
               "\xC3\xA9"
               R"(\\xE2\\x82)");
  out.clear();
  tidemark::detail::append_dot(out, std::string(1'000, 'x'));
  CHECK(out == std::string(400, 'x') + "...");
}
