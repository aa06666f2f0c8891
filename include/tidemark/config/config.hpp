// SPDX-License-Identifier: MIT
// Every compile-time option: its default and its meaning. The only header that reads what a user defines.
//
// No option changes the layout of a type. A function or class whose body depends on an option lives in an inline
// namespace tagged with that option, so that translation units with different options link into one program.
#pragma once

/// 1: scopes, meters, hooks, sinks and macros do nothing; queries are absent with "disabled".
/// What is program logic (limits, caches, allocators) keeps working. May differ from one translation unit to the next.
#ifndef TIDEMARK_OPT_DISABLE
  #define TIDEMARK_OPT_DISABLE 0
#endif

/// How many bytes a thread may hold back before it settles them into the process account. 0: every event settles, which
/// makes process windows exact and takes a lock per event. Units: bytes. Read only where a hook header is included.
#ifndef TIDEMARK_OPT_SETTLE_BYTES
  #define TIDEMARK_OPT_SETTLE_BYTES 65536
#endif

/// 1: always ask the allocator for the size of a block, even where glibc's own bookkeeping word could be read.
/// Read only where a hook header is included.
#ifndef TIDEMARK_OPT_ASK_SIZES
  #define TIDEMARK_OPT_ASK_SIZES 0
#endif

/// 0: hook/global_new replaces the operators in a sanitizer build too, as in any other, rather than listen to the
/// sanitizer. For running what ships under a sanitizer; clang's ThreadSanitizer and MemorySanitizer do not link then.
/// Read only where a hook header is included.
#ifndef TIDEMARK_OPT_SANITIZER_HOOKS
  #define TIDEMARK_OPT_SANITIZER_HOOKS 1
#endif
