// SPDX-License-Identifier: MIT
// The version of tidemark. Meson and the package files read these three lines; nothing else repeats them.
#pragma once

#define TIDEMARK_VERSION_MAJOR 0
#define TIDEMARK_VERSION_MINOR 1
#define TIDEMARK_VERSION_PATCH 0
