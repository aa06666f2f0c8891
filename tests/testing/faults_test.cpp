// SPDX-License-Identifier: MIT
#include <tidemark/hook/global_new.hpp>

#include "faults.hpp"
