// SPDX-License-Identifier: MIT
// The hot process state: every thread's slot, the process account, whether a hook feeds them, and one table of leaked
// registries. All mutable variables of the library are here, constant-initialised, so that they work before `main` and
// after static destruction.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/core/account.hpp>
#include <tidemark/core/detail/arena.hpp>
#include <tidemark/core/detail/os_module.hpp>
#include <tidemark/core/detail/os_thread.hpp>
#include <tidemark/core/detail/slot.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/stamp.hpp>
#include <tidemark/core/usage.hpp>

namespace tidemark {
inline namespace v0 {

/// How the heap is seen.
enum class hook_kind { none, global_new, malloc_family, sanitizer };

namespace detail {

struct ledger_state;

/// How a hook's start went.
struct hook_start {
  hook_kind kind;      // none where events do not reach the hook
  const char* reason;  // why none, or what this mode does not see; empty otherwise
  bool ask_sizes;      // the allocator below is asked for the size of each block
};

/// What a hook header says of itself. Values are data, never types: options change no layout.
struct hook_descriptor {
  const ledger_state* home;  // the ledger that it feeds
  std::int64_t settle_bytes;
  hook_start (*start)() noexcept;       // called once, before any block, on a thread whose word says that events pass
  void (*first_size_query)() noexcept;  // asks the allocator for a size, once per thread that will; null: never asks
  void (*guard_all)(bool) noexcept;     // from now on every thread asks at the gate, or no longer; null: cannot refuse
};

}  // namespace detail
}  // namespace v0
}  // namespace tidemark

// Defined by a hook header, and only there: its address is null in a program without one.
extern "C" TIDEMARK_EXPORT TIDEMARK_WEAK const tidemark::detail::hook_descriptor tidemark_hook;

