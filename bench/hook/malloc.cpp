// SPDX-License-Identifier: MIT
// The flavours with tidemark's hook over the C family. TIDEMARK_OPT_ASK_SIZES comes from the command line.
#include <tidemark/hook/malloc.hpp>
