// SPDX-License-Identifier: MIT
// Scope records added up by path, and the tables made of the sums. No more of the standard library than strings and vectors:
// tools/preload has no other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/detail/os_clock.hpp>
#include <tidemark/core/detail/table.hpp>
#include <tidemark/core/detail/text.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/record.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
inline namespace TIDEMARK_TAG {

/// Threads: one at a time.
class summary_tree {
 public:
  /// Throws: `std::bad_alloc`, and then the record is not counted.
  void add(const scope_record& r) {
    node& n = nodes_[find_or_add(r.path)];
    add(n, r.meters);
    ++n.calls;
    n.left_by_exception += r.left_by_exception ? 1 : 0;
    n.time_ns += r.duration_ns;
    n.has_owned = r.owned_bytes.has_value();
    n.owned = r.owned_bytes.value_or(0);
  }

  /// How many paths there are, with those that they lie in.
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }

  /// Every path, indented under the one it lies in, with the scopes that are still open.
  [[nodiscard]] std::string table() {
    take_in(path_states());
    std::string out = title();
    std::vector<std::string> reasons;
    text_table rows({{"scope", false},
                     {"calls", true},
                     {"time", true},
                     {"meter", false},
                     {"peak growth", true},
                     {"net", true},
                     {"allocations", true},
                     {"still owned", true},
                     {"", false}});
    find_what_is_shown();
    std::size_t shown = 0;
    for_each_in_order([&](const node& n) {
      if (n.is_shown && ++shown <= most_rows) add_rows(rows, n, indented_name(n), still_owned(n), reasons);
    });
    if (!rows.is_empty()) rows.append_to(out);
    if (shown > most_rows) out += "... and " + grouped(std::uint64_t{shown - most_rows}) + " more paths\n";
    append_owners(out);
    append_domains(out);
    append_heap(out);
    append_reasons(out, reasons);
    append_terms(out, "still owned: bytes allocated\nin this scope or below it, ");
    return out;
  }

  /// The `count` paths that own most by themselves, without those below them.
  [[nodiscard]] std::string top(std::size_t count) {
    take_in(path_states());
    const std::vector<const node*> order = first_of(count);
    std::vector<std::string> reasons;
    text_table rows({{"scope", false},
                     {"calls", true},
                     {"time", true},
                     {"meter", false},
                     {"peak growth", true},
                     {"net", true},
                     {"allocations", true},
                     {"owned itself", true},
                     {"", false}});
    for (const node* n : order) add_rows(rows, *n, path_of(*n), n->is_known ? format_bytes(n->own_now) : "-", reasons);
    std::string out;
    rows.append_to(out);
    append_reasons(out, reasons);
    append_terms(out, "owned itself: bytes allocated\nin this scope and not below it, ");
    return out;
  }

  /// Whether a scope is open that began later than `ns`, on the steady clock.
  [[nodiscard]] static bool has_opened_since(std::int64_t ns) {
    for (const path_state& s : path_states()) {
      if (s.open > 0 && s.opened_ns > ns) return true;
    }
    return false;
  }

  void clear() {
    nodes_.clear();
    by_path_.clear();
    first_ = last_ = none;
  }

 private:
  using index = std::uint32_t;
  static constexpr index none = ~index{0};
  static constexpr std::size_t most_rows = 1'000;
  static constexpr std::size_t widest_name = 60;
  static constexpr std::size_t widest_path = 120;

  /// What one meter read in all calls of a path.
  struct meter_total {
    std::string_view meter;
    std::string_view unit;
    std::uint64_t readings = 0;
    std::int64_t peak_growth = 0;  // the highest
    std::int64_t net = 0;
    std::uint64_t allocations = 0;
    bool counts_events = false;
    std::int64_t error_bound = 0;  // the widest
    std::string why_absent;        // of a call without a reading
  };

  struct node {
    std::string path;
    std::size_t name_at = 0;  // where the last name begins
    std::size_t depth = 0;
    index first_child = none;
    index last_child = none;
    index next_sibling = none;
    index parent = none;

    std::uint64_t calls = 0;
    std::uint64_t left_by_exception = 0;
    std::int64_t time_ns = 0;
    bool has_owned = false;
    std::int64_t owned = 0;  // as the last record says
    std::vector<meter_total> meters;

    bool is_known = false;  // the path exists now, and the rest is of now
    std::int64_t own_now = 0;
    std::int64_t owned_now = 0;
    std::uint64_t open = 0;
    std::int64_t open_ns = 0;
    bool is_shown = false;
  };

  static void add(node& n, const std::vector<meter_reading>& readings) {
    bool is_known = true;
    for (const meter_reading& m : readings) {
      const meter_total* total = find(n.meters, m.meter);
      is_known = is_known && total != nullptr && (m.usage || !total->why_absent.empty());
    }
    if (is_known) {
      for (const meter_reading& m : readings) add(n.meters, m);
      return;
    }
    std::vector<meter_total> meters = n.meters;  // memory may run out on the way
    for (const meter_reading& m : readings) add(meters, m);
    n.meters.swap(meters);
  }

  [[nodiscard]] static const meter_total* find(const std::vector<meter_total>& meters, std::string_view name) noexcept {
    for (const meter_total& t : meters) {
      if (t.meter == name) return &t;
    }
    return nullptr;
  }

  static void add(std::vector<meter_total>& meters, const meter_reading& m) {
    auto* total = const_cast<meter_total*>(find(meters, m.meter));
    if (total == nullptr) {
      meters.emplace_back();
      total = &meters.back();
      total->meter = m.meter;
      total->unit = m.unit;
    }
    if (!m.usage) {
      if (total->why_absent.empty()) total->why_absent = m.usage.why();
      return;
    }
    const window_usage& u = *m.usage;
    const bool is_first = total->readings++ == 0;
    if (is_first || u.peak_growth() > total->peak_growth) total->peak_growth = u.peak_growth();
    total->net += u.net_bytes();
    total->counts_events = u.counts_events;
    if (u.counts_events) total->allocations += u.allocations;
    if (u.error_bound_bytes > total->error_bound) total->error_bound = u.error_bound_bytes;
  }

  /// The node of a path; one for each that it lies in is made with it.
  index find_or_add(std::string_view path) {
    index i = find(path);
    if (i != none) return i;
    // From the innermost that is known inwards. No recursion: a path may have any depth.
    std::size_t known = path.size();
    bool is_outermost = false;  // no part of it is known
    while (i == none && !is_outermost) {
      const std::size_t slash = known == 0 ? std::string_view::npos : path.rfind('/', known - 1);
      is_outermost = slash == std::string_view::npos;
      known = is_outermost ? 0 : slash;
      if (!is_outermost) i = find(path.substr(0, known));  // maybe the empty one: a scope without a name
    }
    while (known < path.size() || is_outermost) {
      const std::size_t slash = path.find('/', is_outermost ? 0 : known + 1);
      known = slash == std::string_view::npos ? path.size() : slash;
      i = add(i, path.substr(0, known));
      is_outermost = false;
    }
    return i;
  }

  [[nodiscard]] index find(std::string_view path) const {
    const std::size_t place = place_of(path);
    return place < by_path_.size() && nodes_[by_path_[place]].path == path ? by_path_[place] : none;
  }

  index add(index parent, std::string_view path) {
    const std::size_t slash = path.rfind('/');
    const auto fresh = static_cast<index>(nodes_.size());
    if (by_path_.size() == by_path_.capacity()) by_path_.reserve(2 * by_path_.size() + 16);
    node made;
    made.path = path;
    nodes_.push_back(std::move(made));  // nothing after it throws
    node& n = nodes_.back();
    n.name_at = slash == std::string_view::npos ? 0 : slash + 1;
    n.parent = parent;
    index& first = parent == none ? first_ : nodes_[parent].first_child;
    index& last = parent == none ? last_ : nodes_[parent].last_child;
    if (parent != none) n.depth = nodes_[parent].depth + 1;
    (last == none ? first : nodes_[last].next_sibling) = fresh;
    last = fresh;
    by_path_.insert(by_path_.begin() + static_cast<std::ptrdiff_t>(place_of(path)), fresh);
    return fresh;
  }

  [[nodiscard]] std::size_t place_of(std::string_view path) const {
    std::size_t begin = 0;
    std::size_t end = by_path_.size();
    while (begin < end) {
      const std::size_t middle = begin + (end - begin) / 2;
      if (std::string_view(nodes_[by_path_[middle]].path) < path) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  /// What the ledger says of the paths now. Those that nothing was recorded of come in where they matter.
  void take_in(const std::vector<path_state>& states) {
    const std::int64_t now_ns = os::steady_ns();
    for (node& n : nodes_) {
      n.is_known = false;
      n.open = 0;
    }
    for (const path_state& s : states) {
      const std::string path = path_text(s.path);
      index i = none;
      if (s.open > 0 || s.owned_bytes != 0) {
        i = find_or_add(path);
      } else {
        i = find(path);
        if (i == none) continue;
      }
      node& n = nodes_[i];
      n.is_known = ledger().hook != hook_kind::none;
      n.own_now = s.own_bytes;
      n.owned_now = s.owned_bytes;
      n.open = s.open;
      n.open_ns = now_ns - s.opened_ns;
    }
  }

  /// A path with something to tell, and those that it lies in, which come before it in the list.
  void find_what_is_shown() noexcept {
    for (node& n : nodes_) n.is_shown = has_something(n) || (n.is_known && n.owned_now != 0);
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      if (nodes_[i].is_shown && nodes_[i].parent != none) nodes_[nodes_[i].parent].is_shown = true;
    }
  }

  template <class F>
  void for_each_in_order(F f) const {
    for (index i = first_; i != none;) {
      const node& n = nodes_[i];
      f(n);
      if (n.first_child != none) {
        i = n.first_child;
        continue;
      }
      while (i != none && nodes_[i].next_sibling == none) i = nodes_[i].parent;
      if (i != none) i = nodes_[i].next_sibling;
    }
  }

  [[nodiscard]] static bool has_something(const node& n) noexcept {
    return n.calls > 0 || n.open > 0 || (n.is_known && n.own_now != 0);
  }
  [[nodiscard]] static bool comes_first(const node& a, const node& b) noexcept {
    const std::int64_t owned_a = a.is_known ? a.own_now : 0;
    const std::int64_t owned_b = b.is_known ? b.own_now : 0;
    if (owned_a != owned_b) return owned_a > owned_b;
    const std::int64_t growth_a = a.meters.empty() ? 0 : a.meters.front().peak_growth;
    const std::int64_t growth_b = b.meters.empty() ? 0 : b.meters.front().peak_growth;
    return growth_a != growth_b ? growth_a > growth_b : a.path < b.path;
  }

  [[nodiscard]] static std::string indented_name(const node& n) {
    std::string name;
    append_printable(name, unescaped(std::string_view(n.path).substr(n.name_at)));
    if (name.empty()) name = "\"\"";
    constexpr std::size_t deepest = 20;
    return std::string(2 * (n.depth < deepest ? n.depth : deepest), ' ') + fitted(std::move(name), widest_name);
  }

  /// A name as it was given: a path has '/' inside a name as %2F, and '%' as %25.
  [[nodiscard]] static std::string unescaped(std::string_view name) {
    std::string text;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const std::string_view code = name.substr(i, 3);
      if (code == "%2F" || code == "%25") {
        text += code == "%2F" ? '/' : '%';
        i += 2;
      } else {
        text += name[i];
      }
    }
    return text;
  }

  [[nodiscard]] static std::string still_owned(const node& n) {
    if (n.is_known) return format_bytes(n.owned_now);
    return n.has_owned ? format_bytes(n.owned) : "-";
  }

  /// A row for the path, and one for each meter after its first.
  static void add_rows(text_table& rows, const node& n, std::string name, std::string owned,
                       std::vector<std::string>& reasons) {
    std::string time = "-";
    if (n.calls > 0) {
      time.clear();
      append_duration(time, n.time_ns);
    }
    text_table::row cells{std::move(name), n.calls > 0 || n.open > 0 ? grouped(n.calls) : "-", std::move(time)};
    if (n.meters.empty()) {
      cells.insert(cells.end(), {"", "-", "-", "-", std::move(owned), notes(n, nullptr, reasons)});
      return rows.add(std::move(cells));
    }
    bool is_first = true;
    for (const meter_total& m : n.meters) {
      if (!is_first) cells.assign(3, "");
      std::string meter;
      append_printable(meter, m.meter);
      cells.push_back(fitted(std::move(meter), widest_name));
      if (m.readings == 0) {
        cells.insert(cells.end(), {"absent [" + std::to_string(number_of(m.why_absent, reasons)) + "]", "-"});
      } else {
        std::string growth;
        append_change(growth, m.peak_growth, m.unit);
        std::string net;
        append_change(net, m.net, m.unit);
        cells.insert(cells.end(), {std::move(growth), std::move(net)});
      }
      cells.push_back(m.readings > 0 && m.counts_events ? grouped(m.allocations) : "-");
      cells.push_back(is_first ? std::move(owned) : "");
      cells.push_back(notes(n, &m, reasons, is_first));
      rows.add(std::exchange(cells, {}));
      is_first = false;
    }
  }

  [[nodiscard]] static std::string notes(const node& n, const meter_total* m, std::vector<std::string>& reasons,
                                         bool is_first = true) {
    std::string text;
    const auto note = [&text](const std::string& words) {
      if (!text.empty()) text += ", ";
      text += words;
    };
    if (is_first && n.open > 0) {
      std::string words = grouped(n.open) + " still open, for ";
      append_duration(words, n.open_ns);
      note(words);
    }
    if (is_first && n.left_by_exception > 0) note(grouped(n.left_by_exception) + " left by an exception");
    if (m == nullptr) return text;
    if (m->error_bound > 0) {
      std::string words = "each within ";
      append_amount(words, m->error_bound, m->unit);
      note(words);
    }
    if (m->readings > 0 && !m->why_absent.empty()) {
      note("some calls absent [" + std::to_string(number_of(m->why_absent, reasons)) + ']');
    }
    return text;
  }

  /// Footnotes are numbered from 1, in the order of their first use.
  static std::size_t number_of(const std::string& reason, std::vector<std::string>& reasons) {
    for (std::size_t i = 0; i < reasons.size(); ++i) {
      if (reasons[i] == reason) return i + 1;
    }
    reasons.push_back(reason);
    return reasons.size();
  }
  static void append_reasons(std::string& out, const std::vector<std::string>& reasons) {
    for (std::size_t i = 0; i < reasons.size(); ++i) {
      out += '[' + std::to_string(i + 1) + "] ";
      append_printable(out, reasons[i]);
      out += '\n';
    }
  }

  [[nodiscard]] std::string title() const {
    std::uint64_t calls = 0;
    std::uint64_t open = 0;
    for (const node& n : nodes_) {
      calls += n.calls;
      open += n.open;
    }
    std::string text = "tidemark summary: ";
    text += calls == 1 ? "1 scope" : grouped(calls) + " scopes";
    text += " ended";
    if (open > 0) text += ", " + grouped(open) + " still open";
    return text += '\n';
  }

  /// Those alive, and those that were fed and are gone.
  static void append_domains(std::string& out) {
    text_table rows(
        {{"domain", false}, {"live", true}, {"peak", true}, {"limit", true}, {"allocations", true}, {"", false}});
    std::vector<domain_node*> fed;  // newest first
    domain_registry* all = find_registry<domain_registry>();
    for (domain_node* d = all == nullptr ? nullptr : all->newest(); d != nullptr; d = d->older) {
      const bool is_used = d->current().allocations > 0;
      if (is_used || (d->is_alive() && d != all->default_node())) fed.push_back(d);
    }
    std::size_t shown = 0;
    for (std::size_t i = fed.size(); i-- > 0 && shown < most_rows; ++shown) add_domain(rows, *fed[i]);
    if (rows.is_empty()) return;
    out += '\n';
    rows.append_to(out);
    if (shown < fed.size()) out += "... and " + grouped(std::uint64_t{fed.size() - shown}) + " more domains\n";
  }

  static void add_domain(text_table& rows, domain_node& d) {
    const usage u = d.current();
    std::string name;
    append_printable(name, d.name);
    std::string note = d.is_external ? "not in the heap" : "";
    if (d.parent() != nullptr) {
      note += note.empty() ? "part of " : ", part of ";
      append_printable(note, d.parent()->name);
    }
    rows.add({fitted(std::move(name), widest_name), format_bytes(u.live_bytes), format_bytes(u.peak_bytes),
              d.limit() < 0 ? "-" : format_bytes(d.limit()), grouped(u.allocations), std::move(note)});
  }

  /// The `count` paths that own most by themselves.
  [[nodiscard]] std::vector<const node*> first_of(std::size_t count) const {
    std::vector<const node*> order;
    for (const node& n : nodes_) {
      if (has_something(n)) order.push_back(&n);
    }
    if (count > order.size()) count = order.size();
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                      [](const node* a, const node* b) { return comes_first(*a, *b); });
    order.resize(count);
    return order;
  }

  [[nodiscard]] static std::string path_of(const node& n) {
    std::string path;
    append_printable(path, n.path);
    return fitted(std::move(path), widest_path);
  }

  /// Where to look first: whichever thread's path it is, and however deep.
  void append_owners(std::string& out) const {
    std::string owners;
    for (const node* n : first_of(3)) {
      if (!n->is_known || n->own_now <= 0) continue;
      owners +=
          (owners.empty() ? "\nowns most by itself: " : ", ") + path_of(*n) + " (" + format_bytes(n->own_now) + ')';
    }
    if (!owners.empty()) out += owners + '\n';
  }

  static void append_terms(std::string& out, std::string_view owned) {
    out +=
        "\ncalls: scopes that ended. time: their durations together. peak growth: the most that one call rose above "
        "its\n"
        "entry. net: exit minus entry, and allocations: how many, each of all calls together. each within: how far "
        "off\n"
        "figures may be, where several threads ran or the kernel counts pages. -: not known. ";
    out += owned;
    out += "by any call and thread, that nobody has freed yet.\n";
  }

  static void append_heap(std::string& out) {
    const reading<usage> heap = process_usage();
    if (!heap) return;
    out += "\nheap: " + format_bytes(heap->live_bytes) + " live in " + grouped(heap->live_blocks) +
           (heap->live_blocks == 1 ? " block" : " blocks") + ", peak " + format_bytes(heap->peak_bytes);
    if (heap->error_bound_bytes > 0) out += " (each within " + format_bytes(heap->error_bound_bytes) + ')';
    if (const path_tree* tree = find_registry<path_tree>()) {
      out += "; allocated outside every scope and still live: " + format_bytes(own_bytes(tree->root()));
    }
    out += '\n';
  }

  std::vector<node> nodes_;
  std::vector<index> by_path_;  // sorted
  index first_ = none;
  index last_ = none;
};

}  // namespace TIDEMARK_TAG
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
