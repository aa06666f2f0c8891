// SPDX-License-Identifier: MIT
// Size and owner of each live block by its address, for hooks that cannot write a stamp into the block.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/stamp.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace hook {

/// Registry of live blocks. Open addressing in shards, each with a lock of its own. Memory: 24 bytes a place, at most 3/4
/// of them taken, never given back.
class TIDEMARK_EXPORT side_table {
 public:
  static constexpr std::uint64_t key = registry_key("live blocks");

  /// Enters a block. Returns whether the address was taken, and by what: its free went unreported. False in `has_room`: no
  /// memory, and the block is not entered.
  [[nodiscard]] bool insert(const volatile void* block, const stamp& is, stamp& was, bool& has_room) noexcept {
    const std::uintptr_t address = ~reinterpret_cast<std::uintptr_t>(block);
    shard& s = shard_of(address);
    const spin_guard held(s.lock);
    has_room = s.taken * 4 < s.places * 3 || grow(s);
    if (!has_room) return false;
    entry& e = *find(s, address);
    const bool is_known = e.address == address;
    if (is_known) {
      was = {e.size, e.owner};
    } else {
      ++s.taken;
    }
    e = {address, is.size, is.owner};
    return is_known;
  }

  /// Takes a block out. False: it is not in.
  [[nodiscard]] bool erase(const volatile void* block, stamp& was) noexcept {
    const std::uintptr_t address = ~reinterpret_cast<std::uintptr_t>(block);
    shard& s = shard_of(address);
    const spin_guard held(s.lock);
    if (s.places == 0) return false;
    entry* gap = find(s, address);
    if (gap->address != address) return false;
    was = {gap->size, gap->owner};
    --s.taken;
    // Whatever the gap would hide from its own place moves into it.
    const std::size_t mask = s.places - 1;
    auto at = static_cast<std::size_t>(gap - s.entries);
    for (std::size_t i = (at + 1) & mask; s.entries[i].address != 0; i = (i + 1) & mask) {
      const std::size_t home = place_of(s.entries[i].address, mask);
      if (((i - home) & mask) < ((i - at) & mask)) continue;
      s.entries[at] = s.entries[i];
      at = i;
    }
    s.entries[at].address = 0;
    return true;
  }

  void on_fork(fork_moment moment) noexcept {
    for (shard& s : shards_) moment == fork_moment::before ? s.lock.lock() : s.lock.unlock();
  }

 private:
  struct entry {
    std::uintptr_t address;  // inverted, so that a leak checker takes none for a pointer to its block; 0: free
    std::uint64_t size;
    std::uint32_t owner;
  };
  struct shard {
    spin_lock lock;
    entry* entries = nullptr;
    std::size_t places = 0;
    std::size_t taken = 0;
    char apart[24] = {};  // a shard of its own cache line
  };
  static_assert(sizeof(shard) == 64, "a cache line");
  static constexpr std::size_t shard_count = 64;

  // Fibonacci hashing; the upper bits choose the shard, the next ones the place.
  static std::uint64_t hash_of(std::uintptr_t address) noexcept { return address * 0x9e37'79b9'7f4a'7c15U; }
  static std::size_t place_of(std::uintptr_t address, std::size_t mask) noexcept {
    return static_cast<std::size_t>(hash_of(address) >> 16) & mask;
  }
  shard& shard_of(std::uintptr_t address) noexcept { return shards_[hash_of(address) >> 58]; }

  /// Its entry, or the free one where it belongs.
  static entry* find(shard& s, std::uintptr_t address) noexcept {
    const std::size_t mask = s.places - 1;
    std::size_t i = place_of(address, mask);
    while (s.entries[i].address != 0 && s.entries[i].address != address) i = (i + 1) & mask;
    return &s.entries[i];
  }

  static bool grow(shard& s) noexcept {
    const std::size_t places = s.places == 0 ? 256 : s.places * 2;
    auto* entries = static_cast<entry*>(own_ledger.memory.map(places * sizeof(entry)));
    if (entries == nullptr) return s.taken + 1 < s.places;  // slower, until the last free place
    shard grown;
    grown.entries = entries;
    grown.places = places;
    for (std::size_t i = 0; i < s.places; ++i) {
      if (s.entries[i].address != 0) *find(grown, s.entries[i].address) = s.entries[i];
    }
    if (s.entries != nullptr) own_ledger.memory.unmap(s.entries, s.places * sizeof(entry));
    s.entries = entries;
    s.places = places;
    return true;
  }

  shard shards_[shard_count];
};

}  // namespace hook
}  // namespace detail
}  // namespace v0
}  // namespace tidemark
