#include "draft/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "device/threads.h"
#include "draft/draft_core.h"
#include "ops/head_loss.h"
#include "ops/linear.h"

namespace eaglet {

double StepSums::loss(double step_decay) const {
  double total = 0, weight = 1;
  for (const DepthSums& d : depth) {
    total += weight * d.loss / (d.counted + 1e-5);
    weight *= step_decay;
  }
  return total;
}

namespace {

using draft_core::Core;

Status check_request(const DraftWeights& weights, const VerifierTensors& verifier, const TttOptions& options,
                     std::int64_t max_rows) {
  EAGLET_RETURN_IF_ERROR(check_draft_config(weights.config));
  if (options.ttt_steps < 1) return Status(StatusCode::kInvalidArgument, "ttt_steps must be at least 1");
  if (options.losses.empty()) return Status(StatusCode::kInvalidArgument, "there is no loss to train with");
  if (max_rows < 1) return Status(StatusCode::kInvalidArgument, "a batch needs at least one row");
  if (weights.vocab.size() != weights.config.draft_vocab)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the draft vocabulary has {} ids, its configuration says {}",
                              weights.vocab.size(), weights.config.draft_vocab));
  if (weights.embed_tokens.empty() && weights.config.hidden != weights.config.target_hidden)
    return Status(StatusCode::kConfig,
                  fmt::format("the draft is {} wide and the target {}, so the target's embeddings do not fit",
                              weights.config.hidden, weights.config.target_hidden),
                  "", "give a draft with embeddings of its own, or make it as wide as the target");
  if (verifier.final_norm == nullptr || verifier.lm_head == nullptr ||
      (verifier.embed_tokens == nullptr && weights.embed_tokens.empty()))
    return Status(StatusCode::kInvalidArgument, "the target's embeddings, head and final norm are needed");
  return {};
}

void gather_verifier_head(const DraftVocab& vocab, const VerifierTensors& verifier, std::int64_t width,
                          Core* core) {
  if (vocab.is_full()) return;  // rows in target order: the whole head is used in place
  core->verifier_head.resize(static_cast<std::size_t>(vocab.size() * width));
  for (std::int64_t i = 0; i < vocab.size(); ++i) {
    const float* row = verifier.lm_head + vocab.target_ids[static_cast<std::size_t>(i)] * width;
    std::copy(row, row + width, core->verifier_head.data() + i * width);
  }
}

class Model : public DraftModel {
 public:
  Model(DraftWeights weights, const VerifierTensors& verifier, const TttOptions& options)
      : weights_(std::move(weights)) {
    const DraftConfig& c = weights_.config;
    core_.config = c;
    core_.options = options;
    core_.verifier = verifier;
    core_.dims = {c.hidden,       c.target_hidden, c.num_aux(),   c.num_heads,  c.num_kv_heads,   c.head_dim,
                  c.intermediate, c.vocab,         c.draft_vocab, c.num_layers, options.ttt_steps};
    core_.rope = rope_table(c.rope, c.head_dim, c.max_position_embeddings);
    core_.embed_tokens = weights_.embed_tokens.empty() ? verifier.embed_tokens : weights_.embed_tokens.data();
    gather_verifier_head(weights_.vocab, verifier, c.target_hidden, &core_);
    core_.weights = draft_core::point_into(c, weights_.table, weights_.values.data(),
                                           static_cast<std::int64_t>(weights_.values.size()));
    for (const ParameterInfo& info : weights_.table)
      if (info.trainable) trainable_ = std::max(trainable_, info.offset + info.elements);
  }

  Status take_memory(std::int64_t max_rows, bool with_gradients) {
    max_rows_ = max_rows;
    if (!draft_core::take_buffers(max_rows, with_gradients, num_threads(), &core_))
      return Status(StatusCode::kNoSpace, fmt::format("no memory for batches of {} rows", max_rows), "",
                    "make max_seq_len smaller");
    with_gradients_ = with_gradients;
    if (with_gradients) gradients_.resize(static_cast<std::size_t>(trainable_));
    core_.gradient_block = gradients_.data();
    core_.gradients = draft_core::point_into(core_.config, weights_.table, gradients_.data(),
                                             static_cast<std::int64_t>(gradients_.size()));
    return {};
  }

