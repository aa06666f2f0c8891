// SPDX-License-Identifier: MIT
// doctest's main, built once for all tests.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "test.hpp"
