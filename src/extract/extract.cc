#include "extract/extract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "device/threads.h"
#include "extract/native_states.h"
#include "formats/conversations.h"
#include "formats/layer_ids.h"
#include "formats/length_limit.h"
#include "formats/target_model.h"
#include "formats/transformers_target.h"
#include "store/forecast.h"
#include "store/state_codec.h"
#include "store/store.h"
#include "verifier/state_taker.h"
#include "verifier/target.h"
#include "verifier/widened_copy.h"

namespace eaglet {
namespace {

constexpr double kSecondsBetweenSyncs =
    20;  // a power cut loses at most this much work; a kill loses none of it

Status check_options(const ExtractOptions& options) {
  if (options.max_seq_len < 0)
    return Status(StatusCode::kUsage, "--max-seq-len is below 0", "eaglet extract", "0 means no cut");
  if (options.shard_bytes < 1024)
    return Status(StatusCode::kUsage, "--shard-bytes is too small", "eaglet extract", "the default is 1 GiB");
  return Status();
}

/// "native" or "llama" as asked, or by what the target is.
Result<std::string> choose_engine(const ExtractOptions& options) {
  if (options.engine == "native" || options.engine == "llama") return options.engine;
  if (options.engine == "auto")
    return std::string(is_transformers_target(options.model_path) ? "native" : "llama");
  return Status(StatusCode::kUsage, "there is no engine '" + options.engine + "'", "--engine",
                "use auto, native or llama");
}

Result<std::vector<std::int32_t>> choose_layers(const ExtractOptions& options, const TargetFacts& facts) {
  if (options.target_layer_ids.empty()) return usual_layer_ids(facts.num_layers);
  // Place 0, the embedding, is no layer's output: libllama does not name it.
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(options));
  EAGLET_RETURN_IF_ERROR(
      check_layer_ids(options.target_layer_ids, engine == "native" ? 0 : 1, facts.num_layers));
  return options.target_layer_ids;
}

StoreHeader header_for(const TargetFacts& facts, std::vector<std::int32_t> layers) {
  StoreHeader header;
  header.target_identity = facts.identity;
  header.target_name = facts.name;
  header.hidden = facts.hidden;
  header.target_layers = facts.num_layers;
  header.aux_layers = std::move(layers);
  return header;
}

/// The conversations that are still to do, cut, without those that teach nothing.
struct Work {
  std::vector<Conversation> documents;
  std::int64_t already_done = 0, skipped_empty = 0, cut_away = 0, cut = 0;
  std::int64_t least_useful_limit = 0;  // the shortest limit that would keep one of those cut away
  std::int64_t longest = 0;
};

Status check_tokens(const Conversation& document, const TargetFacts& facts, const std::string& path) {
  for (const std::int32_t token : document.input_ids)
    if (token < 0 || token >= facts.vocab)
      return Status(StatusCode::kConfig,
                    fmt::format("document {} has token id {}, the target's vocabulary has {}", document.id,
                                token, facts.vocab),
                    path, "these are conversations of another model: generate them with this target");
  return Status();
}

/// A store begun under another limit, or from other answers, is not gone on with: its documents would differ.
Status check_same_cut(Conversation document, std::int64_t limit, std::int64_t stored_tokens,
                      const std::string& store) {
  const LimitResult cut = cut_to_limit(limit, &document);
  const bool kept = cut == LimitResult::kCut || cut == LimitResult::kWhole;
  const std::int64_t tokens = kept ? static_cast<std::int64_t>(document.input_ids.size()) : 0;
  if (tokens == stored_tokens) return {};
  return Status(
      StatusCode::kConfig,
      fmt::format("document {} has {} tokens in the store and would have {} now: the store was begun "
                  "with another --max-seq-len or from other conversations",
                  document.id, stored_tokens, tokens),
      store, "give the --max-seq-len it was begun with, or extract into a new directory");
}

/// `begun`: the store that is gone on with, or nullptr.
Result<Work> plan_work(std::vector<Conversation> conversations, const ExtractOptions& options,
                       const TargetFacts& facts, const StoreWriter* begun) {
  std::int64_t limit = options.max_seq_len > 0 ? options.max_seq_len : facts.max_position_embeddings;
  if (facts.max_position_embeddings > 0) limit = std::min(limit, facts.max_position_embeddings);
  Work work;
  for (Conversation& document : conversations) {
    if (const std::int64_t stored = begun == nullptr ? 0 : begun->tokens_of(document.id); stored > 0) {
      EAGLET_RETURN_IF_ERROR(check_same_cut(std::move(document), limit, stored, options.store_path));
      ++work.already_done;
      continue;
    }
    EAGLET_RETURN_IF_ERROR(check_tokens(document, facts, options.conversations_path));
    const std::int64_t needed = least_useful_limit(document);
    switch (cut_to_limit(limit, &document)) {
      case LimitResult::kNothingSupervised:
        ++work.skipped_empty;
        continue;
      case LimitResult::kNothingLeft:
        ++work.cut_away;
        if (work.least_useful_limit == 0 || needed < work.least_useful_limit)
          work.least_useful_limit = needed;
        continue;
      case LimitResult::kCut:
        ++work.cut;
        break;
      case LimitResult::kWhole:
        break;
    }
    work.longest = std::max(work.longest, static_cast<std::int64_t>(document.input_ids.size()));
    work.documents.push_back(std::move(document));
  }
  return work;
}

/// What to say when there is no document to take.
Status nothing_to_learn(const Work& work, const ExtractOptions& options, std::uint64_t rows) {
  const std::string& where = options.conversations_path;
  if (work.cut_away == 0)
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("none of the {} conversations has a supervised token", rows), where,
                  "generate answers first, or eaglet prepare conversations that have them");
  return Status(StatusCode::kInvalidArgument,
                fmt::format("no supervised token is left in any of the {} conversations under the limit of "
                            "{} tokens ({} cut by the length limit, {} nothing supervised)",
                            rows, options.max_seq_len, work.cut_away, work.skipped_empty),
                where, fmt::format("give --max-seq-len {} or more", work.least_useful_limit));
}

