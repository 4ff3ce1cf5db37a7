#include "draft/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "device/threads.h"
#include "draft/draft_core.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace eaglet {

double StepSums::loss(double step_decay) const {
  double total = 0, weight = 1;
  for (const DepthSums& d : depth) {
    total += weight * d.loss / (d.counted + 1e-5);
    weight *= step_decay;
  }
  return total;
}

double StepSums::loss(const TttOptions& options) const {
  if (options.step_weights.empty()) return loss(options.step_decay);
  double total = 0;
  for (std::size_t k = 0; k < depth.size(); ++k)
    total += options.step_weights[k] * depth[k].loss / (depth[k].counted + 1e-5);
  return total;
}

std::int64_t default_chunk_rows(int ttt_steps) {
  constexpr std::int64_t kRowSteps = 8192;
  return std::max<std::int64_t>(kRowSteps / ttt_steps, 256);
}

namespace {

using draft_core::Core;

// Adds the time from its birth to its end to a phase.
class PhaseTimer {
 public:
  explicit PhaseTimer(double* seconds) : seconds_(seconds), begin_(monotonic_seconds()) {}
  ~PhaseTimer() { *seconds_ += monotonic_seconds() - begin_; }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double* seconds_;
  double begin_;
};

class Model : public DraftModel {
 public:
  Model(DraftWeights weights, const VerifierTensors& verifier, const TttOptions& options, Accelerator* device)
      : weights_(std::move(weights)) {
    const DraftConfig& c = weights_.config;
    core_.config = c;
    core_.options = options;
    core_.verifier = verifier;
    core_.device = device;
    core_.dims = {c.hidden,       c.target_hidden, c.num_aux(),   c.num_heads,  c.num_kv_heads,   c.head_dim,
                  c.intermediate, c.vocab,         c.draft_vocab, c.num_layers, options.ttt_steps};
    core_.rope = rope_table(c.rope, c.head_dim, c.max_position_embeddings);
    core_.embed_tokens = weights_.embed_tokens.empty() ? verifier.embed_tokens : weights_.embed_tokens.data();
    core_.draft_to_target = weights_.vocab.target_ids.data();
    in_draft_.assign(static_cast<std::size_t>(c.vocab), 0);
    for (const std::int32_t id : weights_.vocab.target_ids) in_draft_[static_cast<std::size_t>(id)] = 1;
    chunk_rows_ = options.chunk_rows > 0 ? options.chunk_rows : default_chunk_rows(options.ttt_steps);
    for (const ParameterInfo& info : weights_.table)
      if (info.trainable) trainable_ = std::max(trainable_, info.offset + info.elements);
  }

  Status take_memory(std::int64_t max_rows, bool with_gradients) {
    max_rows_ = max_rows;
    const Status taken =
        draft_core::take_buffers(max_rows, chunk_rows_, with_gradients, num_threads(), &core_);
    if (taken.code() == StatusCode::kNoSpace)
      return Status(StatusCode::kNoSpace,
                    fmt::format("no memory for batches of {} rows: {}", max_rows, taken.what()),
                    taken.where(), "make max_seq_len smaller");
    EAGLET_RETURN_IF_ERROR(taken);
    EAGLET_RETURN_IF_ERROR(place_weights());
    with_gradients_ = with_gradients;
    if (with_gradients) EAGLET_RETURN_IF_ERROR(gradients_.take(trainable_, core_.device));
    core_.gradient_block = gradients_.data();
    core_.gradients =
        draft_core::point_into(core_.config, weights_.table, gradients_.data(), gradients_.size());
    core_.head_is_frozen = !weights_.find("lm_head.weight")->trainable;
    EAGLET_RETURN_IF_ERROR(draft_core::place_constants(weights_.vocab, &core_));
    draft_core::make_products(core_.options.compute_type, with_gradients, weights_.vocab, &core_);
    return device_state();
  }

