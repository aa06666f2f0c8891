// SPDX-License-Identifier: MIT
// The contract: while a signal_shield stands, a write that fails raises no signal in the caller. errno is untouched.
#pragma once

#include <tidemark/config/platform.hpp>
#include <tidemark/core/detail/os_thread.hpp>

#if TIDEMARK_HAS_POSIX()

  #include <cerrno>
  #include <initializer_list>

  #include <pthread.h>
  #include <signal.h>

namespace tidemark {
inline namespace v0 {
namespace detail {
namespace os {

/// While it stands, a write to a closed pipe or beyond a file-size limit is an error of that write alone. The signal, which
/// the kernel sends to the writing thread, is taken back unless it was pending before.
class signal_shield {
 public:
  signal_shield() noexcept {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    sigaddset(&set_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    for (const int s : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, s) == 1) sigdelset(&set_, s);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~signal_shield() {
    sigset_t pending;
    sigpending(&pending);
    for (const int s : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&set_, s) != 1 || sigismember(&pending, s) != 1) continue;
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, s);
      int taken = 0;
      sigwait(&one, &taken);  // pending: it does not wait
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved_errno_;
  }
  signal_shield(const signal_shield&) = delete;
  signal_shield& operator=(const signal_shield&) = delete;

 private:
  no_cancellation whole_;
  sigset_t set_;
  sigset_t before_;
  int saved_errno_ = errno;
};

}  // namespace os
}  // namespace detail
}  // namespace v0
}  // namespace tidemark

#endif
