// SPDX-License-Identifier: MIT
// What the parts of sys/allocator hand each other, on every system.
#pragma once

#include <cstdint>

#include <tidemark/config/platform.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

enum class allocator_kind {
  glibc,
  musl,
  jemalloc,
  tcmalloc,  ///< that of gperftools
  mimalloc,
  sanitizer,  ///< the one that AddressSanitizer and its kin bring
};

struct allocator_figures {
  allocator_kind kind = allocator_kind::glibc;
  const char* why_no_kind = nullptr;
  std::int64_t in_use = 0;
  const char* why_no_in_use = nullptr;
  std::int64_t retained = 0;
  const char* why_no_retained = nullptr;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
