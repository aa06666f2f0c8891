// SPDX-License-Identifier: MIT
// A polymorphic memory resource that feeds a domain: below a pool it counts what the pool reserves, above one what it hands out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>  // 25k lines: why alloc/allocator.hpp does without

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/domain.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_ERROR_TAG {

/// Allocates from `upstream` and counts in a domain, as tidemark::allocator does. It may outlive the domain's handles, and must
/// outlive what was allocated from it. Equal to itself alone.
/// Threads: as the upstream.
class resource : public std::pmr::memory_resource {
 public:
  /// Feeds the domain "default". Throws: `std::bad_alloc`.
  resource() : node_(&detail::default_domain_node()), upstream_(std::pmr::get_default_resource()) {}
  explicit resource(const domain& d, std::pmr::memory_resource* upstream = std::pmr::get_default_resource()) noexcept
      : node_(&d.node()), upstream_(upstream) {}
  resource(const resource&) = delete;
  resource& operator=(const resource&) = delete;

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return upstream_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (std::uint64_t{bytes} > std::uint64_t{INT64_MAX}) detail::raise_bad_alloc();
    detail::reservation room(*node_, static_cast<std::int64_t>(bytes));
    void* p = upstream_->allocate(bytes, alignment);
    room.commit();
    return p;
  }

  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    static_cast<void>(node_->try_freed(static_cast<std::int64_t>(bytes)));
    upstream_->deallocate(p, bytes, alignment);
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  detail::domain_node* node_;
  std::pmr::memory_resource* upstream_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace v0
}  // namespace tidemark
