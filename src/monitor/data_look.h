#pragma once

#include <string>
#include <vector>

#include "monitor/run_config.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Looks, once each, at the newest checkpoint's vocabulary maps and at one file of the hidden states that the
/// run learns from. Only headers and the two maps are read. What is not there, or not readable, stays
/// unknown.
///   maps: d2t (draft id to target id, as an offset) and t2d (which target ids are in) in a checkpoint's
///   model.safetensors; else d2t.npy and t2d.npy where the configuration says or beside the data
///   data: "hidden_states" [tokens, layers, hidden] of a .safetensors file in the configured data directory,
///   and how many "token_ids" (or "input_ids") stand beside them
///   `open_folder`: where the run's open data files lie, for runs whose configuration names no directory; ""
void look_at_data(const RunConfig& config, const std::vector<FileView>& files, const std::string& open_folder,
                  DataSeen* data);

/// Where the run's data lies: `open_folder`, else the directory that its configuration names by its whole
/// path, if it is there; else "".
std::string data_folder(const RunConfig& config, const std::string& open_folder);

}  // namespace eaglet::monitor
