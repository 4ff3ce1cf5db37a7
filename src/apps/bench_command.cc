#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/bench_extract.h"
#include "apps/bench_generate.h"
#include "apps/bench_rows.h"
#include "apps/bench_shapes.h"
#include "apps/bench_store.h"
#include "apps/bench_watch.h"
#include "apps/command.h"
#include "apps/open_device.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "device/compute_type.h"
#include "device/device_peak.h"
#include "device/placed_array.h"
#include "device/threads.h"
#include "draft/draft_model.h"
#include "draft/row_plan.h"
#include "formats/json.h"
#include "ops/adamw.h"
#include "ops/rows.h"
#include "train/needed_work.h"
#include "verifier/widened_copy.h"

namespace eaglet::apps {
namespace {

struct BenchFlags {
  std::string shape = "smollm2";
  int steps = 5, threads = 0, ttt_steps = 0;
  std::int64_t rows = 0, documents = 0, draft_vocab_size = 0, chunk_rows = 0;
  double row_sampling = 1;
  bool train_head = false, scaling = false;
  std::string loss_fn = "kl_div", compute_type = "auto", device = "auto";
};

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
  StepSeconds phases;  // of the best step
  double clip_seconds = 0, optimizer_seconds = 0;
  std::int64_t supervised = 0;
  std::string device = "cpu";
  OpTimes device_times;     // of one more step
  double device_bytes = 0;  // of its memory: weights, gradients, moments, activations
  ComputeType compute_type = ComputeType::kF32;
};

// What the weights, gradients, moments and tables take, without activations.
double table_bytes(const BenchShape& shape, ComputeType type) {
  const DraftConfig& c = shape.config;
  double floats = 0;
  for (const ParameterInfo& info : parameter_table(c, shape.train_head)) {
    floats += static_cast<double>(info.elements) * (info.trainable ? 4 : 1);
    if (type == ComputeType::kBf16)
      floats += static_cast<double>(info.elements);  // rounded, for both directions
  }
  floats += static_cast<double>(shape.small_tables ? shape.rows : c.vocab) * static_cast<double>(c.hidden);
  floats += static_cast<double>(c.vocab + (c.vocab == c.draft_vocab ? 0 : c.draft_vocab)) *
            static_cast<double>(c.target_hidden);
  return 4 * floats;
}

Status check_memory(const BenchShape& shape, ComputeType type) {
  constexpr double kActivationsAndRest = 1.05;
  const double needed = kActivationsAndRest * table_bytes(shape, type) + 5e8,
               free = static_cast<double>(available_memory_bytes());
  if (free <= 0 || needed <= free) return {};
  return Status(StatusCode::kNoSpace,
                fmt::format("shape {} needs about {} of memory, {} are free: {} are missing", shape.name,
                            human_bytes(needed), human_bytes(free), human_bytes(needed - free)),
                "--shape " + shape.name, "end other programs, or take kimi-half");
}

// The tensors of a made-up target.
struct SyntheticTarget {
  std::vector<float> embed, head, norm;
  DraftVocab vocab;
  explicit SyntheticTarget(const BenchShape& shape) {
    const DraftConfig& c = shape.config;
    norm.assign(static_cast<std::size_t>(c.target_hidden), 1.0f);
    fill_normal((shape.small_tables ? shape.rows : c.vocab) * c.hidden, 0.1, 10, &embed);
    fill_normal(c.vocab * c.target_hidden, 0.02, 11, &head);
    vocab.target_vocab = c.vocab;
    for (std::int64_t i = 0; i < c.draft_vocab; ++i) vocab.target_ids.push_back(static_cast<std::int32_t>(i));
  }
};

// Real steps: forward, backward, clip, AdamW.
class Bench {
 public:
  Bench(const BenchShape& shape, DraftModel& model, Accelerator* device)
      : model_(model),
        device_(device),
        batch_(make_batch(shape)),
        repeated_(batch_.aux, batch_.last, shape.rows, device != nullptr) {
    inputs_ = {shape.rows,         batch_.ids.data(), batch_.documents.data(), batch_.positions.data(),
               batch_.mask.data(), batch_.aux.data(), batch_.last.data()};
    if (device != nullptr || shape.rows > RepeatedRows::kRows) inputs_.states = &repeated_;
  }
  Status take_moments() {
    for (PlacedArray<float>* moments : {&first_, &second_}) {
      EAGLET_RETURN_IF_ERROR(moments->take(model_.trainable_elements(), device_));
      zero_rows(model_.trainable_elements(), 1, moments->data());
    }
    return {};
  }
  std::uint64_t moment_bytes() const { return first_.bytes() + second_.bytes(); }
  const DraftInputs& inputs() const { return inputs_; }
  std::int64_t supervised() const { return batch_.supervised; }

