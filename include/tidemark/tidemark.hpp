// SPDX-License-Identifier: MIT
// All of tidemark but the headers that define global symbols: those are in hook/, for exactly one .cpp file.
#pragma once

#include <tidemark/config/config.hpp>
#include <tidemark/config/platform.hpp>
#include <tidemark/config/version.hpp>

#include <tidemark/core/account.hpp>
#include <tidemark/core/bytes.hpp>
#include <tidemark/core/domain.hpp>
#include <tidemark/core/gate.hpp>
#include <tidemark/core/handover.hpp>
#include <tidemark/core/ledger.hpp>
#include <tidemark/core/location.hpp>
#include <tidemark/core/path.hpp>
#include <tidemark/core/reading.hpp>
#include <tidemark/core/record.hpp>
#include <tidemark/core/sink.hpp>
#include <tidemark/core/stamp.hpp>
#include <tidemark/core/sync.hpp>
#include <tidemark/core/usage.hpp>

#include <tidemark/sys/file.hpp>
#include <tidemark/sys/mappings.hpp>
#include <tidemark/sys/peak_reset.hpp>
#include <tidemark/sys/process.hpp>
#include <tidemark/sys/process_tree.hpp>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>

#include <tidemark/scope/measure.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/scope/task.hpp>

#include <tidemark/sink/callback.hpp>
#include <tidemark/sink/csv.hpp>
#include <tidemark/sink/json.hpp>
#include <tidemark/sink/ring.hpp>
#include <tidemark/sink/summary.hpp>
#include <tidemark/sink/text.hpp>
