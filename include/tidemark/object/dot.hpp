// SPDX-License-Identifier: MIT
// Cycles and pictures for Graphviz: `dot -Tsvg cycles.dot -o cycles.svg`. Each object is a box with its type, id, bytes and
// origin, each std::shared_ptr an arrow with the name of the member; those of a cycle are red, those to make weak dashed.
//
//   tidemark::write_dot("cycles.dot", tidemark::find_cycles());
//   tidemark::write_dot("batch.dot", tidemark::backrefs_of(batch));
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/os_message.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/object/cycle.hpp>
#include <tidemark/sys/detail/rewrite.hpp>
#include <tidemark/sys/file.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// No XML file can hold these, which a picture may become. Source: XML 1.0, section 2.2.
[[nodiscard]] inline bool is_no_xml(std::string_view character) noexcept {
  return character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF";  // U+FFFE and U+FFFF
}

/// Adds a text to a label in double quotes. Graphviz reads backslashes and HTML entities in it, and wants UTF-8.
inline void append_dot(std::string& out, std::string_view text) {
  constexpr std::size_t longest = 400;
  constexpr std::string_view hex = "0123456789ABCDEF";
  for (std::size_t i = 0, n = 0; i < text.size(); i += n == 0 ? 1 : n) {
    if (i >= longest) {
      out += "...";
      return;
    }
    n = utf8_length(text.substr(i));
    if (is_no_xml(text.substr(i, n))) n = 0;
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '&') {
      out += "&amp;";
    } else if (n == 0 || os::is_control(c)) {
      const auto byte = static_cast<unsigned char>(c);
      out += R"(\\x)";
      out += hex[byte >> 4];
      out += hex[byte & 15U];
    } else {
      out += text.substr(i, n);
    }
  }
}

inline void append_dot_line(std::string& out, std::string_view text) {
  append_dot(out, text);
  out += R"(\l)";  // and the line is aligned left
}

inline void append_dot_node(std::string& out, const object_info& o, std::string_view style) {
  out += "  o" + std::to_string(o.id) + " [label=\"";
  append_dot_line(out, label_of(o));
  append_dot_line(out, format_bytes(o.bytes));
  if (!o.path.empty()) append_dot_line(out, o.path);
  if (o.where.line() != 0) {
    append_dot_line(out, std::string(o.where.file_name()) + ':' + std::to_string(o.where.line()));
  }
  out += '"';
  out += style;
  out += "];\n";
}

inline void append_dot_edge(std::string& out, const object_edge& e, std::string_view style) {
  out += "  o" + std::to_string(e.from) + " -> o" + std::to_string(e.to) + " [label=\"";
  append_dot(out, e.name);
  out += '"';
  out += style;
  out += "];\n";
}

inline constexpr std::string_view dot_head =
    "digraph tidemark {\n"
    "  charset=\"UTF-8\";\n"
    "  node [shape=box, fontname=\"Helvetica\", fontsize=11];\n"
    "  edge [fontname=\"Helvetica\", fontsize=10];\n";

[[nodiscard]] inline bool is_weak_of(const object_edge& e, const cycle& c) noexcept {
  for (const edge_member& w : c.weaken) {
    if (w.type == e.type && w.member == e.member) return true;
  }
  return false;
}

