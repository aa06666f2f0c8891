// SPDX-License-Identifier: MIT
// What every test includes: doctest, in a form that also compiles without exceptions, and the sizes that tests write.
#pragma once

#include <tidemark/config/platform.hpp>

#if !TIDEMARK_HAS_EXCEPTIONS()
  #define DOCTEST_CONFIG_NO_EXCEPTIONS_BUT_WITH_ALL_ASSERTS
#endif
#define DOCTEST_CONFIG_SUPER_FAST_ASSERTS
#include <doctest/doctest.h>
