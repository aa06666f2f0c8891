// SPDX-License-Identifier: MIT
// The heap hook of program.cpp or of part.cpp.
#if defined(HOOK_MALLOC)
  #include <tidemark/hook/malloc.hpp>
#else
  #include <tidemark/hook/global_new.hpp>
#endif
