#include "extract/native_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/files.h"
#include "base/memory_amount.h"
#include "base/spill_memory.h"
#include "device/threads.h"
#include "extract/states_maker.h"
#include "tensor/dtype.h"
#include "verifier/widened_copy.h"

namespace eaglet {
namespace {

// Puts states [tokens, hidden] into a slot of bf16 [tokens, slots, hidden].
void keep_slot(std::int64_t tokens, std::int64_t slots, std::int64_t hidden, std::int64_t slot,
               const float* x, std::uint16_t* states) {
  parallel_for(tokens, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t i = 0; i < hidden; ++i)
        states[(t * slots + slot) * hidden + i] = f32_to_bf16(x[t * hidden + i]);
  });
}

// Runs the documents through all layers and keeps the header's, bf16 [tokens, slots, hidden], at `states`.
Status capture(const std::vector<const std::vector<std::int32_t>*>& ids, std::int64_t tokens,
               const StoreHeader& header, const std::function<void(std::int64_t)>& on_layer,
               TargetForward* target, std::uint16_t* states) {
  const std::int64_t hidden = header.hidden, slots = header.slots(), layers = header.target_layers;
  return target->run(ids, layers, [&](std::int64_t k, const float* x) {
    const auto found = std::find(header.aux_layers.begin(), header.aux_layers.end(), k);
    if (found != header.aux_layers.end())
      keep_slot(tokens, slots, hidden, found - header.aux_layers.begin(), x, states);
    if (k == layers) keep_slot(tokens, slots, hidden, slots - 1, x, states);
    if (k > 0 && on_layer) on_layer(k);
    return Status();
  });
}

}  // namespace

Result<std::vector<std::uint16_t>> native_document_states(const std::vector<std::int32_t>& ids,
                                                          const StoreHeader& header, TargetForward* target) {
  std::vector<std::uint16_t> states(ids.size() * static_cast<std::size_t>(header.slots() * header.hidden));
  EAGLET_RETURN_IF_ERROR(
      capture({&ids}, static_cast<std::int64_t>(ids.size()), header, nullptr, target, states.data()));
  return states;
}

Result<std::vector<NativePass>> plan_native_passes(const TargetForward& target,
                                                   const std::vector<Conversation>& documents,
                                                   std::int64_t slots, std::uint64_t memory_bytes) {
  const std::uint64_t token =
      target.bytes_per_token() + static_cast<std::uint64_t>(2 * slots * target.config().hidden);
  std::int64_t longest = 0;
  for (const Conversation& document : documents)
    longest = std::max(longest, static_cast<std::int64_t>(document.input_ids.size()));
  const std::uint64_t fixed = target.fixed_bytes(longest), rows = token * static_cast<std::uint64_t>(longest);
  const bool spills = !target.spill_directory().empty();
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t disk,
                          spills ? free_disk_bytes(target.spill_directory()) : Result<std::uint64_t>(0));
  const std::uint64_t least = fixed + (spills ? 0 : rows);
  if (memory_bytes < least)
    return Status(StatusCode::kNoSpace,
                  fmt::format("{} of memory do not hold one layer and the longest document ({} tokens)",
                              human_bytes(static_cast<double>(memory_bytes)), longest),
                  target.path(),
                  fmt::format("give --memory {}M or more, or a shorter --max-seq-len", (least >> 20) + 1));
  const std::uint64_t for_rows = spills ? disk / 2 : memory_bytes - fixed;
  if (for_rows < rows)
    return Status(StatusCode::kNoSpace,
                  fmt::format("half of the free {} do not hold the rows of the longest document ({} tokens)",
                              human_bytes(static_cast<double>(disk)), longest),
                  target.spill_directory(), "free some, or give a shorter --max-seq-len");
  const auto fits = static_cast<std::int64_t>(for_rows / token);
  // Each weight read is multiplied with so many rows; an expert's with its share of them.
  constexpr std::int64_t kRowsOfAWeight = 8192;
  const ExpertConfig& e = target.config().experts;
  const std::int64_t most = std::min(fits, kRowsOfAWeight * (e.count > 0 ? e.count / e.per_token : 1));
  std::vector<NativePass> passes;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const auto tokens = static_cast<std::int64_t>(documents[i].input_ids.size());
    if (passes.empty() || passes.back().tokens + tokens > most) passes.push_back({i, 0, 0});
    ++passes.back().count;
    passes.back().tokens += tokens;
  }
  return passes;
}

Status run_native_pass(const NativePass& pass, const StoreHeader& header,
                       std::vector<Conversation>* documents,
                       const std::function<void(std::int64_t)>& on_layer, TargetForward* target,
                       StoreWriter* writer) {
  std::vector<const std::vector<std::int32_t>*> ids;
  for (std::size_t i = pass.first; i < pass.first + pass.count; ++i)
    ids.push_back(&(*documents)[i].input_ids);
  SpillMemory memory;
  const std::int64_t row = header.slots() * header.hidden;
  EAGLET_RETURN_IF_ERROR(memory.reserve(
      target->spill_directory(), static_cast<std::uint64_t>(pass.tokens * row) * sizeof(std::uint16_t)));
  auto* states = memory.as<std::uint16_t>();
  EAGLET_RETURN_IF_ERROR(capture(ids, pass.tokens, header, on_layer, target, states));
  const std::uint16_t* at = states;
  for (std::size_t i = pass.first; i < pass.first + pass.count; ++i) {
    Conversation& document = (*documents)[i];
    const std::uint16_t* end = at + static_cast<std::int64_t>(document.input_ids.size()) * row;
    EAGLET_RETURN_IF_ERROR(writer->append({document.id,
                                           std::move(document.input_ids),
                                           std::move(document.loss_mask),
                                           {at, end},
                                           std::nullopt}));
    memory.release(static_cast<std::uint64_t>(at - states) * sizeof(std::uint16_t),
                   static_cast<std::uint64_t>(end - at) * sizeof(std::uint16_t));
    at = end;
  }
  return writer->flush();
}

