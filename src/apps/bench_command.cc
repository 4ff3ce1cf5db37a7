#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/bench_shapes.h"
#include "apps/command.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "device/gemm.h"
#include "device/threads.h"
#include "draft/draft_model.h"
#include "draft/row_plan.h"
#include "formats/json.h"
#include "ops/adamw.h"

namespace eaglet::apps {
namespace {

struct BenchFlags {
  std::string shape = "smollm2";
  int steps = 5, threads = 0;
  bool train_head = false;
};

// Synthetic rows: random states and tokens, `documents` equal documents, the first part of each unsupervised.
struct SyntheticBatch {
  std::vector<float> aux, last;
  std::vector<std::int32_t> ids, documents, positions;
  std::vector<std::uint8_t> mask;
  std::int64_t supervised = 0;
};

void fill_normal(std::int64_t n, double deviation, std::uint64_t stream, std::vector<float>* values) {
  Rng rng(1, stream);
  values->resize(static_cast<std::size_t>(n));
  for (float& v : *values) v = static_cast<float>(deviation * rng.normal());
}

SyntheticBatch make_batch(const BenchShape& shape) {
  SyntheticBatch b;
  const DraftConfig& c = shape.config;
  fill_normal(shape.rows * c.num_aux() * c.target_hidden, 1.0, 1, &b.aux);
  fill_normal(shape.rows * c.target_hidden, 1.0, 2, &b.last);
  Rng rng(1, 3);
  const std::int64_t length = shape.rows / shape.documents;
  for (std::int64_t p = 0; p < shape.rows; ++p) {
    b.ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(c.vocab))));
    b.documents.push_back(static_cast<std::int32_t>(p / length));
    b.positions.push_back(static_cast<std::int32_t>(1 + p % length));
    b.mask.push_back(
        p % length >= static_cast<std::int64_t>(static_cast<double>(length) * shape.unsupervised_share) ? 1
                                                                                                        : 0);
    b.supervised += b.mask.back();
  }
  return b;
}

// Multiply-adds that the rows of the plan need, times two: forward and backward, GEMMs and attention, no
// padding.
double needed_flop(const BenchShape& shape, const RowPlan& plan, bool train_head) {
  const DraftConfig& c = shape.config;
  const double H = static_cast<double>(c.hidden), Ht = static_cast<double>(c.target_hidden);
  const double q = static_cast<double>(c.num_heads * c.head_dim),
               kv = static_cast<double>(c.num_kv_heads * c.head_dim);
  const double F = static_cast<double>(c.intermediate), Vd = static_cast<double>(c.draft_vocab);
  const auto keys = static_cast<double>(plan.key_rows.size());
  double forward_and_backward = 0, forward_only = 0;
  forward_and_backward += keys * H * (q + 2 * kv);                      // embedding half of q, k, v
  forward_only += static_cast<double>(plan.teachers.size()) * Ht * Vd;  // the teacher
  double attention = 0, head = 0;
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    const RowPlan::Step& step = plan.steps[k];
    const auto live = static_cast<double>(step.live.size());
    forward_and_backward += live * (H * q + q * H + 3 * H * F) + (k == 0 ? keys : live) * 2 * H * kv;
    head += static_cast<double>(step.entry_live.size()) * H * Vd;
    for (const AttentionSpan& span : step.spans)
      for (std::int32_t i = span.query_begin; i < span.query_end; ++i)
        attention += 2 * q *
                     static_cast<double>(step.key_of_live[static_cast<std::size_t>(i)] + 1 - span.key_begin +
                                         static_cast<std::int32_t>(k));
  }
  const double fc = keys * static_cast<double>(c.num_aux()) * Ht * H;
  // Backward costs twice the forward: inputs and weights. fc's inputs are data; a frozen head has no weight
  // gradient; attention's backward makes the scores again (5 products where the forward has 2).
  return 2 *
         (3 * forward_and_backward + 2 * fc + forward_only + (train_head ? 3 : 2) * head + 3.5 * attention);
}

double gemm_peak_gflops() {
  const std::int64_t n = 1536;
  std::vector<float> a, b, c(static_cast<std::size_t>(n * n));
  fill_normal(n * n, 1, 5, &a);
  fill_normal(n * n, 1, 6, &b);
  double best = 1e30;
  for (int i = 0; i < 6; ++i) {
    const double start = monotonic_seconds();
    gemm(Transpose::kNo, Transpose::kYes, n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f, c.data(), n);
    best = std::min(best, monotonic_seconds() - start);
  }
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / best / 1e9;
}

Result<BenchShape> find_shape(const std::string& name) {
  std::string known;
  for (const BenchShape& shape : bench_shapes()) {
    if (shape.name == name) return shape;
    known += (known.empty() ? "" : ", ") + shape.name;
  }
  return Status(StatusCode::kUsage, "there is no shape '" + name + "'", "--shape", "use one of " + known);
}

struct BenchResult {
  double best_seconds = 1e30, gflop = 0, peak = 0, rss = 0;
  std::int64_t supervised = 0;
};

