#include "train/device_work.h"

#include "draft/row_plan.h"

namespace eaglet {
namespace {

constexpr double kBf16 = 2, kFp32 = 4;

class StepOps {
 public:
  StepOps(const DraftConfig& config, bool train_head) : c_(config), train_head_(train_head) {}

  std::vector<DeviceOp> of(const ChunkPlan& plan) {
    const double keys = static_cast<double>(plan.keys),
                 aux = static_cast<double>(c_.num_aux() * c_.target_hidden);
    const double h = static_cast<double>(c_.hidden);
    memory("states in", 2 * keys * aux * kBf16, 1);
    product("fc", keys, aux, h, true, false);
    memory("embeddings", static_cast<double>(plan.rows.size()) * h * 4 * kBf16, 4);
    double key_positions = 0;
    for (const std::int32_t position : plan.key_positions) key_positions += position;
    for (std::size_t k = 0; k < plan.steps.size(); ++k)
      for (std::int64_t layer = 0; layer < c_.num_layers; ++layer)
        layer_ops(plan, k, layer, keys, key_positions);
    head_ops(plan);
    update_ops();
    return std::move(ops_);
  }

 private:
  void add(const std::string& name, OpKind kind, double flops, double needed, double bytes, double launches) {
    for (DeviceOp& op : ops_)
      if (op.name == name) {
        op.flops += flops, op.needed_flops += needed, op.bytes += bytes, op.launches += launches;
        return;
      }
    ops_.push_back({name, kind, flops, needed, bytes, launches});
  }
  void memory(const std::string& name, double bytes, double launches) {
    add(name, OpKind::kMemory, 0, 0, bytes, launches);
  }

  // y [rows, out] = x [rows, in] W^T, and going back the gradient of x where it is wanted and that of W,
  // which is fp32 and added to.
  void product(const std::string& name, double rows, double in, double out, bool weight, bool input) {
    const double once = 2 * rows * in * out, operands = rows * in + rows * out;
    const double calls = 1 + (weight ? 1 : 0) + (input ? 1 : 0);
    const double bytes = calls * operands * kBf16 + (1 + (input ? 1 : 0)) * in * out * kBf16 +
                         (weight ? 2 * in * out * kFp32 : 0);
    add(name, OpKind::kGemm, calls * once, calls * once, rows > 0 ? bytes : 0, rows > 0 ? calls : 0);
  }

  // Rows and counts as NeededWork::layer_flops() has them.
  void layer_ops(const ChunkPlan& plan, std::size_t k, std::int64_t layer, double keys,
                 double key_positions) {
    const ChunkPlan::Step& step = plan.steps[k];
    const double h = static_cast<double>(c_.hidden), f = static_cast<double>(c_.intermediate);
    const double q = static_cast<double>(c_.num_heads * c_.head_dim),
                 kv = static_cast<double>(c_.num_kv_heads * c_.head_dim);
    const bool all_rows = k == 0 && layer + 1 < c_.num_layers;
    const double rows = all_rows ? keys : static_cast<double>(step.live.size());
    const double input = layer == 0 && k == 0 ? 2 * h : h, key_rows = k == 0 ? keys : rows;
    double positions = all_rows ? key_positions : 0;
    for (const std::int32_t position : step.positions) positions += all_rows ? 0 : position;
    // Norm of the input: x in, y out; back: dy, x, dx in, dx out. Twice a layer, and the final one.
    memory("norms", (key_rows + 2 * rows) * h * 6 * kBf16, 6);
    product("q, k, v", rows, input, q, true, true);
    product("q, k, v", key_rows, input, 2 * kv, true, true);
    memory("rope", 2 * (rows * q + key_rows * kv) * 2 * kBf16, 4);
    // Forward 2 products of [positions, D], backward 5: the scores are computed again.
    add("attention", OpKind::kAttention, 14 * q * positions, 12 * q * positions,
        (6 * rows * q + 6 * key_rows * kv) * kBf16, 5);
    product("o", rows, q, h, true, true);
    memory("residuals", rows * h * 2 * 4 * kBf16, 4);
    product("mlp", rows, h, 2 * f, true, true);
    memory("swiglu", rows * f * 9 * kBf16, 2);  // 2 in, 1 out; back 3 in, 3 out
    product("mlp", rows, f, h, true, true);
  }

  void head_ops(const ChunkPlan& plan) {
    const double h = static_cast<double>(c_.hidden), ht = static_cast<double>(c_.target_hidden),
                 vd = static_cast<double>(c_.draft_vocab),
                 teachers = static_cast<double>(plan.teachers.size());
    product("teacher", teachers, ht, vd, false, false);
    memory("teacher softmax", teachers * vd * 2 * kBf16, 2);
    for (const ChunkPlan::Step& step : plan.steps) {
      const double counted = static_cast<double>(step.counted),
                   metric = static_cast<double>(step.entry_live.size()) - counted;
      product("head", counted, h, vd, train_head_, true);
      product("head", metric, h, vd, false, false);
      // Student's and teacher's row in, gradient out; a row that only measures is read.
      memory("loss", (counted * 3 + metric * 2) * vd * kBf16, 2);
    }
  }

  void update_ops() {
    double trainable = 0;
    for (const ParameterInfo& parameter : parameter_table(c_, train_head_))
      if (parameter.trainable) trainable += static_cast<double>(parameter.elements);
    memory("gradient norm", trainable * kFp32, 2);
    // Weight and two moments in and out, gradient in and cleared, bf16 weight out.
    memory("AdamW", trainable * (8 * kFp32 + kBf16), 1);
  }

  const DraftConfig& c_;
  const bool train_head_;
  std::vector<DeviceOp> ops_;
};

}  // namespace

std::vector<DeviceOp> device_step(const DraftConfig& config, int ttt_steps, bool train_head,
                                  const DraftInputs& inputs, const RowSampling& sampling) {
  RowPlan rows;
  plan_rows(inputs.rows, ttt_steps, inputs.document_ids, inputs.loss_mask, sampling, &rows);
  ChunkPlan plan;
  plan_chunk(rows, ttt_steps, inputs.position_ids, inputs.loss_mask, 0, rows.keys, &plan);
  return StepOps(config, train_head).of(plan);
}

}  // namespace eaglet
