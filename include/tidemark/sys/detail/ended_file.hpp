// SPDX-License-Identifier: MIT
// A file that grows and is complete at any time. Which system's: the contract is in ended_file_posix.hpp.
#pragma once

#include <tidemark/config/platform.hpp>

#if TIDEMARK_HAS_POSIX()
  #include <tidemark/sys/detail/ended_file_posix.hpp>
#else
  #include <tidemark/sys/detail/ended_file_stdio.hpp>
#endif
