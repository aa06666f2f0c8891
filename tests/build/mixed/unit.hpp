// SPDX-License-Identifier: MIT
// What each unit of the mixed program says of what it sees.
#pragma once

#include <cstddef>
#include <cstdint>

struct unit_report {
  const void* ledger = nullptr;
  const void* thread = nullptr;
  std::size_t scope_bytes = 0;
  std::size_t slot_bytes = 0;
  std::int64_t growth_bytes = 0;
  bool is_disabled = false;
  int measured = 0;
};
