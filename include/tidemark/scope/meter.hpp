// SPDX-License-Identifier: MIT
// What a scope measures. A meter is a type with a name, a unit and a window; the library's own are included below, and any
// type of the same shape works:
//
//   struct my_meter {
//     static constexpr const char* name = "kv_tokens";
//     static constexpr const char* unit = "tokens";
//     static constexpr bool counts_events = false;
//     struct window {
//       window() noexcept;                              // the entry
//       reading<window_usage> usage() const;            // so far
//       reading<window_usage> close() noexcept;         // the exit
//     };
//   };
//
// Where one meter has several readings, its window has `void close(std::vector<meter_reading>&)` instead of the last two.
#pragma once

#include <tidemark/scope/meter/domains.hpp>
#include <tidemark/scope/meter/process_heap.hpp>
#include <tidemark/scope/meter/resident.hpp>
#include <tidemark/scope/meter/task_heap.hpp>
#include <tidemark/scope/meter/thread_heap.hpp>
