// SPDX-License-Identifier: MIT
// Replaces the C allocation family and the 20 operators of the program with counted ones, each over the allocator that
// comes next in link order: the C library's, or jemalloc, tcmalloc, mimalloc.
// Include it in exactly one .cpp file of an executable, or of a library that is preloaded; build and run it with glibc.
// A second inclusion, or another hook header, does not link. Static executables: <tidemark/hook/global_new.hpp>.
//
// Sees: every block of malloc calloc realloc reallocarray aligned_alloc posix_memalign memalign valloc pvalloc and new, in
// all libraries. Does not see: mmap, and what an allocator offers under names of its own (mallocx, mi_malloc).
// Cost: about 75 instructions per malloc and free together, and 16 bytes per block; bench/README.md has the table.
// Under AddressSanitizer, ThreadSanitizer and MemorySanitizer it listens to the sanitizer instead.
// docs/semantics.md says what is counted, docs/hooks.md which hook is for which program.
#pragma once

#ifdef TIDEMARK_HOOK_INCLUDED
  #error "this file includes two of tidemark's hook headers: one file of a program includes one of them"
#endif
#define TIDEMARK_HOOK_INCLUDED 1

#include <cstdlib>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/detail/start.hpp>

#if TIDEMARK_OPT_DISABLE
  #include <tidemark/hook/detail/disabled.hpp>
#elif TIDEMARK_HAS_SANITIZER_ALLOCATOR()  // whose runtime asks for memory before a replaced malloc could be ready
  #include <tidemark/hook/detail/sanitizer.hpp>
#else

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <cstring>

  #include <dlfcn.h>
  #include <malloc.h>
  #include <unistd.h>
  #if defined(__clang__) && __has_include(<mm_malloc.h>)
    #include <mm_malloc.h>  // its posix_memalign is not noexcept: clang takes that before a definition, and not after
  #endif

  #include <tidemark/core/detail/gate_keeper.hpp>
  #include <tidemark/core/detail/os_message.hpp>
  #include <tidemark/hook/detail/block.hpp>
  #include <tidemark/hook/detail/bootstrap.hpp>
  #include <tidemark/hook/detail/operators.hpp>
  #include <tidemark/hook/detail/paths.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

TIDEMARK_CONSTINIT common_paths common(paths<false, true>);

/// Ends the program: a hook without an allocator below it has nothing to give.
[[noreturn]] TIDEMARK_COLD inline void die_without(const char* name) noexcept {
  os::say(
      "hook/malloc found no other ", name,
      " after itself. It must be in a dynamically linked executable, or in a preloaded library; a static executable "
      "takes <tidemark/hook/global_new.hpp>");
  std::abort();
}

template <class Function>
void find_next(Function*& function, const char* name) noexcept {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) die_without(name);
  std::memcpy(&function, &found, sizeof found);
}

bool find_allocator() noexcept {
  static spin_lock lock;
  static bool is_looking = false;
  const spin_guard held(lock);
  if (is_looking) return false;  // dlsym allocates: this thread, since the lock is held
  if (below.malloc != nullptr) return true;
  is_looking = true;
  allocator_below found{};
  find_next(found.malloc, "malloc");
  find_next(found.free, "free");
  find_next(found.posix_memalign, "posix_memalign");
  find_next(found.malloc_usable_size, "malloc_usable_size");
  find_next(found.calloc, "calloc");
  find_next(found.realloc, "realloc");
  publish(found);
  is_looking = false;
  return true;
}

/// Whether malloc comes to this hook: a program may define its own, which comes before a preloaded one.
[[nodiscard]] inline bool is_malloc_reached() noexcept {
  was_reached = false;
  void* probe = std::malloc(1);
  asm volatile("" : "+r"(probe) : : "memory");
  std::free(probe);
  return was_reached;
}

/// Whether one object holds all that is called below: the size of one allocator's block is nothing to ask another for.
[[nodiscard]] inline bool is_one_allocator() noexcept {
  const auto base = [](auto* function) {
    Dl_info holder{};
    return dladdr(reinterpret_cast<void*>(function), &holder) == 0 ? nullptr : holder.dli_fbase;
  };
  const void* const of_malloc = base(below.malloc);
  return of_malloc == base(below.free) && of_malloc == base(below.posix_memalign) &&
         of_malloc == base(below.malloc_usable_size) && of_malloc == base(below.calloc) &&
         of_malloc == base(below.realloc);
}

inline hook_start pass_all(const char* reason) noexcept {
  passes_all = true;
  common.choose(passing_paths<true>);
  return {hook_kind::none, reason, false};
}

