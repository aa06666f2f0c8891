// SPDX-License-Identifier: MIT
// The contract of sys/allocator, on Linux:
//   ask_allocator(found)   which allocator serves malloc, and a value or a reason for each of its figures
//   give_back()            it gives the system what it can; null, or why not
// No library is linked for it: what an allocator offers is looked up by name. Which of those present runs is told by
// a block that malloc gives, whoever stands in front of it. Reasons live for ever. errno is untouched.
// Source: mallinfo(3), malloc_trim(3), jemalloc(3), gperftools/malloc_extension_c.h, mimalloc.h,
// sanitizer/allocator_interface.h.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/sys/detail/allocator_figures.hpp>

#if TIDEMARK_HAS_LINUX()

  #include <cerrno>
  #include <cstddef>
  #include <cstdint>
  #include <cstdlib>
  #include <cstring>
  #include <initializer_list>

  #include <dlfcn.h>
  #include <malloc.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

// Weak, for what is linked statically and has no name to be looked up. Before glibc 2.34 dlsym itself is in libdl.
static void* weak_dlsym(void*, const char*) __attribute__((weakref("dlsym")));
static int weak_object_of(const void*, Dl_info*) __attribute__((weakref("dladdr")));
static char* weak_dlerror() __attribute__((weakref("dlerror")));
static int weak_mallctl(const char*, void*, std::size_t*, void*, std::size_t) __attribute__((weakref("mallctl")));
static int weak_tcmalloc_number(const char*, std::size_t*)
    __attribute__((weakref("MallocExtension_GetNumericProperty")));
static int weak_tcmalloc_owner(const void*) __attribute__((weakref("MallocExtension_GetOwnership")));
static void weak_tcmalloc_release() __attribute__((weakref("MallocExtension_ReleaseFreeMemory")));
static bool weak_mimalloc_owns(const void*) __attribute__((weakref("mi_is_in_heap_region")));
static void weak_mimalloc_collect(bool) __attribute__((weakref("mi_collect")));
static std::size_t weak_sanitizer_bytes() __attribute__((weakref("__sanitizer_get_current_allocated_bytes")));
static void weak_sanitizer_purge() __attribute__((weakref("__sanitizer_purge_allocator")));

/// Null where this process has no function of that name.
[[nodiscard]] inline void* find_symbol(const char* name) noexcept {
  void* const found = weak_dlsym == nullptr ? nullptr : weak_dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && weak_dlerror != nullptr) weak_dlerror();  // frees the text of the failure
  return found;
}

/// The same, or the one that is linked in without a name.
template <class Function>
[[nodiscard]] Function* find_function(const char* name, Function* linked) noexcept {
  void* const found = find_symbol(name);
  if (found == nullptr) return linked;
  Function* function = nullptr;
  std::memcpy(&function, &found, sizeof function);
  return function;
}

/// A block of malloc's, whoever that is.
class probe_block {
 public:
  explicit probe_block(std::size_t bytes) noexcept : block_(std::malloc(bytes)) {
    asm volatile("" : "+r"(block_) : : "memory");  // or the compiler would leave both calls out
  }
  ~probe_block() { std::free(block_); }
  probe_block(const probe_block&) = delete;
  probe_block& operator=(const probe_block&) = delete;

  [[nodiscard]] const void* address() const noexcept { return block_; }

 private:
  void* block_;
};

// Each allocator has one shape: its kind, runs(), tell(found) and give_back().

struct sanitizer_allocator {
  static constexpr allocator_kind kind = allocator_kind::sanitizer;

  [[nodiscard]] bool runs() const noexcept {
    return find_function("__sanitizer_get_current_allocated_bytes", weak_sanitizer_bytes) != nullptr;
  }
  void tell(allocator_figures& found) const noexcept {
    found.why_no_in_use = found.why_no_retained =
        "a sanitizer's allocator counts its red zones, and freed blocks that it holds back, with those in use";
  }
  [[nodiscard]] const char* give_back() const noexcept {
    auto* const purge = find_function("__sanitizer_purge_allocator", weak_sanitizer_purge);
    if (purge == nullptr) return "this sanitizer's allocator gives nothing back on demand";
    purge();
    return nullptr;
  }
};

