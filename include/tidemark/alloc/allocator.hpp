// SPDX-License-Identifier: MIT
// A standard allocator that feeds a domain: std::vector<float, tidemark::allocator<float>> v(n, 0.0F, weights);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/domain_node.hpp>
#include <tidemark/core/detail/raise.hpp>
#include <tidemark/core/domain.hpp>

namespace tidemark {
inline namespace v0 {
inline namespace TIDEMARK_ERROR_TAG {

/// Allocates from `Upstream` and counts in a domain: `over_budget` where that would go over its limit, counters and budgets
/// rolled back where the upstream throws. Containers take it along when they are copied, moved and swapped, and may outlive
/// the domain's handles. Equal where the domain and the upstream are.
/// Event order: room is reserved, the upstream allocates, the block is counted; a free is counted before the upstream frees.
/// Threads: as the upstream. Cost: for each domain in the chain a lock per event, and one more per allocation where
/// there is a limit.
template <class T, class Upstream = std::allocator<T>>
class allocator {
  using traits = std::allocator_traits<Upstream>;
  static_assert(std::is_same_v<typename traits::value_type, T>, "the upstream allocates another type: rebind it to T");

 public:
  using value_type = T;
  using pointer = typename traits::pointer;
  using const_pointer = typename traits::const_pointer;
  using void_pointer = typename traits::void_pointer;
  using const_void_pointer = typename traits::const_void_pointer;
  using size_type = typename traits::size_type;
  using difference_type = typename traits::difference_type;
  // An upstream that cannot be assigned stays where it is, as std::pmr's does.
  using propagate_on_container_copy_assignment = std::is_copy_assignable<Upstream>;
  using propagate_on_container_move_assignment = std::is_move_assignable<Upstream>;
  using propagate_on_container_swap = std::is_swappable<Upstream>;
  using is_always_equal = std::false_type;

  template <class U>
  struct rebind {
    using other = allocator<U, typename traits::template rebind_alloc<U>>;
  };

  /// Feeds the domain "default". Throws: `std::bad_alloc`.
  template <class U = Upstream, class = std::enable_if_t<std::is_default_constructible_v<U>>>
  allocator() : node_(&detail::default_domain_node()) {}
  /// Not explicit, as std::pmr's is not: a container's constructor takes the domain in its place.
  allocator(const domain& d, Upstream upstream = Upstream()) : upstream_(std::move(upstream)), node_(&d.node()) {}
  template <class U, class V>
  allocator(const allocator<U, V>& other) noexcept : upstream_(other.upstream()), node_(&other.node()) {}

  /// Throws: `over_budget`; `std::bad_array_new_length` for more than can be; what the upstream throws.
  [[nodiscard]] pointer allocate(size_type n) {
    if (n > max_size()) detail::raise_bad_array_new_length();
    detail::reservation room(*node_, bytes_of(n));
    pointer p = traits::allocate(upstream_, n);
    room.commit();
    return p;
  }

  void deallocate(pointer p, size_type n) noexcept {
    static_cast<void>(node_->try_freed(bytes_of(n)));
    traits::deallocate(upstream_, p, n);
  }

  /// As the upstream makes and ends them.
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    traits::construct(upstream_, p, std::forward<Args>(args)...);
  }
  template <class U>
  void destroy(U* p) {
    traits::destroy(upstream_, p);
  }

  [[nodiscard]] size_type max_size() const noexcept {
    const auto most = static_cast<size_type>(std::uint64_t{INT64_MAX} / sizeof(T));
    const size_type upstreams = traits::max_size(upstream_);
    return most < upstreams ? most : upstreams;
  }

  [[nodiscard]] allocator select_on_container_copy_construction() const {
    return allocator(*node_, traits::select_on_container_copy_construction(upstream_));
  }

  [[nodiscard]] const Upstream& upstream() const noexcept { return upstream_; }
  /// The account that it feeds.
  [[nodiscard]] detail::domain_node& node() const noexcept { return *node_; }

  template <class U, class V>
  [[nodiscard]] friend bool operator==(const allocator& a, const allocator<U, V>& b) noexcept {
    return a.node_ == &b.node() && a.upstream_ == Upstream(b.upstream());
  }
  template <class U, class V>
  [[nodiscard]] friend bool operator!=(const allocator& a, const allocator<U, V>& b) noexcept {
    return !(a == b);
  }

 private:
  allocator(detail::domain_node& node, Upstream upstream) : upstream_(std::move(upstream)), node_(&node) {}

  [[nodiscard]] static std::int64_t bytes_of(size_type n) noexcept { return static_cast<std::int64_t>(n * sizeof(T)); }

  Upstream upstream_;
  detail::domain_node* node_;
};

}  // namespace TIDEMARK_ERROR_TAG
}  // namespace v0
}  // namespace tidemark