  DraftWeights& weights() override { return weights_; }
  std::vector<float>& gradients() override { return gradients_; }
  std::int64_t trainable_elements() const override { return trainable_; }
  GradientSharing& sharing() override { return core_.sharing; }
  std::uint64_t memory_bytes() const override {
    return core_.buffers.arena.bytes() +
           sizeof(float) * (weights_.values.size() + gradients_.size() + core_.verifier_head.size());
  }

  Result<StepSums> step(const DraftInputs& inputs, bool with_gradients, Predictions* predictions) override {
    EAGLET_RETURN_IF_ERROR(check_inputs(inputs, with_gradients));
    plan_rows(inputs.rows, core_.options.ttt_steps, inputs.document_ids, inputs.position_ids,
              inputs.loss_mask, &core_.plan);
    if (with_gradients && !core_.sharing.accumulate) std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    draft_core::forward(inputs, &core_);
    draft_core::head_and_loss(inputs, with_gradients, &core_);
    StepSums sums = count(inputs);
    for (const DepthSums& depth : sums.depth)
      if (!std::isfinite(depth.loss)) return Status(StatusCode::kNumeric, "the loss is not finite");
    if (predictions != nullptr) predict(inputs, predictions);
    if (predictions != nullptr && predictions->with_logits) copy_logits(inputs, predictions);
    if (with_gradients) draft_core::backward(&core_);
    return sums;
  }

