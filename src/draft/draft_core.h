#pragma once

// The parts of DraftModel; only draft/*.cc include this.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/accelerator.h"
#include "device/float_arena.h"
#include "device/linear_weight.h"
#include "device/placed_array.h"
#include "draft/draft_model.h"
#include "draft/row_plan.h"
#include "draft/state_feed.h"
#include "ops/attention.h"
#include "ops/head_loss.h"

namespace eaglet::draft_core {

/// Pointers to one layer's weights, or to the gradients of the same tensors; nullptr = the draft has no such
/// tensor (or it is frozen). Layer 0 reads [embedding | state], so its q, k and v have 2H columns: the state
/// half starts at column `state_column`.
struct LayerWeights {
  float* state_norm = nullptr;                     // hidden_norm of layer 0, input_layernorm above  [H]
  float* post_norm = nullptr;                      // [H]
  float *q = nullptr, *k = nullptr, *v = nullptr;  // [N*D | Kv*D, stored_columns]
  float *q_norm = nullptr, *k_norm = nullptr;      // [D]
  float *o = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;
  float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
};

struct AllWeights {
  float *embed = nullptr, *fc = nullptr, *input_norm = nullptr, *embed_norm = nullptr, *norm = nullptr;
  float* lm_head = nullptr;
  std::vector<float*> fc_norm;  // [A] or empty
  std::vector<LayerWeights> layers;
};

/// Points into a block laid out as `table`; tensors beyond `elements` (a frozen head's gradient) become
/// nullptr.
AllWeights point_into(const DraftConfig& config, const std::vector<ParameterInfo>& table, float* block,
                      std::int64_t elements);

/// Dimension letters of DraftConfig, and what follows from them.
struct Dims {
  std::int64_t H, Ht, A, N, Kv, D, F, V, Vd, L, K;
  std::int64_t q_width() const { return N * D; }
  std::int64_t kv_width() const { return Kv * D; }
};

/// Activations of one layer at one drafting step, kept for backward. Rows: n_in (those that give keys) or n_q
/// (those that ask).
struct LayerStep {
  float *x_in = nullptr, *hn = nullptr, *hn_inv = nullptr;  // [n_in, H] [n_in, H] [n_in]
  float *q = nullptr, *k = nullptr, *v = nullptr;           // after norm and rope [n_q, N*D] [n_in, Kv*D]
  float *q_raw = nullptr, *k_raw = nullptr;                 // before the per-head norm (qk_norm only)
  float *q_inv = nullptr, *k_inv = nullptr;                 //
  float *attn = nullptr, *lse = nullptr;                    // [n_q, N*D] [n_q, N]
  float *x_mid = nullptr, *zn = nullptr, *z_inv = nullptr;  // [n_q, H] [n_q, H] [n_q]
  float *gate = nullptr, *up = nullptr, *x_out = nullptr;   // [n_q, F] [n_q, F] [n_q, H]
  float *d_k = nullptr, *d_v = nullptr;  // gradients of k and v, gathered over all later steps
};

/// Step-0 keys and values of one layer for the whole batch [keys of the batch, Kv*D], with their gradients:
/// what crosses the border between chunks.
struct BatchKeys {
  float *k = nullptr, *v = nullptr, *d_k = nullptr, *d_v = nullptr;
};

/// Pointers into the arena, laid out anew for every chunk by its true sizes, so that pages which no row needs
/// are never touched. Per-batch arrays lie at the front and stay where they are. Vectors are the host's.
struct Buffers {
  FloatArena arena;
  float* memory = nullptr;
  std::vector<BatchKeys> keys;                                                     // [L]
  float *aux = nullptr, *aux_normed = nullptr, *aux_inv = nullptr, *h0 = nullptr;  // [S, A*Ht] ... [S, H]
  float *embed = nullptr, *embed_normed = nullptr, *embed_inv = nullptr;           // [E, H]
  float *embed_q = nullptr, *embed_k = nullptr,
        *embed_v = nullptr;  // the embedding half of q, k, v [E, width]
  float *d_embed_q = nullptr, *d_embed_k = nullptr, *d_embed_v = nullptr;
  float *key_cos = nullptr, *key_sin = nullptr;  // [S, D/2]
  std::vector<float*> cos, sin;                  // [K] [n_k, D/2]
  std::vector<std::vector<LayerStep>> at;        // [K][L]
  std::vector<float*> f_normed, f_inv, xs;       // [K]; d_xs takes the place of xs
  float *teacher_raw = nullptr, *teacher = nullptr, *teacher_inv = nullptr;
  float *hn_of_queries = nullptr, *act = nullptr, *d_x = nullptr, *d_in = nullptr, *d_hn = nullptr;
  float *d_part = nullptr, *d_attn = nullptr, *d_q = nullptr;
  float *attention_scratch = nullptr, *head_scratch = nullptr, *norm_partial = nullptr;
  float* argmax_scratch = nullptr;
  std::int64_t attention_scratch_floats = 0;
  std::vector<std::vector<float>> loss;          // [K] by entry
  std::vector<std::vector<std::int32_t>> best;   // [K] draft ids by entry
  std::vector<std::int32_t> teacher_best;        // by teacher row: draft id
  std::vector<std::int32_t> teacher_best_full;   // by teacher row: target id, whole vocabulary
  std::vector<std::vector<float>> entry_weight;  // [K]
};

/// The chunk's index arrays where the ops read them: those of ChunkPlan, or copies in a device's memory.
struct ChunkIndex {
  struct Step {
    const std::int32_t *key_of_live = nullptr, *source_key = nullptr, *positions = nullptr;
    const std::int32_t *parent = nullptr, *entry_live = nullptr;
  };
  const std::int32_t *key_positions = nullptr, *tokens = nullptr;  // [S] [E]
  const std::int32_t* identity = nullptr;                          // 0, 1, 2, ...
  std::vector<Step> steps;                                         // [K]
  std::vector<std::vector<const std::int32_t*>> own_index;         // [K][K]; [k][j], 1 <= j <= k
};

/// What ChunkIndex points into beside the plan itself.
struct IndexMemory {
  std::vector<std::int32_t> tokens, identity;
  std::vector<std::int32_t> packed;  // all arrays of a chunk, one after another, as the device gets them
  PlacedArray<std::int32_t> on_device, identity_on_device;
  std::uint64_t device_bytes() const { return on_device.bytes() + identity_on_device.bytes(); }
};

/// Copies in a device's memory of what the host was given; nothing on the host.
struct DeviceCopies {
  PlacedArray<float> embed_tokens, final_norm, inv_freq;
  PlacedArray<float> teacher_rows;  // of the verifier's head, in the draft's order
  PlacedArray<float> whole_head;    // where it is looked at as a whole
  PlacedArray<std::int32_t> draft_to_target;
  std::vector<float> staging;  // states on their way
  std::uint64_t bytes() const {
    return embed_tokens.bytes() + final_norm.bytes() + inv_freq.bytes() + teacher_rows.bytes() +
           whole_head.bytes() + draft_to_target.bytes();
  }
};

/// How many rows of each kind a chunk has; the memory follows from it.
struct ChunkSizes {
  std::int64_t batch_keys = 0, longest_document = 0;
  std::int64_t keys = 0, rows = 0, teachers = 0;
  std::vector<std::int64_t> live, entries;  // [K]
};

/// Which rows a layer works on at a step; nullptr index = identity.
struct LayerRows {
  std::int64_t n_in = 0, n_q = 0;
  const std::int32_t* q_in = nullptr;       // [n_q] row among the n_in rows
  const std::int32_t* q_source = nullptr;   // [n_q] row of the chunk whose token is embedded
  const std::int32_t* in_source = nullptr;  // [n_in]
  const std::vector<AttentionSpan>* spans = nullptr;
  const std::int32_t* key_of_query = nullptr;
  const float *q_cos = nullptr, *q_sin = nullptr, *in_cos = nullptr, *in_sin = nullptr;
};

/// The attention inputs of a layer at a step need arrays of pointers; kept here so that a step allocates
/// nothing.
struct AttentionPointers {
  std::vector<const float*> own_keys, own_values;
  std::vector<const std::int32_t*> own_index;
  std::vector<float*> d_own_keys, d_own_values;
};

/// The weights of the matrix products, made ready for them (device/linear_weight.h).
struct LayerProducts {
  std::unique_ptr<LinearWeight> embed_q, embed_k, embed_v;  // layer 0: the columns that read the embedding
  std::unique_ptr<LinearWeight> q, k, v;                    // the columns that read the state
  std::unique_ptr<LinearWeight> o, gate, up, down;
};
struct Products {
  ProductWorkspace workspace;
  std::unique_ptr<LinearWeight> fc, head;
  std::unique_ptr<LinearWeight> teacher;        // rows of the verifier's head, for training steps
  std::unique_ptr<LinearWeight> exact_teacher;  // the same in fp32, for steps that measure
  std::vector<LayerProducts> layers;
  std::uint64_t bytes() const;
};

/// Beyond this a packed fp32 copy of a weight costs more memory than its speed is worth.
inline constexpr std::int64_t kMostPackedBytes = std::int64_t{512} << 20;

/// All that forward and backward share.
struct Core {
  DraftConfig config;
  Dims dims;
  TttOptions options;
  VerifierTensors verifier;
  Accelerator* device = nullptr;                  // where the arrays lie; nullptr: the host
  bool counts_for_device = false;                 // no array exists, sizes are those on a device
  const float* embed_tokens = nullptr;            // [V, H]
  const std::int32_t* draft_to_target = nullptr;  // [Vd]
  RopeTable rope;
  const float* inv_freq = nullptr;  // the table's, where the ops read it
  AllWeights weights, gradients;
  Products products;
  bool head_is_frozen = false;
  bool exact = false;  // the step at hand only measures: everything is fp32
  GradientSharing sharing;
  const float* gradient_block = nullptr;  // all gradients, in table order
  RowPlan row_plan;
  ChunkPlan chunk;
  ChunkIndex index;
  IndexMemory index_memory;
  DeviceCopies copies;
  std::unique_ptr<StateFeed> feed;  // of a device
  ChunkSizes sizes;
  Buffers buffers;
  AttentionPointers attention_pointers;
  HeadLossInputs head_inputs;
  HeadLossOutputs head_outputs;
  HeadLossWorkspace head_workspace;