struct jemalloc_allocator {
  static constexpr allocator_kind kind = allocator_kind::jemalloc;

  /// Whether malloc adds to what jemalloc says that this thread has allocated.
  [[nodiscard]] bool runs() const noexcept {
    constexpr std::size_t size = 1'000;
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    if (control == nullptr || !read("thread.allocated", before)) return false;
    const probe_block block(size);
    return read("thread.allocated", after) && after - before >= size;
  }
  void tell(allocator_figures& found) const noexcept {
    std::uint64_t epoch = 1;  // writing it makes the figures those of now
    std::size_t in_use = 0;
    std::size_t resident = 0;
    control("epoch", nullptr, nullptr, &epoch, sizeof epoch);
    if (!read("stats.allocated", in_use) || !read("stats.resident", resident)) {
      found.why_no_in_use = found.why_no_retained = "this jemalloc is built without statistics";
      return;
    }
    found.in_use = static_cast<std::int64_t>(in_use);
    found.retained = static_cast<std::int64_t>(resident - (in_use < resident ? in_use : resident));
  }
  [[nodiscard]] const char* give_back() const noexcept {
    control("thread.tcache.flush", nullptr, nullptr, nullptr, 0);  // not an error where it is switched off
    const int failed = control("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096 stands for all arenas
    return failed == 0 ? nullptr : "jemalloc refuses to purge its arenas: it is older than 5.0";
  }

 private:
  template <class Number>
  [[nodiscard]] bool read(const char* name, Number& number) const noexcept {
    std::size_t size = sizeof number;
    return control(name, &number, &size, nullptr, 0) == 0 && size == sizeof number;
  }

  decltype(&weak_mallctl) control = find_function("mallctl", weak_mallctl);
};

struct tcmalloc_allocator {
  static constexpr allocator_kind kind = allocator_kind::tcmalloc;

  [[nodiscard]] bool runs() const noexcept {
    auto* const owner_of = find_function("MallocExtension_GetOwnership", weak_tcmalloc_owner);
    constexpr int owned = 1;
    return owner_of != nullptr && owner_of(probe_block(64).address()) == owned;
  }
  void tell(allocator_figures& found) const noexcept {
    std::size_t in_use = 0;
    std::size_t held = 0;
    auto* const number = find_function("MallocExtension_GetNumericProperty", weak_tcmalloc_number);
    if (number == nullptr || number("generic.current_allocated_bytes", &in_use) == 0) {
      found.why_no_in_use = "this tcmalloc does not say how much is in use";
    } else {
      found.in_use = static_cast<std::int64_t>(in_use);
    }
    // What it has and has not given back, with its own books.
    if (found.why_no_in_use != nullptr || number("generic.total_physical_bytes", &held) == 0) {
      found.why_no_retained = "this tcmalloc does not say how much it holds";
    } else {
      found.retained = static_cast<std::int64_t>(held - (in_use < held ? in_use : held));
    }
  }
  [[nodiscard]] const char* give_back() const noexcept {
    auto* const release = find_function("MallocExtension_ReleaseFreeMemory", weak_tcmalloc_release);
    if (release == nullptr) return "this tcmalloc gives nothing back on demand";
    release();
    return nullptr;
  }
};

struct mimalloc_allocator {
  static constexpr allocator_kind kind = allocator_kind::mimalloc;

  [[nodiscard]] bool runs() const noexcept {
    auto* const owns = find_function("mi_is_in_heap_region", weak_mimalloc_owns);
    return owns != nullptr && owns(probe_block(64).address());
  }
  void tell(allocator_figures& found) const noexcept {
    found.why_no_in_use = "mimalloc counts what is in use only when it is built for debugging";
    found.why_no_retained = "mimalloc does not say how much is in use, and so not what it holds beyond that";
  }
  [[nodiscard]] const char* give_back() const noexcept {
    auto* const collect = find_function("mi_collect", weak_mimalloc_collect);
    if (collect == nullptr) return "this mimalloc gives nothing back on demand";
    collect(true);
    return nullptr;
  }
};