  /// One more step, its ops measured.
  Status measure_ops(BenchResult* result) {
    device_->time_ops(true);
    const Result<double> done = step(result);
    device_->time_ops(false);
    result->device_times = device_->take_op_times();
    return done.status();
  }

  Result<double> step(BenchResult* result) {
    const double start = monotonic_seconds();
    EAGLET_RETURN_IF_ERROR(model_.step(inputs_, true, &sums_, nullptr));
    model_.look_ahead(inputs_, 0);
    const double clip = monotonic_seconds();
    const double norm = l2_norm(model_.trainable_elements(), model_.gradients().data());
    const double optimizer = monotonic_seconds();
    adamw(model_.trainable_elements(), model_.parameters(), model_.gradients().data(), first_.data(),
          second_.data(), std::min(1.0, 1.0 / (norm + 1e-6)), 1e-4, ++updates_, {});
    if (device_ != nullptr) EAGLET_RETURN_IF_ERROR(device_->wait());
    const double end = monotonic_seconds();
    if (end - start < result->best_seconds && updates_ > 1) {  // the first step warms up and does not count
      result->best_seconds = end - start;
      result->phases = model_.seconds();
      result->clip_seconds = optimizer - clip;
      result->optimizer_seconds = end - optimizer;
    }
    return end - start;
  }

 private:
  DraftModel& model_;
  Accelerator* const device_;
  SyntheticBatch batch_;
  RepeatedRows repeated_;  // as training has them there
  DraftInputs inputs_;
  PlacedArray<float> first_, second_;
  StepSums sums_;
  std::int64_t updates_ = 0;
};

// Of one rank's device bf16 products, or of the processor products in the type that is used.
double peak_flops(ComputeType type, Accelerator* device) {
  return device != nullptr ? measured_device_flops(*device) : measured_product_flops(type);
}

Result<BenchResult> measure(const BenchShape& shape, TttOptions options, int steps, Accelerator* device,
                            Progress& progress) {
  if (device == nullptr) EAGLET_RETURN_IF_ERROR(check_memory(shape, options.compute_type));
  if (device != nullptr) options.states = StateForm::kBF16;
  progress.begin("bench " + shape.name, static_cast<std::uint64_t>(steps) + 1, "steps");
  const SyntheticTarget target(shape);
  EAGLET_ASSIGN_OR_RETURN(
      auto model,
      DraftModel::create(new_draft(shape.config, target.vocab, shape.train_head, target.head, target.norm, 1),
                         {target.embed.data(), target.norm.data(), target.head.data(), 1e-5}, options,
                         shape.rows, true, device));
  BenchResult result;
  Bench bench(shape, *model, device);
  EAGLET_RETURN_IF_ERROR(bench.take_moments());
  for (int s = 0; s <= steps; ++s) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "the benchmark was stopped");
    EAGLET_ASSIGN_OR_RETURN(const double seconds, bench.step(&result));
    progress.update(static_cast<std::uint64_t>(s) + 1, fmt::format("{:.3f} s a step", seconds));
  }
  result.gflop = NeededWork(shape.config, options.ttt_steps, shape.train_head)
                     .flops(bench.inputs(), options.row_sampling, 0) /
                 1e9;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  result.rss = static_cast<double>(usage.ru_maxrss) * 1024.0;
  result.compute_type = options.compute_type;
  if (device != nullptr) {
    result.device = device->name();
    EAGLET_RETURN_IF_ERROR(bench.measure_ops(&result));
    result.device_bytes = static_cast<double>(model->memory_bytes() + bench.moment_bytes());
    model.reset();  // the peak needs some of its memory
  }
  result.peak = peak_flops(options.compute_type, device) / 1e9;
  result.supervised = bench.supervised();
  progress.end(fmt::format("{} steps", steps));
  return result;
}

Json phases_json(const BenchResult& r) {
  return {{"plan", r.phases.plan},
          {"load_weights", r.phases.load},
          {"layers_forward", r.phases.forward},
          {"head_and_loss", r.phases.head},
          {"layers_backward", r.phases.backward},
          {"clip", r.clip_seconds},
          {"optimizer", r.optimizer_seconds}};
}