DocumentSize document_size(const Conversation& document) {
  const KeptRows kept = kept_rows(document.loss_mask, true);
  return {static_cast<std::int64_t>(document.input_ids.size()), static_cast<std::int64_t>(document.id.size()),
          kept.aux_rows, kept.last_rows()};
}

Status tell_forecast(const Work& work, const ExtractOptions& options, const StoreWriterOptions& store,
                     const StoreHeader& header, Progress& progress) {
  std::vector<DocumentSize> sizes;
  for (const Conversation& document : work.documents) sizes.push_back(document_size(document));
  const Forecast forecast = forecast_store(header, sizes, store);
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, free_disk_bytes(options.store_path));
  EAGLET_RETURN_IF_ERROR(check_forecast(forecast, free_bytes, options.store_path, options.force));
  progress.note("captured: " + describe_layer_ids(header.aux_layers, header.target_layers) +
                "; and the last state");
  progress.note(fmt::format("states of {} documents, {} tokens: {}", forecast.documents, forecast.tokens,
                            forecast_text(forecast, free_bytes)));
  return Status();
}

/// Runs the documents through the target into the store; what is in the store stays on any failure.
Status take_states_with_llama(Work* work, const ExtractOptions& options, const StoreHeader& header,
                              StoreWriter* writer, ExtractReport* report, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const TargetWeightsAs weights, weights_as_from_name(options.weights));
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Target> target,
                          Target::load(options.model_path, {weights, options.threads}));
  const double start = monotonic_seconds();
  double synced = start;
  std::int64_t tokens = 0;
  std::uint64_t finished = 0;
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<StateTaker> taker,
                          StateTaker::create(*target, {header.aux_layers, work->longest}));
  for (Conversation& document : work->documents) {
    auto states = taker->take(document.input_ids);
    if (!states.ok()) return states.status().at("document " + document.id);
    tokens += static_cast<std::int64_t>(document.input_ids.size());
    EAGLET_RETURN_IF_ERROR(writer->append(
        {document.id, std::move(document.input_ids), std::move(document.loss_mask), std::move(*states)}));
    ++finished;
    const double now = monotonic_seconds();
    report->seconds = now - start;
    report->tokens_per_second = static_cast<double>(tokens) / std::max(report->seconds, 1e-9);
    progress.update(static_cast<std::uint64_t>(work->already_done) + finished,
                    fmt::format("{:.0f} tokens/s", report->tokens_per_second));
    if (interrupted()) {
      EAGLET_RETURN_IF_ERROR(writer->flush());
      return Status(StatusCode::kInterrupted,
                    fmt::format("stopped by a signal; {} documents are in the store",
                                work->already_done + static_cast<std::int64_t>(finished)),
                    options.store_path, "run the same command again to go on");
    }
    if (now - synced > kSecondsBetweenSyncs) {
      EAGLET_RETURN_IF_ERROR(writer->flush());
      synced = now;
    }
  }
  return {};
}

/// Pass after pass: every document of a pass goes through a layer before the next layer is read.
Status take_states_natively(Work* work, const ExtractOptions& options, const StoreHeader& header,
                            StoreWriter* writer, ExtractReport* report, Progress& progress) {
  set_num_threads(options.threads);
  EAGLET_ASSIGN_OR_RETURN(const auto target, TargetForward::open(options.model_path));
  std::uint64_t memory = available_memory_bytes() / 2;
  if (!options.memory.empty()) {
    EAGLET_ASSIGN_OR_RETURN(memory, parse_memory(options.memory));
  }
  EAGLET_ASSIGN_OR_RETURN(const auto passes,
                          plan_native_passes(*target, work->documents, header.slots(), memory));
  std::int64_t tokens = 0, done = 0;
  for (const NativePass& pass : passes) tokens += pass.tokens;
  progress.note(
      fmt::format("engine native: {} {} of up to {} tokens in {} of memory, {:.2f} GFLOP a token, {:.1f} "
                  "TFLOP in all; every pass reads the weights once",
                  passes.size(), passes.size() == 1 ? "pass" : "passes",
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

Status take_states(Work* work, const ExtractOptions& options, const StoreHeader& header, StoreWriter* writer,
                   ExtractReport* report, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(options));
  return engine == "native" ? take_states_natively(work, options, header, writer, report, progress)
                            : take_states_with_llama(work, options, header, writer, report, progress);
}

Status add_totals(const ExtractOptions& options, ExtractReport* report) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::open(options.store_path));
  report->documents = static_cast<std::int64_t>(store->documents().size());
  report->state_bytes = store->bytes();
  for (const StoredDocument& document : store->documents()) {
    report->tokens += document.tokens;
    report->supervised_tokens += document.supervised_tokens;
  }
  return Status();
}

}  // namespace

