// SPDX-License-Identifier: MIT
// What a translation unit with TIDEMARK_OPT_DISABLE=1 does with the domains of one that has it off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>
#include <tidemark/core/domain.hpp>

namespace disabled_part {

using vector = std::vector<std::int64_t, tidemark::allocator<std::int64_t>>;

[[nodiscard]] vector make(const tidemark::domain& d, std::size_t count);
void grow(vector& v, std::size_t count);
void feed(tidemark::domain& d, std::int64_t bytes);
/// Whether it is refused there.
[[nodiscard]] bool is_refused(tidemark::domain& d, std::int64_t bytes);
[[nodiscard]] std::int64_t live(const tidemark::domain& d);
[[nodiscard]] tidemark::domain make_inside(tidemark::domain& parent, std::int64_t limit);
[[nodiscard]] bool lists(const tidemark::domain& d);
[[nodiscard]] tidemark::domain default_domain();
void listen(tidemark::domain& d, double fraction, int& calls);
void* allocate(std::pmr::memory_resource& r, std::size_t bytes);
[[nodiscard]] std::int64_t live_through_own_resource(const tidemark::domain& d, std::size_t bytes);
[[nodiscard]] bool is_switched_off();

}  // namespace disabled_part