  DraftWeights& weights() override { return weights_; }
  Status fetch_weights() override {
    if (!core_.on_device()) return {};
    on_device_.read(0, on_device_.size(), weights_.values.data());
    return device_state();
  }
  float* parameters() override { return core_.on_device() ? on_device_.data() : weights_.values.data(); }
  PlacedArray<float>& gradients() override { return gradients_; }
  std::int64_t trainable_elements() const override { return trainable_; }
  GradientSharing& sharing() override { return core_.sharing; }
  void set_sampling_seed(std::uint64_t seed) override { sampling_seed_ = seed; }
  const StepSeconds& seconds() const override { return seconds_; }
  std::uint64_t memory_bytes() const override { return core_.buffers.arena.bytes() + fixed_bytes(); }

  void look_ahead(const DraftInputs& next, std::uint64_t sampling_seed) override {
    if (core_.feed == nullptr) return;
    plan_rows(next.rows, core_.options.ttt_steps, next.document_ids, next.loss_mask,
              {core_.options.row_sampling, sampling_seed}, &next_rows_);
    const std::int64_t keys = std::min(chunk_rows_, next_rows_.keys);
    // States that cannot be read are read again, and told, by the step that wants them.
    if (!send_ahead(next, next_rows_, 0, keys).ok() || keys < next_rows_.keys) return;
    plan_chunk(next_rows_, core_.options.ttt_steps, next.position_ids, next.loss_mask, 0, keys, &next_chunk_);
    static_cast<void>(send_teachers_ahead(next, next_chunk_));
  }

  double starved_seconds() const override {
    return core_.feed != nullptr ? core_.feed->starved_seconds() : 0;
  }

