// SPDX-License-Identifier: MIT
// One translation unit, compiled several times with different options and a different UNIT, linked into one program.
#include <tidemark/tidemark.hpp>

#include <memory>
#include <vector>

#include "unit.hpp"

unit_report UNIT() {
  unit_report r;
  r.ledger = &tidemark::detail::own_ledger;
  r.thread = &tidemark::detail::own_thread;
  r.scope_bytes = sizeof(tidemark::scope);
  r.slot_bytes = sizeof(tidemark::detail::slot);
  r.is_disabled = TIDEMARK_OPT_DISABLE;
  tidemark::scope s("unit");
  auto kept = std::make_unique<std::vector<char>>(1'000);
  tidemark::escape(kept.get());
  tidemark::escape(kept->data());
  const auto so_far = s.usage();
  r.growth_bytes = so_far ? so_far->net_bytes() : -1;
  r.measured = tidemark::measure([] { return 7; }).result;
  return r;
}