inline hook_start start() noexcept {
  static_cast<void>(has_allocator());
  if (!is_malloc_reached()) {
    // The operators must go where the program's own malloc is.
    publish({&::malloc, &::free, &::posix_memalign, &::malloc_usable_size, &::calloc, &::realloc});
    return pass_all(
        "the heap hook is linked, but malloc does not reach it: the program has one of its own, or a tool "
        "intercepts it (for valgrind memcheck add --soname-synonyms=somalloc=nouserintercepts)");
  }
  if (!is_one_allocator()) {
    return pass_all(
        "the allocator below the hook is in parts: its malloc, free, realloc, posix_memalign and "
        "malloc_usable_size are not in one library, so that the sizes of its blocks cannot be asked for");
  }
  const bool ask_sizes = choose_paths<true>();
  return started(hook_kind::malloc_family, "", ask_sizes);
}

// ---- the family, but for malloc and free, whose paths are the common ones ----

/// Books a block fresh from the allocator below, which is null where it failed.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE void* book_fresh(void* p, std::size_t n) noexcept {
  asm("" : "+r"(p));
  if (TIDEMARK_UNLIKELY(p == nullptr || passes())) return p;
  if (TIDEMARK_LIKELY(own_thread.word >= 0)) {
    book_birth(*slot_of(own_thread.word), p, usable_bytes(p), n);
  } else {
    book_birth_slowly(p, n);
  }
  return p;
}

inline void* fail_with(int error) noexcept {
  errno = error;
  return nullptr;
}

TIDEMARK_ALWAYS_INLINE void* zeroed(std::size_t count, std::size_t size) noexcept {
  std::size_t n = 0;
  if (__builtin_mul_overflow(count, size, &n)) n = SIZE_MAX;
  if (n > largest_block) return fail_with_enomem(n);
  if (TIDEMARK_UNLIKELY(!has_allocator())) return bootstrap.allocate(n);
  const gate_passage gate({n, 0, nullptr, allocation_caller::c_family});
  if (TIDEMARK_UNLIKELY(!gate.is_open())) return fail_with(ENOMEM);
  void* p = book_fresh(below.calloc(1, n + stamp_bytes), n);
  return TIDEMARK_LIKELY(p != nullptr) ? p : fail_with_enomem(n);
}

/// A block from before the allocator was found moves into the heap.
TIDEMARK_COLD inline void* move_from_bootstrap(void* old, std::size_t n) noexcept {
  if (n == 0) return nullptr;
  void* p = common.try_allocate(n);
  if (p == nullptr) return nullptr;
  const std::size_t had = bootstrap.size_of(old);
  std::memcpy(p, old, had < n ? had : n);
  return p;
}

// One deallocation and one allocation. The stamp is wiped before the call, since the old block may be someone else's a
// moment later, and put back if the call fails; both are booked after it, so that a failure leaves no trace.
inline void* resized(void* old, std::size_t n) noexcept {
  if (old == nullptr) return common.try_allocate(n);
  if (n > largest_block) return fail_with_enomem(n);
  if (TIDEMARK_UNLIKELY(bootstrap.has(old))) return move_from_bootstrap(old, n);
  static_cast<void>(has_allocator());
  static_cast<void>(current_slot());  // decides how sizes are found, and whether
  if (TIDEMARK_UNLIKELY(passes())) return below.realloc(old, n);

  const std::size_t usable = usable_bytes(old);
  stamp was{};
  const bool is_ours = find_stamp(was, old, usable);
  const bool is_counted = is_ours && was.owner != quiet_owner;
  const gate_passage gate =
      n == 0 ? gate_passage() : gate_passage({n, is_counted ? was.size : 0, nullptr, allocation_caller::c_family});
  if (TIDEMARK_UNLIKELY(!gate.is_open())) return fail_with(ENOMEM);
  const stamp_word kept = is_ours ? wipe_stamp(old, usable) : stamp_word{};
  // Whether realloc(p, 0) frees is for the allocator below to say; if it does, null is no failure.
  void* p = below.realloc(old, n == 0 ? 0 : n + stamp_bytes);
  if (n == 0 && p != nullptr) {
    void* with_room = below.realloc(p, stamp_bytes);
    if (with_room == nullptr) real_free(p);
    p = with_room;
  }
  if (p == nullptr && n != 0) {
    if (is_ours) restore_stamp(old, usable, kept);
    return fail_with_enomem(n);
  }
  on_slot_for_event([=](slot& s) { is_ours ? count_death(s, was) : s.foreign_frees.add(1); });
  return p == nullptr ? nullptr : book_fresh(p, n);
}

inline std::size_t page_bytes() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

inline constexpr bool is_power_of_two(std::size_t n) noexcept { return n != 0 && (n & (n - 1)) == 0; }

/// What the program may write to: the stamp is not its own.
inline std::size_t usable_size(void* p) noexcept {
  if (p == nullptr) return 0;
  if (bootstrap.has(p)) return bootstrap.size_of(p);
  static_cast<void>(has_allocator());
  static_cast<void>(current_slot());
  if (passes()) return real_usable(p);
  const std::size_t usable = usable_bytes(p);
  stamp is;
  return find_stamp(is, p, usable) ? usable - stamp_bytes : usable;
}

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

