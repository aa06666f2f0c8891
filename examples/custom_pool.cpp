// SPDX-License-Identifier: MIT
// An arena of one's own that feeds domains. It takes whole slabs from the heap and hands out pieces of them, so a heap
// hook sees the slabs and not the pieces. Two domains tell both: what the arena holds, with a limit, and what of it is
// in use.
//
//   g++ -std=c++17 -I include examples/custom_pool.cpp -o custom_pool -pthread && ./custom_pool
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tidemark::literals;

/// Hands out pieces, and takes all of them back at once.
class arena {
 public:
  static constexpr std::size_t slab_bytes = 64 * 1024;
  static constexpr std::size_t alignment = alignof(std::max_align_t);

  explicit arena(std::int64_t limit) : slab_domain_("arena slabs", {limit}), piece_domain_("arena pieces") {}
  ~arena() { reset(); }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  /// Throws: `tidemark::over_budget`, with nothing changed, where a further slab would be over the limit.
  void* allocate(std::size_t bytes) {
    if (bytes > slab_bytes) throw std::bad_alloc();
    const std::size_t aligned = (bytes + alignment - 1) / alignment * alignment;
    if (slabs_.empty() || aligned > slab_bytes - used_of_last_) {
      slabs_.push_back(slab(slab_bytes, std::byte{}, slab_domain_));
      used_of_last_ = 0;
    }
    piece_domain_.allocated(static_cast<std::int64_t>(bytes));  // by hand: no allocator is asked
    in_use_ += static_cast<std::int64_t>(bytes);
    return slabs_.back().data() + std::exchange(used_of_last_, used_of_last_ + aligned);
  }

  void reset() noexcept {
    piece_domain_.freed(std::exchange(in_use_, 0));
    slabs_.clear();
    used_of_last_ = 0;
  }

  tidemark::domain& slab_domain() { return slab_domain_; }
  tidemark::domain& piece_domain() { return piece_domain_; }

 private:
  using slab = std::vector<std::byte, tidemark::allocator<std::byte>>;

  tidemark::domain slab_domain_;
  tidemark::domain piece_domain_;
  std::vector<slab> slabs_;
  std::size_t used_of_last_ = 0;
  std::int64_t in_use_ = 0;
};

/// A request of `count` messages of 1,000 bytes.
void serve(arena& pool, int count) {
  tidemark::basic_scope<tidemark::meter::thread_heap, tidemark::meter::domains> here("request");
  for (int i = 0; i < count; ++i) tidemark::escape(pool.allocate(1'000));
  pool.reset();
}

}  // namespace

int main() {
  const auto report = tidemark::attach(std::make_shared<tidemark::summary_sink>(stdout));
  arena pool(512_KiB);
  pool.slab_domain().on_near_limit(0.75, [](const tidemark::near_limit& now) {
    std::printf("near its limit: %.*s, %s of %s\n", static_cast<int>(now.name.size()), now.name.data(),
                tidemark::format_bytes(now.live_bytes).c_str(), tidemark::format_bytes(now.limit_bytes).c_str());
  });

  for (const int count : {60, 200, 480, 600}) {
    try {
      serve(pool, count);
      std::printf("%d messages served\n", count);
    } catch (const tidemark::over_budget& refused) {
      std::printf("%d messages refused: %s\n", count, refused.what());
      pool.reset();
    }
  }
  const tidemark::usage slabs = pool.slab_domain().current();
  const tidemark::usage pieces = pool.piece_domain().current();
  std::printf("at the peak %s of pieces in %s of slabs; now %s in %s\n\n",
              tidemark::format_bytes(pieces.peak_bytes).c_str(), tidemark::format_bytes(slabs.peak_bytes).c_str(),
              tidemark::format_bytes(pieces.live_bytes).c_str(), tidemark::format_bytes(slabs.live_bytes).c_str());
}
