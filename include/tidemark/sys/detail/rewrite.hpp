// SPDX-License-Identifier: MIT
// A small file that several processes read and rewrite as a whole. Which system's: the contract is in
// rewrite_posix.hpp.
#pragma once

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <tidemark/sys/detail/rewrite_posix.hpp>
#else
  #include <tidemark/sys/detail/rewrite_stdio.hpp>
#endif