  Status step(const DraftInputs& inputs, bool with_gradients, StepSums* sums,
              Predictions* predictions) override {
    EAGLET_RETURN_IF_ERROR(check_inputs(inputs, with_gradients));
    seconds_ = {};
    plan(inputs, with_gradients);
    load_weights(with_gradients);
    start_sums(inputs, sums);
    if (predictions != nullptr) start_predictions(inputs, predictions);
    if (with_gradients && !core_.sharing.accumulate) zero_rows(trainable_, 1, gradients_.data());
    const Status status =
        with_gradients ? train_chunks(inputs, sums, predictions) : look_at_chunks(inputs, sums, predictions);
    if (!status.ok() && core_.feed != nullptr) core_.feed->drop();
    // A device that failed answers with any numbers: its failure is the cause.
    EAGLET_RETURN_IF_ERROR(device_state());
    return status;
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

  Status device_state() const { return core_.on_device() ? core_.device->check() : Status(); }

  Status place_weights() {
    const auto n = static_cast<std::int64_t>(weights_.values.size());
    if (core_.on_device()) {
      EAGLET_RETURN_IF_ERROR(on_device_.take(n, core_.device));
      on_device_.write(0, n, weights_.values.data());
    }
    core_.weights = draft_core::point_into(core_.config, weights_.table, parameters(), n);
    if (core_.weights.embed != nullptr) core_.embed_tokens = core_.weights.embed;
    return {};
  }

  std::uint64_t fixed_bytes() const {
    if (core_.on_device())
      return on_device_.bytes() + gradients_.bytes() + core_.products.bytes() + core_.copies.bytes() +
             core_.index_memory.device_bytes() + core_.feed->bytes();
    return sizeof(float) * (weights_.values.size() + weights_.embed_tokens.size()) + gradients_.bytes() +
           core_.products.bytes();
  }

  void plan(const DraftInputs& inputs, bool with_gradients) {
    const PhaseTimer timer(&seconds_.plan);
    const RowSampling sampling{with_gradients ? core_.options.row_sampling : 1.0, sampling_seed_};
    plan_rows(inputs.rows, core_.options.ttt_steps, inputs.document_ids, inputs.loss_mask, sampling,
              &core_.row_plan);
  }

  void load_weights(bool with_gradients) {
    const PhaseTimer timer(&seconds_.load);
    draft_core::load_products(!with_gradients, &core_);
  }

  void plan_chunk_at(const DraftInputs& inputs, std::int64_t first) {
    const PhaseTimer timer(&seconds_.plan);
    plan_chunk(core_.row_plan, core_.options.ttt_steps, inputs.position_ids, inputs.loss_mask, first,
               std::min(chunk_rows_, core_.row_plan.keys - first), &core_.chunk);
    draft_core::chunk_sizes(core_, &core_.sizes);
  }

  Status make_keys(const DraftInputs& inputs, std::int64_t first, bool keys_known) {
    plan_chunk_at(inputs, first);
    draft_core::lay_out(core_, core_.sizes, with_gradients_, num_threads(), &core_.buffers);
    draft_core::place_index(inputs, &core_);
    const PhaseTimer timer(&seconds_.forward);
    return draft_core::keys_forward(inputs, keys_known, &core_);
  }

  // What is wanted next is sent to a device while it computes: with the ops of a chunk's keys its teachers,
  // and with its queries, before the host waits for its losses, the keys of the next chunk.
  Status send_ahead(const DraftInputs& inputs, const RowPlan& plan, std::int64_t first, std::int64_t keys) {
    if (core_.feed == nullptr || first < 0 || keys <= 0) return {};
    key_rows(plan, first, keys, &ahead_rows_);
    return core_.feed->send(inputs, ahead_rows_, keys, true);
  }
  Status send_teachers_ahead(const DraftInputs& inputs, const ChunkPlan& chunk) {
    if (core_.feed == nullptr) return {};
    return core_.feed->send(inputs, chunk.teachers, static_cast<std::int64_t>(chunk.teachers.size()), false);
  }
  Status send_chunk_ahead(const DraftInputs& inputs, std::int64_t first) {
    return send_ahead(inputs, core_.row_plan, first, std::min(chunk_rows_, core_.row_plan.keys - first));
  }

  // Queries, head and metrics of the chunk whose keys_forward() has run; `next` is the first key of the chunk
  // after it, if there is one.
  Status answer_chunk(const DraftInputs& inputs, bool with_gradients, std::int64_t next, StepSums* sums,
                      Predictions* predictions) {
    EAGLET_RETURN_IF_ERROR(send_teachers_ahead(inputs, core_.chunk));
    make_queries();
    EAGLET_RETURN_IF_ERROR(send_chunk_ahead(inputs, next));
    if (predictions != nullptr && predictions->with_logits)
      EAGLET_RETURN_IF_ERROR(copy_logits(inputs, predictions));
    EAGLET_RETURN_IF_ERROR(make_losses(inputs, with_gradients));
    count(inputs, sums);
    if (predictions != nullptr) EAGLET_RETURN_IF_ERROR(predict(inputs, predictions));
    for (const DepthSums& depth : sums->depth)
      if (!std::isfinite(depth.loss)) return Status(StatusCode::kNumeric, "the loss is not finite");
    return {};
  }
  void make_queries() {
    const PhaseTimer timer(&seconds_.forward);
    draft_core::queries_forward(&core_);
  }
  Status make_losses(const DraftInputs& inputs, bool with_gradients) {
    const PhaseTimer timer(&seconds_.head);
    return draft_core::head_and_loss(inputs, with_gradients, &core_);
  }
  void make_gradients(bool last_chunk) {
    const PhaseTimer timer(&seconds_.backward);
    draft_core::backward(last_chunk, &core_);
  }

  // A query sees keys before it only, so without gradients one way through the chunks does.
  Status look_at_chunks(const DraftInputs& inputs, StepSums* sums, Predictions* predictions) {
    for (std::int64_t first = 0; first < core_.row_plan.keys; first += chunk_rows_) {
      EAGLET_RETURN_IF_ERROR(make_keys(inputs, first, false));
      EAGLET_RETURN_IF_ERROR(answer_chunk(inputs, false, first + chunk_rows_, sums, predictions));
    }
    return {};
  }

  // Keys forwards, then everything else backwards: a row's keys have their whole gradient when all later rows
  // are done. The last chunk, often the only one, goes on from its keys; the others make theirs again.
  Status train_chunks(const DraftInputs& inputs, StepSums* sums, Predictions* predictions) {
    if (core_.row_plan.keys == 0) {  // nothing to learn in this batch
      if (core_.sharing.on_final) core_.sharing.on_final(0);
      return {};
    }
    const std::int64_t last = (core_.row_plan.keys - 1) / chunk_rows_ * chunk_rows_;
    for (std::int64_t first = 0; first <= last; first += chunk_rows_) {
      EAGLET_RETURN_IF_ERROR(make_keys(inputs, first, false));
      EAGLET_RETURN_IF_ERROR(send_chunk_ahead(inputs, first + chunk_rows_));
    }
    draft_core::zero_key_gradients(&core_);
    for (std::int64_t first = last; first >= 0; first -= chunk_rows_) {
      if (first != last) EAGLET_RETURN_IF_ERROR(make_keys(inputs, first, true));
      EAGLET_RETURN_IF_ERROR(answer_chunk(inputs, true, first - chunk_rows_, sums, predictions));
      make_gradients(first == 0);
    }
    return {};
  }

  void start_sums(const DraftInputs& inputs, StepSums* sums) {
    sums->depth.assign(static_cast<std::size_t>(core_.dims.K), DepthSums{});
    right_.assign(inputs.loss_mask, inputs.loss_mask + inputs.rows);
    now_.assign(static_cast<std::size_t>(inputs.rows), 0);
  }

  // Right-so-far by row: starts as the mask, and a row without an entry at a step drops out there.
  void count(const DraftInputs& inputs, StepSums* sums) {
    for (std::size_t k = 0; k < sums->depth.size(); ++k) {
      DepthSums& depth = sums->depth[k];
      const ChunkPlan::Step& step = core_.chunk.steps[k];
      depth.counted += static_cast<double>(step.counted);
      depth.cond_total += rows_asked(inputs, static_cast<std::int64_t>(k));
      double full_right = 0;
      for (std::size_t e = 0; e < step.entry_live.size(); ++e) {
        const auto row = static_cast<std::size_t>(step.live[static_cast<std::size_t>(step.entry_live[e])]);
        const auto teacher = static_cast<std::size_t>(step.entry_teacher[e]);
        const bool right =
            right_[row] != 0 && core_.buffers.best[k][e] == core_.buffers.teacher_best[teacher];
        now_[row] = right ? 1 : 0;
        if (step.entry_counted[e] == 0) continue;
        depth.loss += core_.buffers.loss[k][e];
        depth.outside += is_outside(inputs, teacher) ? 1 : 0;
        if (right) ++full_right;
      }
      depth.full_right += full_right;
      depth.cond_right += full_right;
      for (const std::int32_t row : core_.chunk.steps[0].live) {
        right_[static_cast<std::size_t>(row)] = now_[static_cast<std::size_t>(row)];
        now_[static_cast<std::size_t>(row)] = 0;
      }
    }
  }

  // The teacher's best token where the whole vocabulary was looked at, else the token that the answer has:
  // the same for greedy answers.
  bool is_outside(const DraftInputs& inputs, std::size_t teacher) const {
    std::int32_t token = 0;
    if (core_.options.teacher_vocab == TeacherVocab::kWhole) {
      token = core_.buffers.teacher_best_full[teacher];
    } else {
      const std::int64_t next =
          core_.chunk.teachers[teacher] + 1;  // row t's state predicts the token of row t+1
      if (next >= inputs.rows || inputs.document_ids[next] != inputs.document_ids[next - 1]) return false;
      token = inputs.input_ids[next];
    }
    return in_draft_[static_cast<std::size_t>(token)] == 0;
  }

  // Supervised rows that were right at every step before k and whose row p+k lies in the document.
  double rows_asked(const DraftInputs& inputs, std::int64_t k) const {
    double asked = 0;
    for (const std::int32_t p : core_.chunk.steps[0].live)
      if (right_[static_cast<std::size_t>(p)] != 0 && p + k < inputs.rows &&
          inputs.document_ids[p + k] == inputs.document_ids[p])
        ++asked;
    return asked;
  }

  void start_predictions(const DraftInputs& inputs, Predictions* to) const {
    const auto rows = static_cast<std::size_t>(inputs.rows), steps = static_cast<std::size_t>(core_.dims.K);
    to->draft_best.assign(rows * steps, -1);
    to->teacher_best.assign(rows, -1);
    to->teacher_best_full.assign(rows, -1);
    if (to->with_logits)
      to->logits.assign(steps * rows * static_cast<std::size_t>(core_.dims.Vd),
                        std::numeric_limits<float>::quiet_NaN());
  }

  Status predict(const DraftInputs& inputs, Predictions* to) {
    const auto rows = static_cast<std::size_t>(inputs.rows);
    const std::vector<std::int32_t>& ids = weights_.vocab.target_ids;
    const std::vector<std::int32_t>& teachers = core_.chunk.teachers;
    for (std::size_t k = 0; k < core_.chunk.steps.size(); ++k) {
      const ChunkPlan::Step& step = core_.chunk.steps[k];
      for (std::size_t e = 0; e < step.entry_live.size(); ++e) {
        const auto row = static_cast<std::size_t>(step.live[static_cast<std::size_t>(step.entry_live[e])]);
        to->draft_best[k * rows + row] = ids[static_cast<std::size_t>(core_.buffers.best[k][e])];
      }
    }
    EAGLET_ASSIGN_OR_RETURN(const float* head, draft_core::whole_head(&core_));
    best_over_vocab(static_cast<std::int64_t>(teachers.size()), core_.dims.Ht, core_.dims.V,
                    core_.buffers.teacher, head, core_.buffers.teacher_best_full.data(),
                    core_.buffers.argmax_scratch);
    for (std::size_t t = 0; t < teachers.size(); ++t) {
      const auto row = static_cast<std::size_t>(teachers[t]);
      to->teacher_best[row] = ids[static_cast<std::size_t>(core_.buffers.teacher_best[t])];
      to->teacher_best_full[row] = core_.buffers.teacher_best_full[t];
    }
    return {};
  }

  // The one place where logits exist as a whole; head_and_loss() never keeps them.
  Status copy_logits(const DraftInputs& inputs, Predictions* to) {
    const auto rows = static_cast<std::size_t>(inputs.rows), width = static_cast<std::size_t>(core_.dims.Vd);
    const std::int64_t most = core_.on_device() ? 64 : 1;  // rows at once
    EAGLET_RETURN_IF_ERROR(logits_.take(most * core_.dims.Vd, core_.device));
    for (std::size_t k = 0; k < core_.chunk.steps.size(); ++k) {
      const ChunkPlan::Step& step = core_.chunk.steps[k];
      const auto entries = static_cast<std::int64_t>(step.entry_live.size());
      for (std::int64_t first = 0; first < entries; first += most) {
        const std::int64_t n = std::min(most, entries - first);
        linear(n, core_.dims.Vd, core_.dims.H, core_.buffers.xs[k] + first * core_.dims.H,
               core_.weights.lm_head, core_.dims.H, false, logits_.data());
        for (std::int64_t i = 0; i < n; ++i) {
          const auto e = static_cast<std::size_t>(first + i);
          const auto row = static_cast<std::size_t>(step.live[static_cast<std::size_t>(step.entry_live[e])]);
          logits_.read(i * core_.dims.Vd, core_.dims.Vd, to->logits.data() + (k * rows + row) * width);
        }
      }
    }
    return {};
  }

  DraftWeights weights_;
  PlacedArray<float> on_device_;  // weights_.values there
  PlacedArray<float> gradients_, logits_;
  std::int64_t trainable_ = 0, max_rows_ = 0;
  bool with_gradients_ = false;
  Core core_;
  std::int64_t chunk_rows_ = 0;
  std::uint64_t sampling_seed_ = 0;
  StepSeconds seconds_;
  RowPlan next_rows_;  // of look_ahead()
  ChunkPlan next_chunk_;
  std::vector<std::int32_t> ahead_rows_;
  std::vector<std::uint8_t> right_, now_;
  std::vector<std::uint8_t> in_draft_;  // [V] 1 = in the draft vocabulary
};

}  // namespace

Result<std::unique_ptr<DraftModel>> DraftModel::create(DraftWeights weights, const VerifierTensors& verifier,
                                                       const TttOptions& options, std::int64_t max_rows,
                                                       bool with_gradients, Accelerator* device) {
  EAGLET_RETURN_IF_ERROR(draft_core::check_request(weights, verifier, options, max_rows));
  auto model = std::make_unique<Model>(std::move(weights), verifier, options, device);
  EAGLET_RETURN_IF_ERROR(model->take_memory(max_rows, with_gradients));
  return std::unique_ptr<DraftModel>(std::move(model));
}

}  // namespace eaglet
