// SPDX-License-Identifier: MIT
// Without a heap hook nothing sees the copy, and no figure is made up.
#include <tidemark/object/footprint.hpp>

#include <string>
#include <vector>

#include "test.hpp"

namespace {
struct witness {
  static inline int copies = 0;
  witness() = default;
  witness(const witness&) { ++copies; }
};
}  // namespace

TEST_CASE("without a hook the footprint is absent with the hook's reason, and nothing is copied") {
  const auto r = tidemark::footprint_of(std::vector<float>(1'000));
  CHECK_FALSE(r.has_value());
  CHECK(r.why() == tidemark::hook_reason());
  CHECK(r.why().find("no heap hook") != std::string_view::npos);
  CHECK_FALSE(tidemark::footprint_of(witness()).has_value());
  CHECK(witness::copies == 0);
}
