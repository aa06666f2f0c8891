// SPDX-License-Identifier: MIT
// The flavours with tidemark's hook. TIDEMARK_OPT_ASK_SIZES comes from the command line.
#include <tidemark/hook/global_new.hpp>
