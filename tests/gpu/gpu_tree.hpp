// SPDX-License-Identifier: MIT
// A folder that stands for /sys and /proc while it lives, of a process in a container or not.
#pragma once

#include "fake_tree.hpp"

class gpu_tree : public fake_tree {
 public:
  /// The numbers of processes are the host's.
  void be_outermost() const { link("/proc/self/ns/pid", "pid:[4026531836]"); }
  void be_container() const { link("/proc/self/ns/pid", "pid:[4026532281]"); }
};