  bool on_device() const { return device != nullptr || counts_for_device; }
  std::int64_t num_keys() const { return chunk.keys; }
  std::int64_t num_rows() const { return static_cast<std::int64_t>(chunk.rows.size()); }
  std::int64_t num_live(int k) const {
    return static_cast<std::int64_t>(chunk.steps[static_cast<std::size_t>(k)].live.size());
  }
  std::int64_t num_entries(int k) const {
    return static_cast<std::int64_t>(chunk.steps[static_cast<std::size_t>(k)].entry_live.size());
  }
  AttentionShape attention_shape(std::int64_t layer) const;
  HeadLossShape head_shape() const;
  LayerRows layer_rows(int k, std::int64_t layer) const;
};

/// Bytes that Products::bytes() will tell after make_products(), but for the filling of oneDNN's layouts.
std::uint64_t forecast_product_bytes(ComputeType type, bool with_gradients, bool head_is_frozen,
                                     TeacherVocab teacher, const Dims& dims, bool on_device);
/// Makes the products of all weights, and takes in those that never change: the teacher's and a frozen head.
/// place_constants() must have run.
void make_products(ComputeType type, bool with_gradients, const DraftVocab& vocab, Core* core);
/// Takes in the weights' present values. `exact`: fp32, for a step that only measures.
void load_products(bool exact, Core* core);

/// Sizes of core.chunk as planned, and the largest that batches of max_rows rows in chunks of chunk_rows key
/// rows can have.
void chunk_sizes(const Core& core, ChunkSizes* sizes);
ChunkSizes largest_chunk(const Core& core, std::int64_t max_rows, std::int64_t chunk_rows);
/// What the way of states to a device takes for these.
StateFeed::Sizes feed_sizes(const Core& core, const ChunkSizes& largest);

/// Floats that a chunk of these sizes needs; sets every pointer in `buffers` when it has memory.
std::int64_t lay_out(const Core& core, const ChunkSizes& sizes, bool with_gradients, int threads,
                     Buffers* buffers);
/// Takes memory for the largest chunk. kNoSpace when there is not that much.
Status take_buffers(std::int64_t max_rows, std::int64_t chunk_rows, bool with_gradients, int threads,
                    Core* core);
/// Takes memory for the index arrays of the largest chunk, and points core.index at those of core.chunk.
Status take_index(const ChunkSizes& largest, Core* core);
void place_index(const DraftInputs& inputs, Core* core);

/// What DraftModel::create() is asked for, judged before any memory is taken. kInvalidArgument, kConfig.
Status check_request(const DraftWeights& weights, const VerifierTensors& verifier, const TttOptions& options,
                     std::int64_t max_rows);
/// Puts what the host was given where the ops read it: embeddings, the teacher's norm and head, rotary
/// frequencies, the vocabulary's map. On the host these stay where they are.
Status place_constants(const DraftVocab& vocab, Core* core);
/// The verifier's whole head [V, Ht] where the ops read it; on a device it is copied when first asked for.
Result<const float*> whole_head(Core* core);
/// Rows of the batch's states that belong together in rows of the chunk: to [n, width] where `to` lies.
Status fetch_states(const DraftInputs& inputs, const std::vector<std::int32_t>& rows, std::int64_t n,
                    std::int64_t width, bool captured, Core* core, float* to);

/// What forward keeps of step 0 for the chunk: fused states, embeddings, keys and values (and, in deeper
/// drafts, the lower layers). `keys_known`: the batch's keys and values were made before, only the chunk's
/// own activations are wanted. Fails only where inputs.states fails.
Status keys_forward(const DraftInputs& inputs, bool keys_known, Core* core);
/// All drafting steps of the chunk up to the normed states; keys_forward must have run on this chunk.
void queries_forward(Core* core);
/// Head, losses and (when asked) the gradients of the normed states and of the head.
Status head_and_loss(const DraftInputs& inputs, bool with_gradients, Core* core);
/// From the gradients of the normed states to those of every weight, added up; the chunks of a batch come
/// last to first. zero_key_gradients() before the first of them. `last_chunk`: nothing follows, gradients
/// become final.
void zero_key_gradients(Core* core);
void backward(bool last_chunk, Core* core);

AttentionInputs attention_inputs(int k, std::int64_t layer, const LayerRows& rows, Core* core);

}  // namespace eaglet::draft_core
