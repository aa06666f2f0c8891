// SPDX-License-Identifier: MIT
// The translation unit that switches the library off: what is program logic works there as anywhere.
#undef TIDEMARK_OPT_DISABLE
#define TIDEMARK_OPT_DISABLE 1
#include "disabled_part.hpp"

#include <algorithm>
#include <utility>

using tidemark::domain;

disabled_part::vector disabled_part::make(const domain& d, std::size_t count) { return vector(count, 1, d); }

void disabled_part::grow(vector& v, std::size_t count) { v.reserve(count); }

void disabled_part::feed(domain& d, std::int64_t bytes) { d.allocated(bytes); }

bool disabled_part::is_refused(domain& d, std::int64_t bytes) {
#if TIDEMARK_HAS_EXCEPTIONS()
  try {
    d.allocated(bytes);
    return false;
  } catch (const tidemark::over_budget&) {
  }
#endif
  return !d.try_allocated(bytes);
}

std::int64_t disabled_part::live(const domain& d) { return d.current().live_bytes; }

domain disabled_part::make_inside(domain& parent, std::int64_t limit) {
  tidemark::domain_options options;
  options.limit_bytes = limit;
  options.parent = &parent;
  return domain("made in the disabled part", options);
}

bool disabled_part::lists(const domain& d) {
  const auto all = tidemark::domains();
  return std::find(all.begin(), all.end(), d) != all.end();
}

domain disabled_part::default_domain() { return tidemark::default_domain(); }

void disabled_part::listen(domain& d, double fraction, int& calls) {
  d.on_near_limit(fraction, [&calls](const tidemark::near_limit&) { ++calls; });
}

void* disabled_part::allocate(std::pmr::memory_resource& r, std::size_t bytes) { return r.allocate(bytes, 8); }

std::int64_t disabled_part::live_through_own_resource(const domain& d, std::size_t bytes) {
  tidemark::resource r(d);
  void* p = r.allocate(bytes, 8);
  const std::int64_t live = d.current().live_bytes;
  r.deallocate(p, bytes, 8);
  return live;
}

bool disabled_part::is_switched_off() { return tidemark::hook_reason() == "disabled"; }