namespace {

// Of a folder the files of weights.
Result<std::uint64_t> bytes_of_model(const std::string& path) {
  if (!is_directory(path)) return file_bytes(path);
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(path));
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) continue;
    EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(path + "/" + name));
    sum += bytes;
  }
  return sum;
}

// Layers between products cost time too, and the disk may be what binds: so "at least".
void tell_plan(const std::vector<NativePass>& passes, std::int64_t tokens, std::uint64_t memory,
               std::uint64_t weight_bytes, const TargetForward& target, ComputeType type,
               Progress& progress) {
  const double flops = target.flops_per_token() * static_cast<double>(tokens);
  std::int64_t longest = 0;
  for (const NativePass& pass : passes) longest = std::max(longest, pass.tokens);
  progress.note(fmt::format(
      "engine native: products in {}, {} {} of up to {} tokens in {} of memory; {:.2f} GFLOP a token, {:.1f} "
      "TFLOP in "
      "all, at least {} at the speed of products here now; every pass reads the weights once, {} in all",
      compute_type_name(type), passes.size(), passes.size() == 1 ? "pass" : "passes", longest,
      human_bytes(static_cast<double>(memory)), target.flops_per_token() / 1e9, flops / 1e12,
      human_duration(flops / std::max(measured_product_flops(type), 1e9)),
      human_bytes(static_cast<double>(weight_bytes) * static_cast<double>(passes.size()))));
}

}  // namespace

std::string tell_waiting(double seconds, double waited, std::uint64_t weight_bytes) {
  constexpr double kShortPass = 10, kMuch = 0.2;
  if (seconds < kShortPass || waited < kMuch * seconds) return {};
  return fmt::format(
      "the weights are slower than the arithmetic: {:.0f} % of the pass waited for them ({} in {}, from the "
      "disk and "
      "taken back to numbers). A longer pass needs them less often: more --memory, or --spill; or a faster "
      "disk",
      100 * waited / seconds, human_bytes(static_cast<double>(weight_bytes)), human_duration(seconds));
}

Status take_states_natively(ExtractWork* work, const ExtractOptions& options, const StoreHeader& header,
                            StoreWriter* writer, ExtractReport* report, Progress& progress) {
  set_num_threads(options.threads);
  ForwardOptions arithmetic;
  arithmetic.deterministic = options.deterministic;
  arithmetic.spill_directory = options.spill_directory;
  EAGLET_ASSIGN_OR_RETURN(arithmetic.compute_type, steady_compute_type(options.compute_type));
  EAGLET_ASSIGN_OR_RETURN(const auto target, TargetForward::open(options.model_path, arithmetic));
  EAGLET_RETURN_IF_ERROR(agree_on_maker(options.store_path, native_maker(arithmetic.compute_type)));
  std::uint64_t memory = available_memory_bytes() / 2;
  if (!options.memory.empty()) {
    EAGLET_ASSIGN_OR_RETURN(memory, parse_memory(options.memory));
  }
  EAGLET_ASSIGN_OR_RETURN(const auto passes,
                          plan_native_passes(*target, work->documents, header.slots(), memory));
  std::int64_t tokens = 0, done = 0;
  for (const NativePass& pass : passes) tokens += pass.tokens;
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t weight_bytes, bytes_of_model(options.model_path));
  tell_plan(passes, tokens, memory, weight_bytes, *target, arithmetic.compute_type, progress);
  const double start = monotonic_seconds();
  std::uint64_t documents = static_cast<std::uint64_t>(work->already_done);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const auto on_layer = [&](std::int64_t layer) {
      const double share = static_cast<double>(layer) / static_cast<double>(header.target_layers);
      report->seconds = monotonic_seconds() - start;
      report->tokens_per_second =
          (static_cast<double>(done) + share * static_cast<double>(passes[i].tokens)) /
          std::max(report->seconds, 1e-9);
      progress.update(documents + static_cast<std::uint64_t>(share * static_cast<double>(passes[i].count)),
                      fmt::format("pass {} of {}, layer {} of {}, {:.0f} tokens/s", i + 1, passes.size(),
                                  layer, header.target_layers, report->tokens_per_second));
    };
    const double pass_start = monotonic_seconds(), waited = target->waited_seconds();
    const Status status =
        run_native_pass(passes[i], header, &work->documents, on_layer, target.get(), writer);
    const std::string slow =
        tell_waiting(monotonic_seconds() - pass_start, target->waited_seconds() - waited, weight_bytes);
    if (!slow.empty() && i == 0) progress.note(slow);
    if (status.code() == StatusCode::kInterrupted)
      return Status(StatusCode::kInterrupted,
                    fmt::format("stopped by a signal; {} documents are in the store", documents),
                    options.store_path, "run the same command again to go on");
    EAGLET_RETURN_IF_ERROR(status);
    done += passes[i].tokens;
    documents += passes[i].count;
  }
  report->seconds = monotonic_seconds() - start;
  report->tokens_per_second = static_cast<double>(done) / std::max(report->seconds, 1e-9);
  return {};
}

}  // namespace eaglet