namespace tidemark {
inline namespace v0 {
namespace detail {

// The thread's word: a slot's address; minus a slot's address where a gate flag is set; or one of these. Whatever is not a
// clean slot is negative, so that the hot path tests one sign.
inline constexpr std::intptr_t word_being_born = -1;  // no memory for a slot: events go to the shared one
inline constexpr std::intptr_t word_gone = -2;        // the same, for the rest of the thread's life
inline constexpr std::intptr_t word_passing = -3;     // the library asks the allocator something: events pass uncounted
inline constexpr std::intptr_t word_none = -4;        // no event yet

struct delivery;     // core/sink: a call into a sink that this thread is inside
struct gate_keeper;  // core/detail/gate_keeper: whom an allocation is asked of
struct allocation_failure;

/// Plain, constant-initialised, without a destructor: usable at any time of a thread's life.
struct thread_local_state {
  std::intptr_t word = word_none;
  int quiet_depth = 0;
  int tracked_depth = 0;           // inside a tracked allocator whose allocation was asked for already
  gate_keeper* keepers = nullptr;  // innermost first
  delivery* inside = nullptr;
};

/// This thread's state in the ledger that this part of the program brought with it. A hook feeds no other.
TIDEMARK_EXPORT inline thread_local thread_local_state own_thread;

/// When a registry is asked to keep its locks right across a fork.
enum class fork_moment { before, after_in_parent, after_in_child };

/// A spin lock that is right in a fork child: a fork waits for its holder. Nothing else is locked while one is held.
/// For objects that come and go; registries keep their own.
class leaf_lock : public spin_lock {
 public:
  leaf_lock() noexcept;
  ~leaf_lock();
  leaf_lock(const leaf_lock&) = delete;
  leaf_lock& operator=(const leaf_lock&) = delete;

 private:
  friend void lock_leaves() noexcept;
  friend void unlock_leaves() noexcept;
  leaf_lock* older_ = nullptr;
  leaf_lock* newer_ = nullptr;
};

inline constexpr int ledger_handed_over = 3;  // a phase: another ledger is used in its place

/// The layout of a ledger and of what is kept in one; as the inline namespace.
inline constexpr std::uint32_t ledger_version = 0;

/// Whose strings and vectors are in the records that parts of a program hand each other.
[[nodiscard]] constexpr std::uint32_t standard_library_abi() noexcept {
#if defined(_LIBCPP_VERSION)
  std::uint32_t abi = 2;
#elif defined(_GLIBCXX_USE_CXX11_ABI)
  std::uint32_t abi = _GLIBCXX_USE_CXX11_ABI;
#else
  std::uint32_t abi = 3;
#endif
#if defined(_GLIBCXX_DEBUG)
  abi |= 4;
#endif
  return abi;
}

/// The process. Never destroyed.
struct ledger_state {
  constexpr explicit ledger_state(thread_local_state& (*here)() noexcept) noexcept : thread_here(here) {}

  thread_local_state& (*thread_here)() noexcept;  // the calling thread's state in this ledger
  std::uint32_t abi = standard_library_abi();
  // Set where parts without a hook of their own, whose `operator new` leads here, are to use this ledger: called when one
  // asks, and says whether it may.
  bool (*welcome)() noexcept = nullptr;

  arena memory;
  shared_account process;
  std::uint64_t secret = 0;
  std::uint64_t process_id = 0;
  std::int64_t settle_bytes = 0;
  bool ask_sizes = false;
  // The hook's; a plugin does not see the hook itself.
  void (*first_size_query)() noexcept = nullptr;
  void (*guard_all)(bool) noexcept = nullptr;
  std::atomic<gate_keeper*> process_keeper{nullptr};  // asked by every thread
  std::atomic<void (*)(const allocation_failure&) noexcept> on_failure{nullptr};

  std::atomic<int> phase{0};  // 0 untouched, 1 one thread prepares it, 2 ready, or as below
  hook_kind hook = hook_kind::none;
  const char* hook_reason = "";

  spin_lock slots_lock;  // the lists below
  std::atomic<std::uint32_t> slot_count{0};
  std::atomic<slot*> newest_slot{nullptr};  // every slot but `shared`, whether or not it has a thread
  slot* free_slots = nullptr;
  window_node* free_windows = nullptr;  // of the process account
  task_account* free_tasks = nullptr;
  spin_lock table_lock;  // owner tables: growing one's own, reading another's
  os::at_thread_exit thread_exit;

  slot shared;  // of threads without a slot of their own
  spin_lock shared_lock;
  bool shared_in_use = false;

  std::atomic<std::uint64_t> dropped_records{0};

  struct registry_entry {
    std::uint64_t key;
    void* object;
    void (*on_fork)(void* object, fork_moment);
  };
  static constexpr int registry_capacity = 32;
  spin_lock registry_lock;
  std::atomic<int> registry_count{0};
  registry_entry registries[registry_capacity] = {};
  leaf_lock* newest_leaf = nullptr;  // under `registry_lock`
};

[[nodiscard]] inline thread_local_state& own_thread_here() noexcept { return own_thread; }

/// The ledger that this part of the program brought with it.
TIDEMARK_CONSTINIT TIDEMARK_EXPORT inline ledger_state own_ledger{own_thread_here};

/// The one in use: its own, unless another was handed over. Plain, so that it is loaded once where it is used often: it
/// changes once at most, before anything of this part uses a ledger.
TIDEMARK_CONSTINIT TIDEMARK_EXPORT inline ledger_state* ledger_in_use = &own_ledger;

[[nodiscard]] TIDEMARK_ALWAYS_INLINE ledger_state& ledger() noexcept { return *ledger_in_use; }

/// This thread's state in the ledger in use.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE thread_local_state& this_thread() noexcept {
  ledger_state& in_use = ledger();
  return TIDEMARK_LIKELY(&in_use == &own_ledger) ? own_thread : in_use.thread_here();
}

// ---- slots ----

[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool is_slot(std::intptr_t word) noexcept { return word >= 0 || word < word_none; }
[[nodiscard]] TIDEMARK_ALWAYS_INLINE slot* slot_of(std::intptr_t word) noexcept {
  return reinterpret_cast<slot*>(word < 0 ? -word : word);
}
inline void publish_word(slot& s) noexcept {
  const auto address = reinterpret_cast<std::intptr_t>(&s);
  this_thread().word = s.gate == 0 ? address : -address;
}

/// Runs `f(slot&)` on the slot of those who have none, one thread at a time. Everything settles at once there.
template <class F>
void on_shared_slot(F f) noexcept {
  const spin_guard held(ledger().shared_lock);
  if (!ledger().shared_in_use) {
    ledger().shared.start(ledger().process, 0, ledger().table_lock);
    ledger().shared_in_use = true;
  }
  f(ledger().shared);
}

/// Every slot that ever had an event, the shared one included.
template <class F>
void for_each_slot(F f) noexcept {
  for (slot* s = ledger().newest_slot.load(std::memory_order_acquire); s != nullptr; s = s->next) f(*s);  // take_slot()
  f(ledger().shared);
}

/// Takes the slot from that thread. False: it is another's by now, or nobody's.
[[nodiscard]] inline bool claim_slot(slot& s, std::uint64_t thread_id) noexcept {
  return thread_id != 0 && s.thread_id.compare_exchange_strong(thread_id, 0);
}

/// A claimed slot waits for the next thread.
inline void free_slot(slot& s) noexcept {
  s.forget_nodes();
  s.account.end();
  const spin_guard held(ledger().slots_lock);
  s.next_free = ledger().free_slots;
  ledger().free_slots = &s;
}

// A thread that had its first event in the destructor of another key may end before the rounds are over; its exit function
// then never runs. The system knows that it is gone.
TIDEMARK_COLD inline void reap_slots() noexcept {
  if (os::process_id() != ledger().process_id) return;  // a child by _Fork() or clone(): its ids are the parent's
  for (slot* s = ledger().newest_slot.load(std::memory_order_acquire); s != nullptr; s = s->next) {  // take_slot()
    const std::uint64_t id = s->thread_id.load(std::memory_order_acquire);  // pairs with begin_thread()
    if (id != 0 && !os::is_thread_alive(id) && claim_slot(*s, id)) free_slot(*s);
  }
}

[[nodiscard]] inline slot* take_free_slot() noexcept {
  const spin_guard held(ledger().slots_lock);
  slot* s = ledger().free_slots;
  if (s != nullptr) ledger().free_slots = s->next_free;
  return s;
}

[[nodiscard]] inline slot* take_slot() noexcept {
  if (slot* s = take_free_slot()) return s;
  // Each time their number has doubled: one system call per slot in the long run.
  const std::uint32_t count = ledger().slot_count.load(std::memory_order_relaxed);  // a hint
  if ((count & (count - 1)) == 0) {
    reap_slots();
    if (slot* s = take_free_slot()) return s;
  }
  void* pages = ledger().memory.map(sizeof(slot));
  if (pages == nullptr) return nullptr;
  slot* s = new (pages) slot;
  const spin_guard held(ledger().slots_lock);
  s->next = ledger().newest_slot.load(std::memory_order_relaxed);
  ledger().newest_slot.store(s, std::memory_order_release);  // pairs with for_each_slot()
  ledger().slot_count.fetch_add(1, std::memory_order_relaxed);
  return s;
}

// Runs when a thread ends, after its C++ thread-locals. It re-arms itself to the last round, since other keys' destructors
// still allocate and free.
inline void on_thread_exit(void* p) noexcept {
  slot& s = *static_cast<slot*>(p);
  if (++s.exit_rounds < os::thread_exit_rounds && ledger().thread_exit.set(&s)) return;
  this_thread().word = word_gone;
  if (claim_slot(s, s.thread_id.load(std::memory_order_relaxed))) free_slot(s);
}

// ---- fork ----

inline void lock_leaves() noexcept {
  for (leaf_lock* l = ledger().newest_leaf; l != nullptr; l = l->older_) l->lock();
}
inline void unlock_leaves() noexcept {
  for (leaf_lock* l = ledger().newest_leaf; l != nullptr; l = l->older_) l->unlock();
}

inline void registries_on_fork(fork_moment moment) noexcept {
  const int count = ledger().registry_count.load(std::memory_order_acquire);  // pairs with registry()
  for (int i = 0; i < count; ++i) {
    const auto& r = ledger().registries[moment == fork_moment::before ? count - 1 - i : i];
    r.on_fork(r.object, moment);
  }
}

inline void before_fork() noexcept {
  ledger().registry_lock.lock();
  lock_leaves();
  registries_on_fork(fork_moment::before);
  ledger().slots_lock.lock();
  ledger().shared_lock.lock();
  ledger().table_lock.lock();
  ledger().process.lock();
  ledger().memory.lock();
}

inline void unlock_after_fork() noexcept {
  ledger().memory.unlock();
  ledger().process.unlock();
  ledger().table_lock.unlock();
  ledger().shared_lock.unlock();
  ledger().slots_lock.unlock();
}

inline void after_fork_in_parent() noexcept {
  unlock_after_fork();
  registries_on_fork(fork_moment::after_in_parent);
  unlock_leaves();
  ledger().registry_lock.unlock();
}

// Only the forking thread lives on: the slots of the others are settled and wait for new threads.
inline void after_fork_in_child() noexcept {
  unlock_after_fork();
  ledger().process_id = os::process_id();
  slot* mine = is_slot(this_thread().word) ? slot_of(this_thread().word) : nullptr;
  for (slot* s = ledger().newest_slot.load(std::memory_order_relaxed); s != nullptr; s = s->next) {  // the only thread
    if (s != mine && claim_slot(*s, s->thread_id.load(std::memory_order_relaxed))) free_slot(*s);
  }
  if (mine != nullptr) mine->thread_id.store(os::thread_id(), std::memory_order_relaxed);
  registries_on_fork(fork_moment::after_in_child);
  unlock_leaves();
  ledger().registry_lock.unlock();
}

// ---- birth ----

// The one symbol that every part of a program shares is `operator new`. A hook answers a question that is asked through it,
// and every other allocator takes it for a small request that succeeds.
struct hook_question : std::nothrow_t {
  static constexpr std::size_t bytes = 8'086;
  static constexpr auto alignment = std::align_val_t{512};

  static constexpr std::uint64_t expected_mark = 0x7469'6465'6d61'726bU;

  std::uint64_t mark = expected_mark;
  mutable ledger_state* fed = nullptr;  // the answer: which ledger the hook behind this operator feeds
  mutable std::uint32_t version = 0;
  mutable std::uint32_t state_bytes = 0;
  mutable bool is_offered = false;

  /// Null where this part may use that ledger; otherwise why not.
  [[nodiscard]] const char* why_not_shared() const noexcept {
    if (fed == nullptr) return "the handle names no ledger";
    if (version != ledger_version || state_bytes != sizeof(ledger_state)) {
      return "the other ledger is of a version of tidemark with another layout";
    }
    if (fed->abi != standard_library_abi()) return "the other ledger's part uses another C++ standard library";
    return nullptr;
  }
};

/// Asked of each aligned `new` that throws nothing, by the hook that gets it. Whether it was the question, now answered.
[[nodiscard]] TIDEMARK_ALWAYS_INLINE bool answers_question(std::size_t bytes, std::align_val_t alignment,
                                                           const std::nothrow_t& tag) noexcept {
  if (TIDEMARK_LIKELY(bytes != hook_question::bytes || alignment != hook_question::alignment ||
                      &tag == &std::nothrow)) {
    return false;
  }
  const auto& q = static_cast<const hook_question&>(tag);
  if (q.mark != hook_question::expected_mark) return false;
  q.fed = &own_ledger;
  q.version = ledger_version;
  q.state_bytes = sizeof(ledger_state);
  q.is_offered = own_ledger.welcome != nullptr && own_ledger.welcome();
  return true;
}

/// Asks the hook behind this part's `operator new`.
[[nodiscard]] inline hook_question ask_operator_new() noexcept {
  hook_question q;
  void* block = ::operator new(hook_question::bytes, hook_question::alignment, q);
  ::operator delete(block, hook_question::alignment, q);
  return q;
}

/// Whether the program has a hook that feeds the ledger of this part.
[[nodiscard]] inline bool has_hook() noexcept { return &tidemark_hook != nullptr && tidemark_hook.home == &own_ledger; }

inline void find_hook() noexcept {
  if (has_hook()) {
    const hook_start s = tidemark_hook.start();
    ledger().hook = s.kind;
    ledger().hook_reason = s.reason;
    ledger().ask_sizes = s.ask_sizes;
    ledger().first_size_query = tidemark_hook.first_size_query;
    ledger().guard_all = tidemark_hook.guard_all;
    return;
  }
  const hook_question answered = ask_operator_new();
  const char* const why_not = answered.why_not_shared();
  if (answered.fed == nullptr && &tidemark_hook == nullptr) {
    ledger().hook_reason =
        "no heap hook: include <tidemark/hook/global_new.hpp> or <tidemark/hook/malloc.hpp> in exactly one .cpp "
        "file of the program";
  } else if (answered.is_offered && why_not != nullptr) {
    ledger().hook_reason = why_not;
  } else if (answered.is_offered) {
    os::keep_this_loaded();
    ledger_in_use = answered.fed;
    own_ledger.phase.store(ledger_handed_over, std::memory_order_release);  // pairs with begin_preparation()
  } else {
    ledger().hook_reason =
        "this part of the program keeps a ledger of its own, and the heap hook feeds another (the program's or a "
        "preloaded one): link the program with -rdynamic, or hand its ledger over with tidemark::use_ledger()";
  }
}

/// Whether this thread is the one that prepares the ledger; `finish_preparation()` must follow once it has a slot.
/// False: it is ready, or another one is in use from now on. The thread's word says that events pass: how sizes are found is not known yet.
[[nodiscard]] TIDEMARK_COLD inline bool begin_preparation() noexcept {
  os::keep_loaded(reinterpret_cast<const void*>(&on_thread_exit));  // first: it waits for the dynamic linker's lock
  ledger_state& prepared = ledger();
  int untouched = 0;
  if (!prepared.phase.compare_exchange_strong(untouched, 1, std::memory_order_acquire)) {
    while (prepared.phase.load(std::memory_order_acquire) < 2) os::yield_thread();  // finish_preparation(), find_hook()
    return false;
  }
  ledger().process_id = os::process_id();
  ledger().secret = os::random_word() | 1;
  ledger().settle_bytes = &tidemark_hook == nullptr ? 0 : tidemark_hook.settle_bytes;
  find_hook();
  return &ledger() == &prepared;
}

inline void finish_preparation() noexcept {
  ledger().thread_exit.create(on_thread_exit);
  os::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
  ledger().phase.store(2, std::memory_order_release);  // pairs with begin_preparation() and begin_thread()
}

/// Gives this thread a slot. Null where it cannot have one: its life is over, or there is no memory.
TIDEMARK_COLD inline slot* begin_thread() noexcept {
  thread_local_state& here = this_thread();
  if (here.word != word_none) return nullptr;
  const int saved = errno;
  here.word = word_passing;
  const bool must_finish = ledger().phase.load(std::memory_order_acquire) != 2 && begin_preparation();
  if (TIDEMARK_UNLIKELY(&this_thread() != &here)) {  // the thread begins in the ledger that is used from now on
    here.word = word_none;
    errno = saved;
    return is_slot(this_thread().word) ? slot_of(this_thread().word) : begin_thread();
  }
  slot* s = take_slot();
  // What the system allocates for the rest is not the program's: it is counted, but as the library's own.
  ++here.quiet_depth;
  if (s == nullptr) {
    here.word = word_being_born;
  } else {
    s->start(ledger().process, ledger().settle_bytes, ledger().table_lock);
    // In a child by vfork() the slot is the parent's to keep, whose thread goes on with it: nobody may reap it.
    const bool is_ours = os::process_id() == ledger().process_id;
    s->stack_mark.store(os::stack_address(), std::memory_order_relaxed);  // a hint for whoever looks at mappings
    s->thread_id.store(is_ours ? os::thread_id() : 0, std::memory_order_release);  // pairs with reap_slots()
    s->gate = gate_quiet;
    publish_word(*s);
  }
  if (must_finish) finish_preparation();
  if (s != nullptr) ledger().thread_exit.set(s);
  --here.quiet_depth;
  if (s == nullptr) {
    here.word = word_none;
  } else {
    s->gate = (here.quiet_depth > 0 ? gate_quiet : 0U) | (here.keepers != nullptr ? gate_guarded : 0U);
    if (ledger().ask_sizes) {
      // What an allocator allocates for its first query passes uncounted (gperftools' does); later ones go unguarded.
      here.word = word_passing;
      ledger().first_size_query();
    }
    publish_word(*s);
  }
  errno = saved;
  return s;
}

/// This thread's slot, given to it now if need be; null as `begin_thread()` says.
[[nodiscard]] inline slot* current_slot() noexcept {
  const std::intptr_t word = this_thread().word;
  return TIDEMARK_LIKELY(is_slot(word)) ? slot_of(word) : begin_thread();
}

// ---- windows of the process ----

inline void settle_own() noexcept {
  if (slot* s = current_slot()) s->account.settle();
}

// Nodes that any thread takes and gives back, linked by `older`. They are the library's own, since a fork child reuses the
// stacks of threads that it does not have.

/// Null: no memory.
template <class Node>
[[nodiscard]] Node* take_node(Node*& free) noexcept {
  {
    const spin_guard held(ledger().slots_lock);
    if (Node* n = free) {
      free = n->older;
      return n;
    }
  }
  void* piece = ledger().memory.allocate(sizeof(Node));
  return piece == nullptr ? nullptr : new (piece) Node;
}

template <class Node>
void give_node_back(Node*& free, Node& n) noexcept {
  const spin_guard held(ledger().slots_lock);
  n.older = free;
  free = &n;
}

/// Null: no memory.
[[nodiscard]] inline window_node* open_process_window() noexcept {
  settle_own();
  window_node* w = take_node(ledger().free_windows);
  if (w != nullptr) ledger().process.open(*w);
  return w;
}

[[nodiscard]] inline window_usage read_process_window(const window_node& w) noexcept {
  settle_own();
  return ledger().process.read(w, ledger().settle_bytes);
}

inline window_usage close_process_window(window_node& w) noexcept {
  settle_own();
  const window_usage u = ledger().process.close(w, ledger().settle_bytes);
  give_node_back(ledger().free_windows, w);
  return u;
}

// ---- registries ----

/// The key of a registry: the same in every shared object, whoever compiled it.
[[nodiscard]] constexpr std::uint64_t registry_key(const char* name) noexcept {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325U;  // FNV-1a
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100'0000'01b3U;
  return hash;
}

template <class T>
[[nodiscard]] T* find_registry() noexcept {
  const int count = ledger().registry_count.load(std::memory_order_acquire);  // pairs with registry()
  for (int i = 0; i < count; ++i) {
    if (ledger().registries[i].key == T::key) return static_cast<T*>(ledger().registries[i].object);
  }
  return nullptr;
}

/// The process's one `T`, made at its first use and leaked. Null: no memory for it.
/// `T` has a `key`, and a member `on_fork(fork_moment)`, which takes its locks before a fork and gives them back after it.
template <class T>
[[nodiscard]] T* registry() noexcept {
  if (T* found = find_registry<T>()) return found;
  begin_thread();  // the fork handlers are in place before there is a lock to keep
  void (*on_fork)(void*, fork_moment) = [](void* p, fork_moment m) { static_cast<T*>(p)->on_fork(m); };
  os::keep_loaded(reinterpret_cast<const void*>(on_fork));  // before the lock: it waits for the dynamic linker's
  const spin_guard held(ledger().registry_lock);
  if (T* found = find_registry<T>()) return found;
  const int count = ledger().registry_count.load(std::memory_order_relaxed);  // written under this lock only
  void* piece = count < ledger_state::registry_capacity ? ledger().memory.allocate(sizeof(T)) : nullptr;
  if (piece == nullptr) return nullptr;
  T* made = new (piece) T;
  ledger().registries[count] = {T::key, made, on_fork};
  ledger().registry_count.store(count + 1, std::memory_order_release);  // pairs with find_registry()
  return made;
}

inline leaf_lock::leaf_lock() noexcept {
  begin_thread();  // the fork handlers are in place
  const spin_guard held(ledger().registry_lock);
  older_ = ledger().newest_leaf;
  if (older_ != nullptr) older_->newer_ = this;
  ledger().newest_leaf = this;
}

inline leaf_lock::~leaf_lock() {
  const spin_guard held(ledger().registry_lock);
  (newer_ != nullptr ? newer_->older_ : ledger().newest_leaf) = older_;
  if (older_ != nullptr) older_->newer_ = newer_;
}

inline void drop_record() noexcept {
  ledger().dropped_records.fetch_add(1, std::memory_order_relaxed);
}  // counter only

}  // namespace detail

/// Keeps the compiler from deleting an allocation that nothing else uses: the pointer could be read from here on.
inline void escape(const void* p) noexcept {
#if defined(__GNUC__)
  asm volatile("" : : "g"(p) : "memory");
#else
  static const void* volatile seen;
  seen = p;
#endif
}

inline namespace TIDEMARK_TAG {

/// How this program's heap is seen; `none` without a hook header, or where a tool keeps events from it.
[[nodiscard]] inline hook_kind hook_state() noexcept {
#if TIDEMARK_OPT_DISABLE
  return hook_kind::none;
#else
  static_cast<void>(detail::current_slot());
  return detail::ledger().hook;
#endif
}

/// Why there is no hook, or what this one does not see; empty otherwise.
[[nodiscard]] inline std::string_view hook_reason() noexcept {
#if TIDEMARK_OPT_DISABLE
  return "disabled";
#else
  static_cast<void>(detail::current_slot());
  return detail::ledger().hook_reason;
#endif
}

/// What this thread allocated and freed since it began. A block freed by another thread lowers that thread's account.
/// Absent without a hook.
[[nodiscard]] inline reading<usage> thread_usage() {
#if TIDEMARK_OPT_DISABLE
  return reading<usage>::absent("disabled");
#else
  detail::slot* s = detail::current_slot();
  if (detail::ledger().hook == hook_kind::none) return reading<usage>::absent_because(detail::ledger().hook_reason);
  if (s == nullptr) return reading<usage>::absent("this thread has no account: it is ending, or memory ran out");
  return s->account.lifetime();
#endif
}

/// What the whole process allocated and freed since it began, as far as the hook sees it. Absent without a hook.
[[nodiscard]] inline reading<usage> process_usage() {
#if TIDEMARK_OPT_DISABLE
  return reading<usage>::absent("disabled");
#else
  detail::settle_own();
  if (detail::ledger().hook == hook_kind::none) return reading<usage>::absent_because(detail::ledger().hook_reason);
  return detail::ledger().process.lifetime(detail::ledger().settle_bytes);
#endif
}

/// The peak of `process_usage()` starts again at the live bytes. No window of any scope changes.
inline void reset_process_peak() noexcept {
#if !TIDEMARK_OPT_DISABLE
  detail::settle_own();
  detail::ledger().process.reset_peak();
#endif
}

}  // namespace TIDEMARK_TAG

/// What the library itself takes, and what it could not do.
struct self_report {
  std::uint64_t own_bytes = 0;        ///< its pages, its static state and live blocks allocated inside `quiet`
  std::uint64_t stamp_bytes = 0;      ///< 16 for each live block that the hook has seen; 0 with a sanitizer's
  std::uint64_t dropped_records = 0;  ///< records that a sink, or the memory for them, refused
  std::uint64_t foreign_frees = 0;    ///< frees of blocks that never passed the hook
  std::uint64_t events = 0;           ///< allocations and deallocations counted
};

/// Threads: any. The sums of other threads' events are as fresh as their last event.
[[nodiscard]] inline self_report self() noexcept {
  static_cast<void>(detail::current_slot());
  detail::ledger_state& ledger = detail::ledger();
  self_report r;
  std::int64_t quiet_bytes = 0;
  std::int64_t blocks = 0;
  detail::for_each_slot([&](detail::slot& s) {
    const detail::event_totals t = s.account.totals();
    r.events += t.allocations + t.deallocations;
    r.foreign_frees += s.foreign_frees.load();
    quiet_bytes += s.quiet_bytes.load();
    blocks += s.quiet_blocks.load() + static_cast<std::int64_t>(t.allocations - t.deallocations);
  });
  // A block freed between the reads of two slots may show as less than none.
  if (quiet_bytes < 0) quiet_bytes = 0;
  if (blocks < 0) blocks = 0;
  r.own_bytes = ledger.memory.mapped_bytes() + sizeof(detail::ledger_state) + static_cast<std::uint64_t>(quiet_bytes);
  const bool is_stamped = ledger.hook == hook_kind::global_new || ledger.hook == hook_kind::malloc_family;
  r.stamp_bytes = is_stamped ? static_cast<std::uint64_t>(blocks) * detail::stamp_bytes : 0;
  r.dropped_records = ledger.dropped_records.load(std::memory_order_relaxed);  // counter only
  return r;
}

}  // namespace v0
}  // namespace tidemark