extern "C" TIDEMARK_EXPORT const tidemark::detail::hook_descriptor tidemark_hook = {
    &tidemark::detail::own_ledger, TIDEMARK_OPT_SETTLE_BYTES, tidemark::detail::hook::start,
    tidemark::detail::hook::first_size_query, tidemark::detail::hook::guard_all<true>};

  // The C library's own declarations say `noexcept` or not.
  #if defined(__THROW)
    #define TIDEMARK_DETAIL_C_THROW __THROW
  #else
    #define TIDEMARK_DETAIL_C_THROW
  #endif
  #define TIDEMARK_DETAIL_C_FUNCTION extern "C" TIDEMARK_EXPORT TIDEMARK_NOINLINE

TIDEMARK_DETAIL_C_FUNCTION void* malloc(std::size_t n) TIDEMARK_DETAIL_C_THROW {
  return tidemark::detail::hook::common.try_allocate(n);
}
TIDEMARK_DETAIL_C_FUNCTION void free(void* p) TIDEMARK_DETAIL_C_THROW { tidemark::detail::hook::common.release(p); }

TIDEMARK_DETAIL_C_FUNCTION void* calloc(std::size_t count, std::size_t size) TIDEMARK_DETAIL_C_THROW {
  return tidemark::detail::hook::zeroed(count, size);
}
TIDEMARK_DETAIL_C_FUNCTION void* realloc(void* p, std::size_t n) TIDEMARK_DETAIL_C_THROW {
  return tidemark::detail::hook::resized(p, n);
}
TIDEMARK_DETAIL_C_FUNCTION void* reallocarray(void* p, std::size_t count, std::size_t size) TIDEMARK_DETAIL_C_THROW {
  std::size_t n = 0;
  if (__builtin_mul_overflow(count, size, &n)) return tidemark::detail::hook::fail_with_enomem(SIZE_MAX);
  return ::realloc(p, n);  // the program's, should it have one: glibc's own reallocarray goes there too
}

TIDEMARK_DETAIL_C_FUNCTION int posix_memalign(void** out, std::size_t alignment,
                                              std::size_t n) TIDEMARK_DETAIL_C_THROW {
  if (!tidemark::detail::hook::is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;
  void* p = tidemark::detail::hook::allocate_or_enomem(n, alignment);
  errno = saved;
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
TIDEMARK_DETAIL_C_FUNCTION void* aligned_alloc(std::size_t alignment, std::size_t n) TIDEMARK_DETAIL_C_THROW {
  if (!tidemark::detail::hook::is_power_of_two(alignment)) return tidemark::detail::hook::fail_with(EINVAL);
  return tidemark::detail::hook::allocate_or_enomem(n, alignment);
}
// As glibc: an alignment that is no power of two is rounded up to the next.
TIDEMARK_DETAIL_C_FUNCTION void* memalign(std::size_t alignment, std::size_t n) TIDEMARK_DETAIL_C_THROW {
  if (alignment > SIZE_MAX / 2 + 1) return tidemark::detail::hook::fail_with(EINVAL);
  std::size_t power = sizeof(void*);
  while (power < alignment) power *= 2;
  return tidemark::detail::hook::allocate_or_enomem(n, power);
}
TIDEMARK_DETAIL_C_FUNCTION void* valloc(std::size_t n) TIDEMARK_DETAIL_C_THROW {
  return tidemark::detail::hook::allocate_or_enomem(n, tidemark::detail::hook::page_bytes());
}
TIDEMARK_DETAIL_C_FUNCTION void* pvalloc(std::size_t n) TIDEMARK_DETAIL_C_THROW {
  const std::size_t page = tidemark::detail::hook::page_bytes();
  std::size_t rounded = 0;
  if (__builtin_add_overflow(n, page - 1, &rounded)) return tidemark::detail::hook::fail_with_enomem(SIZE_MAX);
  return tidemark::detail::hook::allocate_or_enomem(rounded & ~(page - 1), page);
}

TIDEMARK_DETAIL_C_FUNCTION std::size_t malloc_usable_size(void* p) TIDEMARK_DETAIL_C_THROW {
  return tidemark::detail::hook::usable_size(p);
}

// C23. The block below is larger than the program says, so its size is not passed on.
extern "C" TIDEMARK_EXPORT void free_sized(void* p, std::size_t n) TIDEMARK_DETAIL_C_THROW;
TIDEMARK_DETAIL_C_FUNCTION void free_sized(void* p, std::size_t) TIDEMARK_DETAIL_C_THROW {
  tidemark::detail::hook::common.release(p);
}
extern "C" TIDEMARK_EXPORT void free_aligned_sized(void* p, std::size_t alignment,
                                                   std::size_t n) TIDEMARK_DETAIL_C_THROW;
TIDEMARK_DETAIL_C_FUNCTION void free_aligned_sized(void* p, std::size_t, std::size_t) TIDEMARK_DETAIL_C_THROW {
  tidemark::detail::hook::common.release(p);
}

  #undef TIDEMARK_DETAIL_C_FUNCTION
  #undef TIDEMARK_DETAIL_C_THROW

#endif