  #if defined(__GLIBC__)

struct c_library_allocator {
  static constexpr allocator_kind kind = allocator_kind::glibc;

  /// Whether malloc is in the library itself, or else, as below a hook, what it gives is in use there.
  [[nodiscard]] bool runs() const noexcept { return is_malloc_in_library() || is_probe_in_use(); }
  void tell(allocator_figures& found) const noexcept {
    #if __GLIBC_PREREQ(2, 33)
    const auto info = ::mallinfo2();
    found.in_use = static_cast<std::int64_t>(info.uordblks + info.hblkhd);
    found.retained = static_cast<std::int64_t>(info.fordblks);
    #else
    found.why_no_in_use = found.why_no_retained = "glibc before 2.33 counts in 32 bits";
    #endif
  }
  [[nodiscard]] const char* give_back() const noexcept {
    ::malloc_trim(0);
    return nullptr;
  }

 private:
  [[nodiscard]] static bool is_malloc_in_library() noexcept {
    const void* const function = find_symbol("malloc");
    Dl_info holder{};
    Dl_info library{};
    return function != nullptr && weak_object_of != nullptr && weak_object_of(function, &holder) != 0 &&
           weak_object_of(find_symbol("gnu_get_libc_version"), &library) != 0 && holder.dli_fbase == library.dli_fbase;
  }

  [[nodiscard]] static bool is_probe_in_use() noexcept {
    #if __GLIBC_PREREQ(2, 33)
    const auto in_use = [] {
      allocator_figures found;
      c_library_allocator().tell(found);
      return found.in_use;
    };
    // The first stays untouched. It is above the sizes that glibc learns from, and above what other threads free
    // meanwhile.
    for (const std::int64_t size : {std::int64_t{64} << 20, std::int64_t{64} << 20, std::int64_t{100'000}}) {
      const std::int64_t before = in_use();
      const probe_block block(static_cast<std::size_t>(size));
      if (block.address() != nullptr && in_use() - before >= size / 2) return true;
    }
    return false;
    #else
    return true;  // none of the others gave a block
    #endif
  }
};

  #else

struct c_library_allocator {
  static constexpr allocator_kind kind = allocator_kind::musl;

  [[nodiscard]] bool runs() const noexcept { return true; }  // none of the others does
  void tell(allocator_figures& found) const noexcept {
    found.why_no_in_use = found.why_no_retained = "musl's allocator keeps no figures";
  }
  [[nodiscard]] const char* give_back() const noexcept { return "musl's allocator gives nothing back on demand"; }
};

  #endif

template <class Allocator, class F>
[[nodiscard]] bool call_if_runs(F f) noexcept {
  const Allocator candidate{};
  if (!candidate.runs()) return false;
  f(candidate);
  return true;
}

/// Calls `f` with the allocator that serves malloc. False: it is none of them.
template <class F>
[[nodiscard]] bool call_with_running(F f) noexcept {
  return call_if_runs<sanitizer_allocator>(f) || call_if_runs<jemalloc_allocator>(f) ||
         call_if_runs<tcmalloc_allocator>(f) || call_if_runs<mimalloc_allocator>(f) ||
         call_if_runs<c_library_allocator>(f);
}

inline constexpr char unknown_allocator[] =
    "malloc is none of those that the library knows: glibc's, musl's, jemalloc, tcmalloc of gperftools, mimalloc";

inline void ask_allocator(allocator_figures& found) noexcept {
  const int saved = errno;
  const bool is_known = call_with_running([&](const auto& running) {
    found.kind = running.kind;
    running.tell(found);
  });
  errno = saved;
  if (!is_known) found.why_no_kind = found.why_no_in_use = found.why_no_retained = unknown_allocator;
}

[[nodiscard]] inline const char* give_back() noexcept {
  const int saved = errno;
  const char* why = unknown_allocator;
  static_cast<void>(call_with_running([&](const auto& running) { why = running.give_back(); }));
  errno = saved;
  return why;
}

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