inline void append_dot_cycle(std::string& out, const cycle& c, std::size_t number) {
  out += "  subgraph cluster_" + std::to_string(number) + " {\n  label=\"";
  append_dot_line(out, "cycle " + std::to_string(number) + ": " + std::to_string(c.object_count) +
                           (c.object_count == 1 ? " object, " : " objects, ") + format_bytes(c.bytes) + ", keeps " +
                           format_bytes(c.retained_bytes));
  if (c.object_count > c.objects.size()) {
    append_dot_line(out, std::to_string(c.object_count - c.objects.size()) + " of the objects are not shown");
  }
  for (const edge_member& w : c.weaken) append_dot_line(out, "make weak: " + w.text());
  out += "\";\n";
  for (const object_info& o : c.objects) append_dot_node(out, o, R"(, style=filled, fillcolor="#ffe8e8")");
  out += "  }\n";
  for (const object_edge& e : c.edges) {
    append_dot_edge(out, e, is_weak_of(e, c) ? R"(, color="#cc0000", style=dashed)" : R"(, color="#cc0000")");
  }
}

/// Puts the text in the place of the file, whole or not at all. Follows a link.
[[nodiscard]] inline reading<std::int64_t> write_whole(const std::string& path, std::string_view text) {
  std::string target;
  int failed = os::behind_links(path, target);
  if (failed == 0) {
    const os::folder_lock alone(target);
    failed = alone.error() != 0 ? alone.error() : os::replace_whole(target, text);
  }
  if (failed == 0) return static_cast<std::int64_t>(text.size());
  const std::string why = failed == EINVAL ? "it is no plain file; pass a FILE* for what else can be written to"
                                           : append_file::describe(failed);
  return reading<std::int64_t>::absent("'" + path + "' cannot be written: " + why);
}

[[nodiscard]] inline reading<std::int64_t> write_whole(std::FILE* stream, std::string_view text) {
  append_file file(stream);
  const int failed = file.append(text);
  if (failed == 0) return static_cast<std::int64_t>(text.size());
  return reading<std::int64_t>::absent("the stream cannot be written: " + append_file::describe(failed));
}

}  // namespace detail

/// The picture in Graphviz's language. Throws: `std::bad_alloc`.
[[nodiscard]] inline std::string dot_text(const std::vector<cycle>& cycles) {
  std::string out(detail::dot_head);
  if (cycles.empty()) out += "  nothing [label=\"no cycle\", shape=plaintext];\n";
  std::size_t number = 0;
  for (const cycle& c : cycles) detail::append_dot_cycle(out, c, ++number);
  return out + "}\n";
}
[[nodiscard]] inline std::string dot_text(const cycle& c) { return dot_text(std::vector<cycle>{c}); }
[[nodiscard]] inline std::string dot_text(const object_picture& picture) {
  std::string out(detail::dot_head);
  bool is_held = false;
  for (const object_info& o : picture.objects) {
    detail::append_dot_node(out, o, o.id == picture.focus ? R"(, penwidth=3, style=filled, fillcolor="#e8f0ff")" : "");
    is_held = is_held || o.outside_references > 0;
  }
  for (const object_edge& e : picture.edges) detail::append_dot_edge(out, e, "");
  if (is_held) out += "  outside [shape=ellipse, style=dotted];\n";
  for (const object_info& o : picture.objects) {
    if (o.outside_references <= 0) continue;
    out += "  outside -> o" + std::to_string(o.id) + " [style=dotted, label=\"" + std::to_string(o.outside_references) +
           "\"];\n";
  }
  if (picture.is_cut) out += "  cut [label=\"there is more than is shown\", shape=plaintext];\n";
  return out + "}\n";
}

namespace detail {

template <class What, class Write>
[[nodiscard]] reading<std::int64_t> with_dot(const What& what, Write write) {
  return write(dot_text(what));
}
template <class What, class Write>
[[nodiscard]] reading<std::int64_t> with_dot(const reading<What>& what, Write write) {
  if (!what.has_value()) return reading<std::int64_t>::absent(what.why());
  return write(dot_text(*what));
}

}  // namespace detail

/// Writes `dot_text(what)` to a file, which then holds the old text or the new one but never a part, or to a stream, which
/// stays the caller's. `what` may be a reading. Returns the bytes written, or why nothing was. Throws: `std::bad_alloc`.
template <class What>
reading<std::int64_t> write_dot(const std::string& path, const What& what) {
  const quiet hidden;
  return detail::with_dot(what, [&](const std::string& text) { return detail::write_whole(path, text); });
}
template <class What>
reading<std::int64_t> write_dot(std::FILE* stream, const What& what) {
  const quiet hidden;
  return detail::with_dot(what, [&](const std::string& text) { return detail::write_whole(stream, text); });
}

}  // namespace v0
}  // namespace tidemark