Result<WriterShare> writer_share(const std::string& writer) {
  if (writer.empty()) return WriterShare();
  unsigned index = 0, count = 0;
  int end = 0;
  if (std::sscanf(writer.c_str(), "%5u/%5u%n", &index, &count, &end) == 2 &&
      end == static_cast<int>(writer.size()) && index >= 1 && index <= count)
    return WriterShare{index - 1, count};
  return Status(StatusCode::kUsage, "'" + writer + "' is no share of the work", "--writer",
                "K/N: the K-th of N processes, for example 1/4 to 4/4");
}

Result<StoreWriterOptions> store_options(const std::string& store_dtype, bool drop_unsupervised,
                                         std::uint64_t shard_bytes, const std::string& writer) {
  StoreWriterOptions options;
  EAGLET_ASSIGN_OR_RETURN(options.encoding, state_encoding_from_name(store_dtype));
  options.drop_unsupervised = drop_unsupervised;
  options.shard_bytes = shard_bytes;
  options.parallel = !writer.empty();
  return options;
}

Result<ExtractReport> extract(const ExtractOptions& options, Progress& progress) {
  EAGLET_RETURN_IF_ERROR(check_options(options));
  EAGLET_ASSIGN_OR_RETURN(ConversationFile file, read_conversations(options.conversations_path));
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> layers, choose_layers(options, facts));
  EAGLET_ASSIGN_OR_RETURN(
      const StoreWriterOptions store,
      store_options(options.store_dtype, options.drop_unsupervised, options.shard_bytes, options.writer));
  EAGLET_ASSIGN_OR_RETURN(const WriterShare share, writer_share(options.writer));
  StoreHeader header = header_for(facts, std::move(layers));
  if (store.encoding == StateEncoding::kFp8) header.dtype = Dtype::kF8E4M3;
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWriter> writer,
                          StoreWriter::open(options.store_path, header, store));
  for (const std::string& note : writer->recovery_notes()) progress.note(note);
  if (!file.broken.empty())
    progress.note(fmt::format("{} lines of {} cannot be used (first: line {}, {})", file.broken.size(),
                              options.conversations_path, file.broken[0].line, file.broken[0].reason));

  if (share.count > 1)
    std::erase_if(file.conversations, [&](const Conversation& row) { return !share.has(row.id); });
  const auto rows = static_cast<std::uint64_t>(file.conversations.size());
  EAGLET_ASSIGN_OR_RETURN(Work work, plan_work(std::move(file.conversations), options, facts, writer.get()));
  if (work.documents.empty() && writer->finished_ids().empty()) return nothing_to_learn(work, options, rows);
  if (work.skipped_empty > 0)
    progress.note(fmt::format("{} conversations left out: nothing supervised", work.skipped_empty));
  if (work.cut_away > 0)
    progress.note(fmt::format("{} conversations left out: cut by the length limit", work.cut_away));
  if (work.cut > 0) progress.note(fmt::format("{} conversations are cut to the length limit", work.cut));

  ExtractReport report;
  report.already_done = work.already_done;
  report.broken_lines = static_cast<std::int64_t>(file.broken.size());
  report.skipped_empty = work.skipped_empty;
  report.cut_away = work.cut_away;
  if (!work.documents.empty()) {
    EAGLET_RETURN_IF_ERROR(tell_forecast(work, options, store, header, progress));
    progress.begin("extract", rows - static_cast<std::uint64_t>(work.skipped_empty + work.cut_away),
                   "documents", static_cast<std::uint64_t>(work.already_done));
    EAGLET_RETURN_IF_ERROR(take_states(&work, options, header, writer.get(), &report, progress));
  }
  EAGLET_RETURN_IF_ERROR(writer->finish());
  EAGLET_RETURN_IF_ERROR(add_totals(options, &report));
  if (!work.documents.empty())
    progress.end(fmt::format("{} documents, {} tokens, {}, {:.0f} tokens/s", report.documents, report.tokens,
                             human_bytes(static_cast<double>(report.state_bytes)), report.tokens_per_second));
  return report;
}

Result<ExtractPlan> plan_extraction(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(ConversationFile file, read_conversations(options.conversations_path));
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> layers, choose_layers(options, facts));
  EAGLET_ASSIGN_OR_RETURN(auto work, plan_work(std::move(file.conversations), options, facts, nullptr));
  return ExtractPlan{header_for(facts, std::move(layers)), std::move(work.documents)};
}

}  // namespace eaglet