 private:
  Status check_inputs(const DraftInputs& inputs, bool with_gradients) const {
    if (inputs.rows > max_rows_)
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("a batch of {} rows, memory was taken for {}", inputs.rows, max_rows_));
    if (with_gradients && !with_gradients_)
      return Status(StatusCode::kInvalidArgument, "this model was made without gradients");
    for (std::int64_t p = 0; p < inputs.rows; ++p)
      if (inputs.document_ids[p] >= 0 && (inputs.input_ids[p] < 0 || inputs.input_ids[p] >= core_.dims.V))
        return Status(StatusCode::kDataLoss,
                      fmt::format("token id {} at row {} is outside the vocabulary of {}",
                                  inputs.input_ids[p], p, core_.dims.V),
                      "", "check that the data was made with this target's tokenizer");
    return {};
  }

  // Right-so-far by row: starts as the mask, and a row without an entry at a step drops out there.
  StepSums count(const DraftInputs& inputs) {
    StepSums sums;
    sums.depth.resize(static_cast<std::size_t>(core_.dims.K));
    right_.assign(inputs.loss_mask, inputs.loss_mask + inputs.rows);
    for (std::size_t k = 0; k < sums.depth.size(); ++k) {
      DepthSums& depth = sums.depth[k];
      const RowPlan::Step& step = core_.plan.steps[k];
      now_.assign(static_cast<std::size_t>(inputs.rows), 0);
      depth.counted = static_cast<double>(step.counted);
      depth.cond_total = rows_asked(inputs, static_cast<std::int64_t>(k));
      for (std::size_t e = 0; e < step.entry_live.size(); ++e) {
        const auto row = static_cast<std::size_t>(step.live[static_cast<std::size_t>(step.entry_live[e])]);
        const bool right = right_[row] != 0 &&
                           core_.buffers.best[k][e] ==
                               core_.buffers.teacher_best[static_cast<std::size_t>(step.entry_teacher[e])];
        now_[row] = right ? 1 : 0;
        if (step.entry_counted[e] == 0) continue;
        depth.loss += core_.buffers.loss[k][e];
        if (right) ++depth.full_right;
      }
      depth.cond_right = depth.full_right;
      right_.swap(now_);
    }
    return sums;
  }

  // Supervised rows that were right at every step before k and whose row p+k lies in the document.
  double rows_asked(const DraftInputs& inputs, std::int64_t k) const {
    double asked = 0;
    for (std::int64_t p = 0; p + k < inputs.rows; ++p)
      if (right_[static_cast<std::size_t>(p)] != 0 && inputs.document_ids[p] >= 0 &&
          inputs.document_ids[p + k] == inputs.document_ids[p])
        ++asked;
    return asked;
  }

  void predict(const DraftInputs& inputs, Predictions* to) {
    const auto rows = static_cast<std::size_t>(inputs.rows);
    const std::vector<std::int32_t>& ids = weights_.vocab.target_ids;
    const std::vector<std::int32_t>& teachers = core_.plan.teachers;
    to->draft_best.assign(rows * static_cast<std::size_t>(core_.dims.K), -1);
    to->teacher_best.assign(rows, -1);
    to->teacher_best_full.assign(rows, -1);
    for (std::size_t k = 0; k < core_.plan.steps.size(); ++k) {
      const RowPlan::Step& step = core_.plan.steps[k];
      for (std::size_t e = 0; e < step.entry_live.size(); ++e) {
        const auto row = static_cast<std::size_t>(step.live[static_cast<std::size_t>(step.entry_live[e])]);
        to->draft_best[k * rows + row] = ids[static_cast<std::size_t>(core_.buffers.best[k][e])];
      }
    }
    best_over_vocab(static_cast<std::int64_t>(teachers.size()), core_.dims.Ht, core_.dims.V,
                    core_.buffers.teacher, core_.verifier.lm_head, core_.buffers.teacher_best_full.data(),
                    core_.buffers.argmax_scratch);
    for (std::size_t t = 0; t < teachers.size(); ++t) {
      const auto row = static_cast<std::size_t>(teachers[t]);
      to->teacher_best[row] = ids[static_cast<std::size_t>(core_.buffers.teacher_best[t])];
      to->teacher_best_full[row] = core_.buffers.teacher_best_full[t];
    }
  }

  // The one place where logits exist as a whole; head_and_loss() never keeps them.
  void copy_logits(const DraftInputs& inputs, Predictions* to) {
    const auto rows = static_cast<std::size_t>(inputs.rows), width = static_cast<std::size_t>(core_.dims.Vd);
    to->logits.assign(core_.plan.steps.size() * rows * width, std::numeric_limits<float>::quiet_NaN());
    for (std::size_t k = 0; k < core_.plan.steps.size(); ++k) {
      const RowPlan::Step& step = core_.plan.steps[k];
      for (std::size_t e = 0; e < step.entry_live.size(); ++e) {
        const auto row = static_cast<std::size_t>(step.live[static_cast<std::size_t>(step.entry_live[e])]);
        linear(1, core_.dims.Vd, core_.dims.H,
               core_.buffers.xs[k] + e * static_cast<std::size_t>(core_.dims.H), core_.weights.lm_head,
               core_.dims.H, false, to->logits.data() + (k * rows + row) * width);
      }
    }
  }

  DraftWeights weights_;
  std::vector<float> gradients_;
  std::int64_t trainable_ = 0, max_rows_ = 0;
  bool with_gradients_ = false;
  Core core_;
  std::vector<std::uint8_t> right_, now_;
};

}  // namespace

Result<std::unique_ptr<DraftModel>> DraftModel::create(DraftWeights weights, const VerifierTensors& verifier,
                                                       const TttOptions& options, std::int64_t max_rows,
                                                       bool with_gradients) {
  EAGLET_RETURN_IF_ERROR(check_request(weights, verifier, options, max_rows));
  auto model = std::make_unique<Model>(std::move(weights), verifier, options);
  EAGLET_RETURN_IF_ERROR(model->take_memory(max_rows, with_gradients));
  return std::unique_ptr<DraftModel>(std::move(model));
}

}  // namespace eaglet
