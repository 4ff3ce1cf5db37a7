#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "client/dispatcher.h"
#include "client/http_pool.h"
#include "client/server_facts.h"
#include "extract/extract.h"
#include "extract/foreign_slots.h"

namespace eaglet {

// What has to stand before the first request for states.

struct StatesServers {
  std::unique_ptr<HttpPool> pool;
  DispatcherOptions dispatch;
  ServerFacts server;  // the first one's
};
/// The errors of probe_server; kUsage for settings that cannot be; kConfig when the servers differ or are no
/// vLLM.
Result<StatesServers> connect_states_servers(const ExtractOptions& options, Progress& progress);

/// What the servers' slots hold: what --captured-layer-ids says, else the layers to keep and the last state
/// (vLLM sorts them), else what its launch scripts capture.
Result<SlotChoice> slots_of_server(const ExtractOptions& options, const TargetFacts& facts);

/// The flags with which a vLLM server keeps these places.
std::string connector_flags(const std::vector<std::int32_t>& places);

}  // namespace eaglet
