// SPDX-License-Identifier: MIT
// DEFINES the 8 `operator new` and the 12 `operator delete`.
#pragma once

#include <cstddef>
#include <new>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/hook/detail/paths.hpp>

#define TIDEMARK_DETAIL_OPERATOR TIDEMARK_EXPORT TIDEMARK_NOINLINE void

TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n) { return tidemark::detail::hook::common.allocate(n); }
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n) { return tidemark::detail::hook::common.allocate(n); }
TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, 0);
}
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, 0);
}
TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n, std::align_val_t a) {
  return tidemark::detail::hook::new_or_bad_alloc(n, static_cast<std::size_t>(a));
}
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n, std::align_val_t a) {
  return tidemark::detail::hook::new_or_bad_alloc(n, static_cast<std::size_t>(a));
}
TIDEMARK_DETAIL_OPERATOR* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t& tag) noexcept {
  if (TIDEMARK_UNLIKELY(tidemark::detail::answers_question(n, a, tag))) return nullptr;
  return tidemark::detail::hook::nothrow_new(n, static_cast<std::size_t>(a));
}
TIDEMARK_DETAIL_OPERATOR* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return tidemark::detail::hook::nothrow_new(n, static_cast<std::size_t>(a));
}

TIDEMARK_DETAIL_OPERATOR operator delete(void* p) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::size_t) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::size_t) noexcept { tidemark::detail::hook::common.release(p); }
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}
TIDEMARK_DETAIL_OPERATOR operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  tidemark::detail::hook::common.release(p);
}

#undef TIDEMARK_DETAIL_OPERATOR