Result<BenchResult> measure(const BenchShape& shape, int steps, Progress& progress) {
  const SyntheticBatch batch = make_batch(shape);
  std::vector<float> embed, head, norm(static_cast<std::size_t>(shape.config.target_hidden), 1.0f);
  fill_normal(shape.config.vocab * shape.config.hidden, 0.1, 10, &embed);
  fill_normal(shape.config.vocab * shape.config.target_hidden, 0.02, 11, &head);
  DraftVocab vocab;
  vocab.target_vocab = shape.config.vocab;
  for (std::int64_t i = 0; i < shape.config.draft_vocab; ++i)
    vocab.target_ids.push_back(static_cast<std::int32_t>(i));
  TttOptions options;
  options.ttt_steps = static_cast<int>(shape.ttt_steps);
  EAGLET_ASSIGN_OR_RETURN(
      auto model,
      DraftModel::create(new_draft(shape.config, vocab, shape.train_head, head, norm, 1),
                         {embed.data(), norm.data(), head.data(), 1e-5}, options, shape.rows, true));
  const auto n = static_cast<std::size_t>(model->trainable_elements());
  std::vector<float> first(n), second(n);
  const DraftInputs inputs{
      shape.rows,        batch.ids.data(), batch.documents.data(), batch.positions.data(),
      batch.mask.data(), batch.aux.data(), batch.last.data()};
  BenchResult result;
  progress.begin("bench " + shape.name, static_cast<std::uint64_t>(steps) + 1, "steps");
  for (int s = 0; s <= steps; ++s) {  // the first step warms up and is not timed
    if (interrupted()) return Status(StatusCode::kInterrupted, "the benchmark was stopped");
    const double start = monotonic_seconds();
    auto sums = model->step(inputs, true);
    if (!sums.ok()) return sums.status();
    const double norm_of_gradient = l2_norm(model->trainable_elements(), model->gradients().data());
    adamw(model->trainable_elements(), model->weights().values.data(), model->gradients().data(),
          first.data(), second.data(), std::min(1.0, 1.0 / (norm_of_gradient + 1e-6)), 1e-4, s + 1, {});
    const double seconds = monotonic_seconds() - start;
    if (s > 0) result.best_seconds = std::min(result.best_seconds, seconds);
    progress.update(static_cast<std::uint64_t>(s) + 1, fmt::format("{:.3f} s a step", seconds));
  }
  RowPlan plan;
  plan_rows(shape.rows, options.ttt_steps, batch.documents.data(), batch.positions.data(), batch.mask.data(),
            &plan);
  result.gflop = needed_flop(shape, plan, shape.train_head) / 1e9;
  result.peak = gemm_peak_gflops();
  result.supervised = batch.supervised;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  result.rss = static_cast<double>(usage.ru_maxrss) * 1024.0;
  progress.end(fmt::format("{} steps", steps));
  return result;
}

void print(const BenchShape& shape, const BenchResult& r, bool as_json) {
  const auto rows = static_cast<double>(shape.rows);
  const double rate = rows / r.best_seconds,
               supervised_rate = static_cast<double>(r.supervised) / r.best_seconds;
  const double gflops = r.gflop / r.best_seconds;
  if (as_json) {
    const Json line = {{"schema", 1},
                       {"shape", shape.name},
                       {"threads", num_threads()},
                       {"tokens_per_second", rate},
                       {"supervised_tokens_per_second", supervised_rate},
                       {"needed_gflop_per_token", r.gflop / rows},
                       {"gflops", gflops},
                       {"gemm_peak_gflops", r.peak},
                       {"share_of_peak", gflops / r.peak},
                       {"step_seconds", r.best_seconds},
                       {"peak_rss_bytes", r.rss}};
    std::printf("%s\n", json_line(line).c_str());
    return;
  }
  fmt::print("shape            {} ({})\n", shape.name, shape.about);
  fmt::print("tokens/s         {:.0f} (supervised {:.0f}), best step {:.3f} s on {} threads\n", rate,
             supervised_rate, r.best_seconds, num_threads());
  fmt::print(
      "needed work      {:.3f} GFLOP a token, {:.0f} GFLOP/s = {:.0f} % of this machine's GEMM peak "
      "({:.0f})\n",
      r.gflop / rows, gflops, 100 * gflops / r.peak, r.peak);
  fmt::print("peak memory      {}\n", human_bytes(r.rss));
}

}  // namespace

Run add_bench(CLI::App& app) {
  app.footer(
      "Examples:\n  eaglet bench train --shape smollm2\n  eaglet bench train --shape deep --steps 10 --json");
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* train =
      app.add_subcommand("train", "real training steps (forward, backward, clip, AdamW) on synthetic rows");
  train->add_option("--shape", flags->shape, "smollm2, smollm2-all, deep, llama1b");
  train->add_option("--steps", flags->steps, "steps to time; the best counts")->check(CLI::PositiveNumber);
  train->add_option("--threads", flags->threads, "0 = all cores")->check(CLI::NonNegativeNumber);
  train->add_flag("--train-head", flags->train_head, "train lm_head too");
  app.require_subcommand(1);
  return [flags](Context& context) -> Status {
    set_num_threads(flags->threads);
    EAGLET_ASSIGN_OR_RETURN(BenchShape shape, find_shape(flags->shape));
    shape.train_head = flags->train_head;
    auto result = measure(shape, flags->steps, *context.progress);
    if (!result.ok()) return result.status();
    print(shape, *result, context.json);
    return {};
  };
}

}  // namespace eaglet::apps
