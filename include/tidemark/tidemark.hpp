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

#include <tidemark/sys/allocator.hpp>
#include <tidemark/sys/file.hpp>
#include <tidemark/sys/host.hpp>
#include <tidemark/sys/limit.hpp>
#include <tidemark/sys/limit_reading.hpp>
#include <tidemark/sys/mappings.hpp>
#include <tidemark/sys/peak_reset.hpp>
#include <tidemark/sys/process.hpp>
#include <tidemark/sys/process_tree.hpp>
#include <tidemark/sys/region.hpp>

#include <tidemark/alloc/allocator.hpp>
#include <tidemark/alloc/resource.hpp>

#include <tidemark/scope/measure.hpp>
#include <tidemark/scope/meter.hpp>
#include <tidemark/scope/scope.hpp>
#include <tidemark/scope/task.hpp>

#include <tidemark/object/counted.hpp>
#include <tidemark/object/cycle.hpp>
#include <tidemark/object/cycles.hpp>
#include <tidemark/object/dot.hpp>
#include <tidemark/object/edges.hpp>
#include <tidemark/object/footprint.hpp>
#include <tidemark/object/holders.hpp>
#include <tidemark/object/object_key.hpp>
#include <tidemark/object/slot_handle.hpp>
#include <tidemark/object/weak.hpp>
#include <tidemark/object/weak_map.hpp>
#include <tidemark/object/weak_view.hpp>

#include <tidemark/gpu/device.hpp>
#include <tidemark/gpu/meter.hpp>
#include <tidemark/gpu/pool.hpp>
#include <tidemark/gpu/process.hpp>

#include <tidemark/sink/callback.hpp>
#include <tidemark/sink/csv.hpp>
#include <tidemark/sink/json.hpp>
#include <tidemark/sink/mprof.hpp>
#include <tidemark/sink/openmetrics.hpp>
#include <tidemark/sink/ring.hpp>
#include <tidemark/sink/summary.hpp>
#include <tidemark/sink/text.hpp>
#include <tidemark/sink/trace_event.hpp>

#include <tidemark/monitor/alert.hpp>
#include <tidemark/monitor/dump.hpp>
#include <tidemark/monitor/growth.hpp>
#include <tidemark/monitor/monitor.hpp>
#include <tidemark/monitor/out_of_memory.hpp>
#include <tidemark/monitor/pressure.hpp>
#include <tidemark/monitor/where.hpp>
