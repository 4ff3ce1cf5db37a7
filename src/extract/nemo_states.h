#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "extract/foreign_states.h"
#include "extract/teacher_inverse.h"

namespace eaglet {

// NeMo Automodel's EAGLE-3 cache: shards of samples padded to one length, with the teacher's probabilities in
// place of the last state. A sample's path is "SHARD#ROW".

struct NemoManifest {
  std::vector<std::int32_t> selected_token_ids;  // what the probabilities are of
  std::vector<std::int32_t> output_layers;       // captured, counted as outputs; may be empty
};
/// kConfig: top-k probabilities, or a version we do not know; kNotFound.
Result<NemoManifest> read_nemo_manifest(const std::string& directory);

Result<std::vector<std::string>> list_nemo_samples(const std::string& directory);
/// The sample with its captured states; its first token id is not in the file and stays 0
/// (first_token_unknown), its last state is missing until rebuild_last_state().
Result<ForeignStates> open_nemo_sample(const std::string& sample);
/// "DIR/shard-000000.safetensors" of a sample's path; other paths as they are.
std::string file_of_sample(const std::string& path);

/// Adds the slot of the last state. kDataLoss with the reason: probabilities of zero, or not this target's.
Status rebuild_last_state(const TeacherInverse& inverse, ForeignStates* states);

}  // namespace eaglet
