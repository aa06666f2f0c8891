// SPDX-License-Identifier: MIT
// Numbers from a command line. Anything that is not a positive number ends the program: a benchmark of nothing is worse
// than none.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace bench {

inline std::size_t number(int argc, char** argv, int index, std::size_t otherwise) {
  if (index >= argc) return otherwise;
  char* end = nullptr;
  const unsigned long value = std::strtoul(argv[index], &end, 10);
  if (end == argv[index] || *end != '\0') {
    std::fprintf(stderr, "%s: not a number: %s\n", argv[0], argv[index]);
    std::exit(2);
  }
  return value;
}

}  // namespace bench
