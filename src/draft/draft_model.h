#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/accelerator.h"
#include "device/compute_type.h"
#include "device/placed_array.h"
#include "draft/draft_weights.h"
#include "ops/loss_kind.h"
#include "tensor/state_rows.h"

namespace eaglet {

/// "kl_div", "rkl", ... or a JSON object of weights {"ce": 0.1, "tv": 0.9}.
Result<std::vector<LossTerm>> parse_loss(const std::string& text);

/// Rows after the data shift; views, the caller keeps them alive. document_ids -1 = padding.
struct DraftInputs {
  std::int64_t rows = 0;                       // T
  const std::int32_t* input_ids = nullptr;     // [T]
  const std::int32_t* document_ids = nullptr;  // [T]
  const std::int32_t* position_ids = nullptr;  // [T]
  const std::uint8_t* loss_mask = nullptr;     // [T]
  const float* aux_hidden_states = nullptr;    // [T, A*Ht]
  const float* last_hidden_states = nullptr;   // [T, Ht], before the verifier's final norm
  StateRows* states = nullptr;                 // in place of the two arrays above
};

/// The verifier's tensors a draft learns from. Views; the caller keeps them alive and unchanged.
struct VerifierTensors {
  const float* embed_tokens = nullptr;  // [V, H]
  const float* final_norm = nullptr;    // [Ht]
  const float* lm_head = nullptr;       // [V, Ht], all rows; the draft's rows are gathered once
  double rms_norm_eps = 1e-5;
};

/// What the teacher's probabilities are normalised over (docs/math/losses.md).
enum class TeacherVocab { kDraft, kWhole };

struct TttOptions {
  int ttt_steps = 3;  // K, at most kMaxTttSteps
  std::vector<LossTerm> losses = {LossTerm{}};
  double step_decay = 1.0;           // weight of step k is decay^k ...
  std::vector<double> step_weights;  // ... or these [K], when given
  TeacherVocab teacher_vocab = TeacherVocab::kDraft;
  /// Share of each document's start rows that training unrolls (docs/math/row_sampling.md); 1 = all.
  double row_sampling = 1;
  /// What training steps multiply in; a step without gradients always measures in fp32.
  ComputeType compute_type = ComputeType::kF32;
  /// Key rows whose activations exist at once (docs/math/chunks.md); 0 = chosen by ttt_steps.
  std::int64_t chunk_rows = 0;
  /// What states come to a device as, at most: its memory for their way follows from it.
  StateForm states = StateForm::kF32;
};

/// The chunk length that chunk_rows 0 stands for: few enough rows that memory hardly grows with K, enough for
/// the matrix products to run at their peak.
std::int64_t default_chunk_rows(int ttt_steps);

/// Sums over one batch, by depth. Add them up over batches, then divide.
struct DepthSums {
  double loss = 0;        // sum over counted rows of the (unweighted by decay) loss
  double counted = 0;     // counted rows at this step
  double full_right = 0;  // counted rows with m_p = 1, right at steps 0..k
  double cond_right = 0, cond_total = 0;
  double outside = 0;  // counted rows whose target token lies outside the draft vocabulary
};

/// Predictions for evaluation, filled when asked for; index [k * rows + p]; -1 where not computed.
struct Predictions {
  std::vector<std::int32_t> draft_best;         // target id the draft ranks first, at row p, step k
  std::vector<std::int32_t> teacher_best;       // [T] target id, best inside the draft vocabulary
  std::vector<std::int32_t> teacher_best_full;  // [T] target id, best over the whole vocabulary
  bool with_logits = false;   // asks for `logits` too: large, for comparing with other programs
  std::vector<float> logits;  // [K * T * Vd] of the draft, by draft id; NaN where not computed
};

struct StepSums {
  std::vector<DepthSums> depth;  // [K]
  /// sum_k decay^k * loss_k / (counted_k + 1e-5): speculators' loss of one packed sequence.
  double loss(double step_decay) const;
  /// The same with the options' weights.
  double loss(const TttOptions& options) const;
};

/// How the gradients of a batch join those of the other batches of one update (accumulation, ranks).
struct GradientSharing {
  bool accumulate = false;      // add to gradients() instead of overwriting them
  std::vector<double> counted;  // [K] rows counted by depth over all batches of the update; empty: this one's
  /// Called while backward runs: gradients() from this element to the end have their last contribution. The
  /// value falls from call to call, to 0 at the end. May be empty.
  std::function<void(std::int64_t first_final)> on_final;
};

/// Seconds of the last step by phase.
struct StepSeconds {
  double plan = 0, load = 0, forward = 0, head = 0, backward = 0;  // load: weights made ready for products
};

/// Forward and backward of the draft over K drafting steps, with row skipping (docs/math/draft.md). All
/// memory is taken in create(); step() allocates nothing on the host. Same inputs, same thread count (on a
/// device: whatever it is): same bits. Not thread-safe.
class DraftModel {
 public:
  /// `device`: parameters, gradients and activations lie in its memory and steps run there; nullptr: the
  /// host. Inputs and results are the host's either way. The device closes after the model is gone.
  static Result<std::unique_ptr<DraftModel>> create(DraftWeights weights, const VerifierTensors& verifier,
                                                    const TttOptions& options, std::int64_t max_rows,
                                                    bool with_gradients, Accelerator* device = nullptr);
  virtual ~DraftModel() = default;
  /// With a device the values are those of create(), or what fetch_weights() brought last.
  virtual DraftWeights& weights() = 0;
  /// Brings weights().values up to date; on the host they always are.
  virtual Status fetch_weights() = 0;
  /// All parameters in the layout of weights().values, where steps read them: these values themselves, or the
  /// device's memory.
  virtual float* parameters() = 0;
  /// Gradients in the same layout (trainable part first, see parameter_table); overwritten by step().
  virtual PlacedArray<float>& gradients() = 0;
  virtual std::int64_t trainable_elements() const = 0;
  /// Bytes this object holds at most, for the log's first lines; with a device those of its memory.
  virtual std::uint64_t memory_bytes() const = 0;
  /// What the next steps do with their gradients; changed in place by the caller.
  virtual GradientSharing& sharing() = 0;
  /// Seed of the rows that the next steps draw (row_sampling).
  virtual void set_sampling_seed(std::uint64_t seed) = 0;
  virtual const StepSeconds& seconds() const = 0;
  /// After a step: begins to send a device what the first chunk of the next step, a training step, wants,
  /// while the ops of this one run. That step is on these inputs, unchanged until then, and with this seed of
  /// sampling. Nothing on the host. States that cannot be read are told by the step itself.
  virtual void look_ahead(const DraftInputs& next, std::uint64_t sampling_seed) = 0;
  /// Seconds so far in which the host read states for a device that had nothing else to do.
  virtual double starved_seconds() const = 0;
  /// Forward (and backward when `with_gradients`): gradients of sum_k weight_k * loss_k / (counted_k + 1e-5),
  /// counted over this batch, or as sharing() says. Without gradients every row is computed, whatever
  /// row_sampling says. kNumeric when the loss is not finite (gradients are then useless). kInvalidArgument
  /// when rows > max_rows. kInternal when the device failed. The sums' memory is kept between calls when the
  /// same object is given.
  virtual Status step(const DraftInputs& inputs, bool with_gradients, StepSums* sums,
                      Predictions* predictions) = 0;
  Result<StepSums> step(const DraftInputs& inputs, bool with_gradients, Predictions* predictions = nullptr) {
    StepSums sums;
    const Status status = step(inputs, with_gradients, &sums, predictions);
    if (!status.ok()) return status;
    return sums;
  }
};

}  // namespace eaglet
