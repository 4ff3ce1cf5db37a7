#include "extract/extract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "extract/extract_work.h"
#include "extract/native_states.h"
#include "extract/server_states.h"
#include "extract/states_maker.h"
#include "formats/conversations.h"
#include "formats/layer_ids.h"
#include "formats/target_model.h"
#include "formats/transformers_target.h"
#include "store/store.h"
#include "target/target_forward.h"
#include "verifier/state_taker.h"
#include "verifier/target.h"

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

/// Runs the documents through the target into the store; what is in the store stays on any failure.
Status take_states_with_llama(ExtractWork* work, const ExtractOptions& options, const StoreHeader& header,
                              StoreWriter* writer, ExtractReport* report, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const TargetWeightsAs weights, weights_as_from_name(options.weights));
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Target> target,
                          Target::load(options.model_path, {weights, options.threads}));
  const double start = monotonic_seconds();
  double synced = start;
  std::int64_t tokens = 0;
  std::uint64_t finished = 0;
  EAGLET_RETURN_IF_ERROR(agree_on_maker(options.store_path, "libllama, weights " + options.weights));
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

Status take_states(ExtractWork* work, const ExtractOptions& options, const StoreHeader& header,
                   StoreWriter* writer, ExtractReport* report, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(options));
  return engine == "native" ? take_states_natively(work, options, header, writer, report, progress)
                            : take_states_with_llama(work, options, header, writer, report, progress);
}

}  // namespace

// Our own forward where it knows the model, unless the store or a flag is libllama's.
Result<std::string> choose_engine(const ExtractOptions& options) {
  if (options.engine == "native" || options.engine == "llama") return options.engine;
  if (options.engine != "auto")
    return Status(StatusCode::kUsage, "there is no engine '" + options.engine + "'", "--engine",
                  "use auto, native or llama");
  if (is_transformers_target(options.model_path)) return std::string("native");
  const std::string maker = maker_of(options.store_path);
  if (!maker.empty()) return std::string(maker.starts_with("native") ? "native" : "llama");
  if (options.weights != "auto") return std::string("llama");
  return std::string(open_target_files(options.model_path).ok() ? "native" : "llama");
}

Result<std::vector<std::int32_t>> choose_layers(const ExtractOptions& options, const TargetFacts& facts) {
  if (options.target_layer_ids.empty()) return usual_layer_ids(facts.num_layers);
  // Place 0, the embedding, is no layer's output: libllama does not name it.
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(options));
  EAGLET_RETURN_IF_ERROR(
      check_layer_ids(options.target_layer_ids, engine == "native" ? 0 : 1, facts.num_layers));
  return options.target_layer_ids;
}

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
  if (!options.servers.empty()) return extract_from_servers(options, progress);
  EAGLET_ASSIGN_OR_RETURN(ConversationFile file, read_conversations(options.conversations_path));
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> layers, choose_layers(options, facts));
  EAGLET_ASSIGN_OR_RETURN(
      const StoreWriterOptions store,
      store_options(options.store_dtype, options.drop_unsupervised, options.shard_bytes, options.writer));
  EAGLET_ASSIGN_OR_RETURN(const WriterShare share, writer_share(options.writer));
  const StoreHeader header = header_for(facts, std::move(layers), store);
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWriter> writer,
                          StoreWriter::open(options.store_path, header, store));
  for (const std::string& note : writer->recovery_notes()) progress.note(note);
  if (!file.broken.empty())
    progress.note(fmt::format("{} lines of {} cannot be used (first: line {}, {})", file.broken.size(),
                              options.conversations_path, file.broken[0].line, file.broken[0].reason));

  if (share.count > 1)
    std::erase_if(file.conversations, [&](const Conversation& row) { return !share.has(row.id); });
  const auto rows = static_cast<std::uint64_t>(file.conversations.size());
  EAGLET_ASSIGN_OR_RETURN(ExtractWork work,
                          plan_work(std::move(file.conversations), options, facts, writer.get()));
  ExtractReport report;
  if (work.documents.empty() && writer->finished_ids().empty()) {
    if (share.count == 1) return nothing_to_learn(work, options, rows);
    progress.note("share " + options.writer + " has no document to take");
    return report;
  }
  tell_work(work, progress);
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
  return ExtractPlan{header_for(facts, std::move(layers), {}), std::move(work.documents)};
}

}  // namespace eaglet
