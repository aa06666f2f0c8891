// SPDX-License-Identifier: MIT
// Names that outlive whoever said them: each distinct text is kept once, for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/hash_index.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/sync.hpp>

namespace tidemark {
inline namespace v0 {
namespace detail {

/// Registry of interned texts.
class TIDEMARK_EXPORT name_table {
 public:
  static constexpr std::uint64_t key = registry_key("names");

  /// The kept copy, null-terminated; `fallback` where there is no memory for one.
  [[nodiscard]] std::string_view intern(std::string_view text, std::string_view fallback) noexcept {
    const std::uint64_t hash = hash_text(text, 0);
    const auto matches = [text](const entry& e) { return e.text() == text; };
    if (const entry* known = index_.find(hash, matches)) return known->text();
    const spin_guard held(lock_);
    if (const entry* known = index_.find(hash, matches)) return known->text();
    void* piece = ledger().memory.allocate(sizeof(entry) + text.size() + 1);
    if (piece == nullptr) return fallback;
    auto* made = new (piece) entry{hash, text.size()};
    if (!text.empty()) std::memcpy(made->characters(), text.data(), text.size());
    return index_.insert(*made, ledger().memory) ? made->text() : fallback;
  }

  void on_fork(fork_moment moment) noexcept { moment == fork_moment::before ? lock_.lock() : lock_.unlock(); }

 private:
  struct entry {  // the characters follow
    std::uint64_t hash;
    std::size_t size;

    [[nodiscard]] char* characters() noexcept { return reinterpret_cast<char*>(this + 1); }
    [[nodiscard]] std::string_view text() const noexcept { return {reinterpret_cast<const char*>(this + 1), size}; }
  };

  spin_lock lock_;
  hash_index<entry> index_;
};

[[nodiscard]] inline std::string_view intern(std::string_view text) noexcept {
  name_table* names = registry<name_table>();
  return names == nullptr ? std::string_view("(no memory)") : names->intern(text, "(no memory)");
}

/// The same place, named in texts that outlive the shared object it is in.
[[nodiscard]] inline location intern(const location& place) noexcept {
  return location::current(intern(place.file_name()).data(), static_cast<int>(place.line()),
                           intern(place.function_name()).data());
}

}  // namespace detail
}  // namespace v0
}  // namespace tidemark