// Empty without a device.
Json device_seconds_json(const BenchResult& r) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kOpGroups; ++i)
    if (r.device_times.seconds[i] > 0)
      json[op_group_name(static_cast<OpGroup>(i))] = r.device_times.seconds[i];
  return json;
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
                       {"device", r.device},
                       {"device_bytes", r.device_bytes},
                       {"compute_type", compute_type_name(r.compute_type)},
                       {"tokens_per_second", rate},
                       {"supervised_tokens_per_second", supervised_rate},
                       {"needed_gflop_per_token", r.gflop / rows},
                       {"gflops", gflops},
                       {"gemm_peak_gflops", r.peak},
                       {"share_of_peak", gflops / r.peak},
                       {"step_seconds", r.best_seconds},
                       {"phase_seconds", phases_json(r)},
                       {"device_seconds", device_seconds_json(r)},
                       {"peak_rss_bytes", r.rss}};
    std::printf("%s\n", json_line(line).c_str());
    return;
  }
  fmt::print("shape            {} ({})\n", shape.name, shape.about);
  const bool on_device = r.device != "cpu";
  fmt::print("tokens/s         {:.0f} (supervised {:.0f}), best step {:.3f} s on {}\n", rate, supervised_rate,
             r.best_seconds, on_device ? r.device : fmt::format("{} threads", num_threads()));
  fmt::print(
      "needed work      {:.3f} GFLOP a token, {:.0f} GFLOP/s = {:.0f} % of this {}'s GEMM peak "
      "({:.0f} in {})\n",
      r.gflop / rows, gflops, 100 * gflops / r.peak, on_device ? "device" : "machine", r.peak,
      compute_type_name(on_device ? ComputeType::kBf16 : r.compute_type));
  fmt::print("peak memory      {}\n", human_bytes(r.rss));
  if (on_device) fmt::print("of the device    {}\n", human_bytes(r.device_bytes));
  fmt::print("time by phase   ");
  const Json phases = phases_json(r);
  for (const auto& [name, seconds] : phases.items())
    fmt::print(" {} {:.1f} %", name, 100 * seconds.get<double>() / r.best_seconds);
  fmt::print("\n");
  if (!on_device) return;
  fmt::print("device by op    ");
  const Json ops = device_seconds_json(r);
  for (const auto& [name, seconds] : ops.items())
    fmt::print(" {} {:.1f} %", name, 100 * seconds.get<double>() / r.device_times.in_line());
  fmt::print("; at work {:.1f} ms\n", 1e3 * r.device_times.in_line());
}

// Threads 1, 2, 4, ... and all: speed, and what share of threads times the speed of one that is.
Status print_scaling(const BenchShape& shape, const TttOptions& options, int steps, Context& context) {
  const int most = num_threads();
  double alone = 0;
  Json all = Json::array();
  for (int threads = 1;; threads = std::min(2 * threads, most)) {
    set_num_threads(threads);
    EAGLET_ASSIGN_OR_RETURN(const BenchResult result,
                            measure(shape, options, steps, nullptr, *context.progress));
    const double rate = static_cast<double>(shape.rows) / result.best_seconds;
    if (threads == 1) alone = rate;
    const double efficiency = rate / (threads * alone);
    all.push_back({{"threads", threads}, {"tokens_per_second", rate}, {"efficiency", efficiency}});
    if (!context.json)
      fmt::print("{} {:3} threads {:8.0f} tokens/s, efficiency {:.0f} %\n", shape.name, threads, rate,
                 100 * efficiency);
    if (threads == most) break;
  }
  if (context.json)
    std::printf("%s\n", json_line({{"schema", 1}, {"shape", shape.name}, {"scaling", all}}).c_str());
  return {};
}

std::string shape_names() {
  std::string names;
  for (const BenchShape& shape : bench_shapes()) names += (names.empty() ? "" : ", ") + shape.name;
  return names;
}

// auto: the faster one that fits.
Result<ComputeType> choose_compute_type(const BenchFlags& flags, const BenchShape& shape,
                                        Accelerator* device) {
  if (flags.compute_type != "auto") return parse_compute_type(flags.compute_type);
  if (device != nullptr) return ComputeType::kBf16;
  const ComputeType fastest = fastest_compute_type();
  return check_memory(shape, fastest).ok() ? fastest : ComputeType::kF32;
}

// What the flags change of a named shape: for plots of the cost as one size grows.
void apply_flags(const BenchFlags& flags, BenchShape* shape) {
  shape->train_head = shape->train_head || flags.train_head;
  if (flags.ttt_steps > 0) shape->ttt_steps = flags.ttt_steps;
  if (flags.rows > 0) shape->rows = flags.rows;
  if (flags.documents > 0) shape->documents = flags.documents;
  if (flags.draft_vocab_size > 0) shape->config.draft_vocab = flags.draft_vocab_size;
}

Status check_flags(const BenchShape& shape) {
  if (shape.config.draft_vocab > shape.config.vocab)
    return Status(StatusCode::kUsage,
                  fmt::format("a draft vocabulary of {} is larger than the target's {}",
                              shape.config.draft_vocab, shape.config.vocab),
                  "--draft-vocab-size");
  if (shape.documents > shape.rows / 2)
    return Status(StatusCode::kUsage,
                  fmt::format("{} rows are too few for {} documents", shape.rows, shape.documents),
                  "--documents");
  return {};
}

}  // namespace

