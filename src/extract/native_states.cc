#include "extract/native_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/memory_amount.h"
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

}  // namespace

Result<std::vector<NativePass>> plan_native_passes(const TargetForward& target,
                                                   const std::vector<Conversation>& documents,
                                                   std::int64_t slots, std::uint64_t memory_bytes) {
  const std::uint64_t token =
      target.bytes_per_token() + static_cast<std::uint64_t>(2 * slots * target.config().hidden);
  std::int64_t longest = 0;
  for (const Conversation& document : documents)
    longest = std::max(longest, static_cast<std::int64_t>(document.input_ids.size()));
  const std::uint64_t fixed = target.fixed_bytes(longest);
  const std::uint64_t least = fixed + token * static_cast<std::uint64_t>(longest);
  if (memory_bytes < least)
    return Status(StatusCode::kNoSpace,
                  fmt::format("{} of memory do not hold one layer and the longest document ({} tokens)",
                              human_bytes(static_cast<double>(memory_bytes)), longest),
                  target.path(),
                  fmt::format("give --memory {}M or more, or a shorter --max-seq-len", (least >> 20) + 1));
  const auto fits = static_cast<std::int64_t>((memory_bytes - fixed) / token);
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
  const std::int64_t hidden = header.hidden, slots = header.slots(), layers = header.target_layers;
  std::vector<const std::vector<std::int32_t>*> ids;
  for (std::size_t i = pass.first; i < pass.first + pass.count; ++i)
    ids.push_back(&(*documents)[i].input_ids);
  std::vector<std::uint16_t> states(static_cast<std::size_t>(pass.tokens * slots * hidden));
  EAGLET_RETURN_IF_ERROR(target->run(ids, layers, [&](std::int64_t k, const float* x) {
    const auto found = std::find(header.aux_layers.begin(), header.aux_layers.end(), k);
    if (found != header.aux_layers.end())
      keep_slot(pass.tokens, slots, hidden, found - header.aux_layers.begin(), x, states.data());
    if (k == layers) keep_slot(pass.tokens, slots, hidden, slots - 1, x, states.data());
    if (k > 0) on_layer(k);
    return Status();
  }));
  auto at = states.begin();
  for (std::size_t i = pass.first; i < pass.first + pass.count; ++i) {
    Conversation& document = (*documents)[i];
    const auto end = at + static_cast<std::ptrdiff_t>(document.input_ids.size()) * slots * hidden;
    EAGLET_RETURN_IF_ERROR(writer->append({document.id,
                                           std::move(document.input_ids),
                                           std::move(document.loss_mask),
                                           {at, end},
                                           std::nullopt}));
    at = end;
  }
  return writer->flush();
}

Status take_states_natively(ExtractWork* work, const ExtractOptions& options, const StoreHeader& header,
                            StoreWriter* writer, ExtractReport* report, Progress& progress) {
  set_num_threads(options.threads);
  ForwardOptions arithmetic;
  arithmetic.deterministic = options.deterministic;
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
  progress.note(fmt::format(
      "engine native: products in {}, {} {} of up to {} tokens in {} of memory, {:.2f} GFLOP a "
      "token, {:.1f} TFLOP in all; every pass reads the weights once",
      compute_type_name(arithmetic.compute_type), passes.size(), passes.size() == 1 ? "pass" : "passes",
      std::max_element(passes.begin(), passes.end(),
                       [](const auto& a, const auto& b) { return a.tokens < b.tokens; })
          ->tokens,
      human_bytes(static_cast<double>(memory)), target->flops_per_token() / 1e9,
      target->flops_per_token() * static_cast<double>(tokens) / 1e12));
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
    const Status status =
        run_native_pass(passes[i], header, &work->documents, on_layer, target.get(), writer);
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
