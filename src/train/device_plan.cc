#include "train/device_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "draft/memory_forecast.h"
#include "train/needed_work.h"

namespace eaglet {
namespace {

constexpr int kRanksOfNode = 8;
constexpr double kNodeNicBandwidth = 45e9;   // bytes per second: 400 Gbit/s, what an all-reduce makes of it
constexpr double kEthernetBandwidth = 11e9;  // 100 Gbit/s
constexpr double kRuntimeBytes = 1.5e9;      // context, cuBLAS workspace, NCCL buffers
constexpr double kBytesOfParameter = 18;     // fp32 master, two moments, gradient; bf16 copy
constexpr std::int64_t kLongest = 1 << 20;

/// The rows of a full batch, no states.
struct PlannedRows {
  std::vector<std::int32_t> ids, documents, positions;
  std::vector<std::uint8_t> mask;
  DraftInputs inputs() const {
    DraftInputs in;
    in.rows = static_cast<std::int64_t>(documents.size());
    in.input_ids = ids.data();
    in.document_ids = documents.data();
    in.position_ids = positions.data();
    in.loss_mask = mask.data();
    return in;
  }
};

PlannedRows rows_of(const PlannedStep& step) {
  PlannedRows rows;
  const std::int64_t length = std::min(step.document_tokens, step.max_seq_len);
  const auto unsupervised =
      static_cast<std::int64_t>((1 - step.supervised_share) * static_cast<double>(length));
  for (std::int64_t i = 0; i < step.max_seq_len; ++i) {
    const std::int64_t p = i % length;
    rows.documents.push_back(static_cast<std::int32_t>(i / length));
    rows.positions.push_back(static_cast<std::int32_t>(p + 1));
    rows.mask.push_back(p >= unsupervised ? 1 : 0);
  }
  rows.ids.assign(rows.documents.size(), 0);
  return rows;
}

Status check(const PlannedStep& s, const DeviceFacts& device, int ranks, Link link) {
  const auto refuse = [](const std::string& what, const char* todo) {
    return Status(StatusCode::kUsage, what, "eaglet plan", todo);
  };
  if (s.max_seq_len < 64 || s.max_seq_len > kLongest || s.document_tokens < 2)
    return refuse("--max-seq-len must be 64 to 1048576 and --document-tokens at least 2",
                  "8192 and 2205 are usual");
  if (s.ttt_steps < 1 || s.ttt_steps > kMaxTttSteps)
    return refuse("--ttt-steps is not in 1..64", "3 is usual");
  if (!(s.supervised_share > 0 && s.supervised_share <= 1))
    return refuse("--supervised-share is not in (0, 1]", "1 supervises every row");
  if (ranks < 1 || ranks > 100000) return refuse("--ranks is not in 1..100000", "--ranks 1,4,8,64");
  if (ranks > 1 && link == Link::kNvlink && device.nvlink_bandwidth == 0)
    return refuse("the " + device.label + " has no NVLink", "--link pcie or ethernet");
  return {};
}

DeviceMemory memory_on_paper(const PlannedStep& s) {
  const DraftConfig& c = s.config;
  DeviceMemory m;
  const auto trainable = static_cast<double>(count_parameters(s).trainable);
  m.parameters = kBytesOfParameter * trainable;
  m.frozen = 2 * static_cast<double>((s.target_vocab + c.draft_vocab) * c.target_hidden);
  TttOptions options;
  options.ttt_steps = s.ttt_steps;
  const PlannedRows rows = rows_of(s);
  // The same buffers as on the CPU; those of products are bf16 there.
  m.activations =
      0.5 * static_cast<double>(MemoryForecast(c, options, true, 1).activation_bytes(rows.inputs()));
  m.batches = 2 * 2 * static_cast<double>(s.max_seq_len * (c.num_aux() + 1) * c.target_hidden);
  return m;
}

// What our own step takes (docs/gpu.md): fp32 parameters, gradients, moments, tables and activations, bf16
// copies of what products read, the way of states there; the head's logits of some 2048 rows and their
// teachers'.
DeviceMemory memory_as_built(const PlannedStep& s) {
  const DraftConfig& c = s.config;
  DeviceMemory m;
  double all = 0;
  for (const ParameterInfo& parameter : parameter_table(c, s.train_head))
    all += static_cast<double>(parameter.elements);
  MemoryForecast forecast(c, s.options, true, 1, true);
  m.parameters = 4 * all + 12 * static_cast<double>(count_parameters(s).trainable) +
                 static_cast<double>(forecast.packed_bytes(s.train_head));
  m.frozen = 4 * static_cast<double>((s.target_vocab + c.draft_vocab) * c.target_hidden);
  const PlannedRows rows = rows_of(s);
  m.activations = static_cast<double>(forecast.activation_bytes(rows.inputs()));
  for (const DraftInputs& batch : s.batches)
    m.activations = std::max(m.activations, static_cast<double>(forecast.activation_bytes(batch)));
  m.activations += 4.0 * (2048 + 2 * 2048.0 / s.ttt_steps) * static_cast<double>(c.draft_vocab);
  return m;
}

DeviceMemory memory_of(const PlannedStep& s, int ranks) {
  DeviceMemory m = s.batches.empty() ? memory_on_paper(s) : memory_as_built(s);
  m.runtime = kRuntimeBytes + (ranks > 1 ? 0.5e9 : 0);
  return m;
}

OpTime time_of(const DeviceOp& op, const DeviceFacts& d) {
  const double rate = op.kind == OpKind::kAttention ? d.gemm_flops * d.attention_share : d.gemm_flops;
  const double arithmetic = op.flops / rate, memory = op.bytes / (d.bandwidth * d.bandwidth_share);
  return {op, std::max(arithmetic, memory) + op.launches * d.launch_seconds, memory > arithmetic};
}

// An all-reduce moves 2 (n-1)/n of the gradients through every rank's link; over more than a node, first
// inside the nodes and then between them, an eighth by each rank's share of the node's card.
double reduce_seconds(double bytes, const DeviceFacts& d, int ranks, Link link) {
  if (ranks == 1) return 0;
  const auto ring = [&](int n, double bandwidth) { return 2.0 * (n - 1) / n * bytes / bandwidth; };
  if (link == Link::kEthernet) return ring(ranks, kEthernetBandwidth);
  const double inside = link == Link::kNvlink ? d.nvlink_bandwidth : d.pcie_bandwidth;
  const int here = std::min(ranks, kRanksOfNode), nodes = (ranks + kRanksOfNode - 1) / kRanksOfNode;
  return ring(here, inside) + (nodes > 1 ? ring(nodes, kNodeNicBandwidth) : 0);
}

// Seconds by what they go into.
std::string what_binds(const DevicePlan& plan, const DeviceFacts& device) {
  double arithmetic = 0, memory = 0, launches = 0;
  for (const OpTime& one : plan.ops) {
    const double launched = one.op.launches * device.launch_seconds;
    launches += launched;
    (one.bound_by_memory ? memory : arithmetic) += one.seconds - launched;
  }
  const std::pair<double, const char*> shares[] = {
      {arithmetic, "arithmetic"},
      {memory, "memory"},
      {launches, "launches"},
      {plan.reduce_exposed_seconds, "gradients"},
      {plan.data_seconds > plan.compute_seconds + plan.reduce_exposed_seconds ? plan.data_seconds : 0,
       "data"}};
  return std::max_element(std::begin(shares), std::end(shares))->second;
}

bool of_update(const DeviceOp& op) {
  return op.name == "AdamW" || op.name == "gradient norm";
}

// Of an update over batches like these, on one rank.
std::vector<DeviceOp> ops_of(const PlannedStep& step, const std::vector<DraftInputs>& batches) {
  std::vector<DeviceOp> ops;
  const auto n = static_cast<double>(batches.size());
  for (const DraftInputs& batch : batches)
    for (const DeviceOp& op :
         device_step(step.config, step.ttt_steps, step.train_head, batch, {step.options.row_sampling, 0})) {
      auto at = std::find_if(ops.begin(), ops.end(), [&](const DeviceOp& o) { return o.name == op.name; });
      if (at == ops.end()) at = ops.insert(ops.end(), {op.name, op.kind});
      const double times = (of_update(op) ? 1 : static_cast<double>(step.accumulation)) / n;
      at->flops += times * op.flops;
      at->needed_flops += times * op.needed_flops;
      at->bytes += times * op.bytes;
      at->launches += times * op.launches;
    }
  return ops;
}

}  // namespace

ParameterCount count_parameters(const PlannedStep& step) {
  ParameterCount count;
  for (const ParameterInfo& parameter : parameter_table(step.config, step.train_head)) {
    if (parameter.trainable) count.trainable += parameter.elements;
    count.total += parameter.elements;
  }
  count.total += (step.target_vocab + step.config.draft_vocab) * step.config.target_hidden;
  return count;
}

Result<DevicePlan> plan_device(const PlannedStep& step, const DeviceFacts& device, int ranks, Link link) {
  EAGLET_RETURN_IF_ERROR(check(step, device, ranks, link));
  EAGLET_RETURN_IF_ERROR(check_draft_config(step.config));
  DevicePlan plan;
  const PlannedRows rows = rows_of(step);
  const std::vector<DraftInputs> batches =
      step.batches.empty() ? std::vector<DraftInputs>{rows.inputs()} : step.batches;
  const double tokens = step.batches.empty() ? static_cast<double>(step.max_seq_len) : step.tokens_of_batch;
  const auto accumulation = static_cast<double>(step.accumulation);
  double update = 0;
  for (const DeviceOp& op : ops_of(step, batches)) {
    plan.ops.push_back(time_of(op, device));
    plan.compute_seconds += plan.ops.back().seconds;
    if (of_update(op)) update += plan.ops.back().seconds;
  }
  // Of the last batch of the update, beside which gradients travel.
  const double backward = (plan.compute_seconds - update) / accumulation * 2 / 3;
  plan.reduce_seconds =
      reduce_seconds(2 * static_cast<double>(count_parameters(step).trainable), device, ranks, link);
  plan.reduce_exposed_seconds = std::max(0.0, plan.reduce_seconds - backward);
  plan.data_seconds =
      accumulation *
      (step.batches.empty() ? 2.0 : static_cast<double>(bytes_of_number(step.options.states))) * tokens *
      static_cast<double>((step.config.num_aux() + 1) * step.config.target_hidden) / device.pcie_bandwidth;
  plan.step_seconds = std::max(plan.compute_seconds + plan.reduce_exposed_seconds, plan.data_seconds);
  plan.tokens_per_second = accumulation * ranks * tokens / plan.step_seconds;
  NeededWork work(step.config, step.ttt_steps, step.train_head);
  for (const DraftInputs& batch : batches)
    plan.needed_flops +=
        accumulation * work.flops(batch, step.options.row_sampling, 0) / static_cast<double>(batches.size());
  plan.mfu_ratio = plan.needed_flops / plan.step_seconds / device.gemm_flops;
  plan.sheet_ratio = plan.needed_flops / plan.step_seconds / device.sheet_flops;
  plan.binds = what_binds(plan, device);
  plan.memory = memory_of(step, ranks);
  plan.fits = plan.memory.total() <= device.memory_bytes;
  return plan;
}

std::int64_t longest_on_device(const PlannedStep& step, const DeviceFacts& device, int ranks) {
  std::int64_t fits = 0, beyond = kLongest / 64 + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = (fits + beyond) / 2;
    PlannedStep other = step;
    other.max_seq_len = middle * 64;
    for (DraftInputs& batch : other.batches) batch.rows = std::min(batch.rows, other.max_seq_len);
    (memory_of(other, ranks).total() <= device.memory_bytes ? fits : beyond) = middle;
  }
  return fits * 64;
}

}  // namespace eaglet
