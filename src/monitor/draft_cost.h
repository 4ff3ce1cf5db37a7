#pragma once

#include <optional>
#include <string>

#include "monitor/run_config.h"

namespace eaglet::monitor {

/// Sizes of an EAGLE-3 draft of one layer, by which parameters, arithmetic and memory are foretold.
struct DraftShape {
  double hidden = 0, aux_layers = 3, query_width = 0, kv_width = 0, intermediate = 0;
  double draft_vocab = 0, teacher_vocab = 0, target_vocab = 0;  // teacher: rows of its head that are used
  double ttt_steps = 0, document_length = 0;                    // mean tokens of a document in a pack
  bool head_trained = true;
};
/// From a configuration; nullopt when a size is missing.
std::optional<DraftShape> draft_shape(const RunConfig& config);

/// Matrices only: fc, q, k, v on a double-width input, o, MLP, head (norms are under 0.01 %).
double trainable_parameters(const DraftShape& shape);
/// With the frozen embedding and the teacher's head.
double total_parameters(const DraftShape& shape);
/// FLOP of forward and backward per token, one multiply-add = 2 (docs/watch.md).
double training_flop_per_token(const DraftShape& shape);
/// Dense bf16 peak of a GPU by its name, in FLOP/s; 0 when we do not know it.
double device_peak_flops(const std::string& name);
/// Bytes that do not depend on the batch: frozen weights in bf16, trained ones with gradient and two fp32
/// moments.
double fixed_training_bytes(const DraftShape& shape);
/// Bytes of a checkpoint, at most: all weights in bf16, two moments in fp32 of what is trained.
double checkpoint_bytes(const DraftShape& shape);

}  // namespace eaglet::monitor