Run add_bench(CLI::App& app) {
  app.footer(
      "Examples:\n  eaglet bench train --shape smollm2\n  eaglet bench train --shape deep --steps 10 --json\n"
      "  eaglet bench train --shape smollm2 --ttt-steps 8 --max-seq-len 8192\n"
      "  eaglet bench generate --requests 10000 --concurrency 64\n"
      "  eaglet bench store --store states\n"
      "  eaglet bench extract --model target.gguf\n"
      "  eaglet bench watch --processes 100");
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* train =
      app.add_subcommand("train", "real training steps (forward, backward, clip, AdamW) on synthetic rows");
  train->add_option("--shape", flags->shape, shape_names());
  train->add_option("--steps", flags->steps, "steps to time; the best counts")->check(CLI::PositiveNumber);
  train->add_option("--threads", flags->threads, "0 = all cores")->check(CLI::NonNegativeNumber);
  CLI::Option* scaling =
      train->add_flag("--scaling", flags->scaling,
                      "measure with 1, 2, 4, ... threads up to --threads, and print the efficiency of each");
  train->add_flag("--train-head", flags->train_head, "train lm_head too");
  train->add_option("--loss-fn", flags->loss_fn, "the loss, as in eaglet train");
  train->add_option("--compute-type", flags->compute_type,
                    "what matrix products multiply in: auto, f32, bf16");
  train->add_option("--device", flags->device, kDeviceHelp)->excludes(scaling);
  train->add_option("--ttt-steps", flags->ttt_steps, "drafting steps in place of the shape's")
      ->check(CLI::Range(1, kMaxTttSteps));
  train->add_option("--max-seq-len", flags->rows, "rows of the batch in place of the shape's")
      ->check(CLI::PositiveNumber);
  train->add_option("--documents", flags->documents, "documents in the batch in place of the shape's")
      ->check(CLI::PositiveNumber);
  train->add_option("--draft-vocab-size", flags->draft_vocab_size, "in place of the shape's")
      ->check(CLI::PositiveNumber);
  train->add_option("--row-sampling", flags->row_sampling, "share of the start rows that is unrolled")
      ->check(CLI::Range(0.001, 1.0));
  train->add_option("--chunk-rows", flags->chunk_rows, "key rows of a chunk; 0 = as eaglet train")
      ->check(CLI::NonNegativeNumber);
  auto generate_flags = std::make_shared<BenchGenerateFlags>();
  CLI::App* generate = add_bench_generate(app, generate_flags.get());
  auto store_flags = std::make_shared<BenchStoreFlags>();
  CLI::App* store = add_bench_store(app, store_flags.get());
  auto extract_flags = std::make_shared<BenchExtractFlags>();
  CLI::App* extract = add_bench_extract(app, extract_flags.get());
  auto watch_flags = std::make_shared<BenchWatchFlags>();
  CLI::App* watch = add_bench_watch(app, watch_flags.get());
  app.require_subcommand(1);
  return [flags, generate_flags, generate, store_flags, store, extract_flags, extract, watch_flags,
          watch](Context& context) -> Status {
    if (generate->parsed()) return bench_generate(*generate_flags, context);
    if (store->parsed()) return bench_store(*store_flags, context);
    if (extract->parsed()) return bench_extract(*extract_flags, context);
    if (watch->parsed()) return bench_watch(*watch_flags, context);
    set_num_threads(flags->threads);
    EAGLET_ASSIGN_OR_RETURN(BenchShape shape, find_shape(flags->shape));
    apply_flags(*flags, &shape);
    EAGLET_RETURN_IF_ERROR(check_flags(shape));
    TttOptions options;
    EAGLET_ASSIGN_OR_RETURN(options.losses, parse_loss(flags->loss_fn));
    options.ttt_steps = static_cast<int>(shape.ttt_steps);
    options.row_sampling = flags->row_sampling;
    options.chunk_rows = flags->chunk_rows;
    // What is measured with so many threads is the processor.
    EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Accelerator> device,
                            open_device(flags->scaling ? "cpu" : flags->device, *context.progress));
    EAGLET_ASSIGN_OR_RETURN(options.compute_type, choose_compute_type(*flags, shape, device.get()));
    if (device != nullptr) shape.small_tables = false;  // a device gets a copy of whole tables
    if (flags->scaling) return print_scaling(shape, options, flags->steps, context);
    auto result = measure(shape, options, flags->steps, device.get(), *context.progress);
    if (!result.ok()) return result.status();
    print(shape, *result, context.json);
    return {};
  };
}

}  // namespace eaglet::apps
