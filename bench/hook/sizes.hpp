// SPDX-License-Identifier: MIT
// The sizes that the programs cycle through: small, mixed, in no order that a branch predictor or an allocator likes.
#pragma once

#include <cstddef>

namespace bench {

inline constexpr std::size_t sizes[] = {48,  16,  312, 96, 24,  512, 64,  33,  128, 200, 17,  80,  416, 32,  256, 56,
                                        40,  144, 25,  72, 480, 100, 16,  384, 88,  24,  176, 64,  350, 48,  112, 32,
                                        500, 20,  160, 41, 288, 64,  30,  104, 448, 24,  224, 57,  96,  16,  136, 320,
                                        32,  72,  192, 48, 28,  256, 120, 39,  400, 16,  64,  240, 24,  152, 80,  368};
inline constexpr std::size_t size_count = sizeof sizes / sizeof sizes[0];
static_assert((size_count & (size_count - 1)) == 0, "an index is masked, not divided");

constexpr std::size_t size_at(std::size_t i) noexcept { return sizes[i & (size_count - 1)]; }

}  // namespace bench
