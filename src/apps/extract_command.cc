#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "apps/command.h"
#include "apps/extract_ranks.h"
#include "apps/stage_json.h"
#include "base/clock.h"
#include "extract/extract.h"
#include "extract/take_in.h"

namespace eaglet::apps {
namespace {

struct ExtractFlags {
  ExtractOptions run;  // with the embedded target, or servers
  TakeInOptions take;  // from files of another tool
  bool strict = false;
  std::optional<double> wait_seconds;
};

void print(const ExtractReport& report, const ExtractOptions& options) {
  const double share = report.tokens > 0 ? 100.0 * static_cast<double>(report.supervised_tokens) /
                                               static_cast<double>(report.tokens)
                                         : 0;
  fmt::print("{} documents in {} ({} before)\n", report.documents, options.store_path, report.already_done);
  fmt::print("  {} tokens, {:.1f} % supervised, {}\n", report.tokens, share,
             human_bytes(static_cast<double>(report.state_bytes)));
  if (report.broken_lines + report.skipped_empty + report.cut_away > 0)
    fmt::print(
        "  left out: {} broken lines, {} without a supervised token, {} cut away by the length limit\n",
        report.broken_lines, report.skipped_empty, report.cut_away);
  if (report.seconds > 0)
    fmt::print("  {:.0f} tokens/s over {:.1f} s\n", report.tokens_per_second, report.seconds);
  if (report.asked + report.taken_over > 0)
    fmt::print("  {} requests, {} files taken that an earlier run had asked for\n", report.asked,
               report.taken_over);
  for (const auto& [reason, count] : report.left_out) fmt::print("  left out: {} {}\n", count, reason);
  for (const auto& [id, file] : report.left_behind)
    fmt::print("  still locked, left behind: {} ({})\n", file, id);
}

void print(const TakeInReport& report, const TakeInOptions& options) {
  for (const auto& one : report.left_out) fmt::print("{}: {}: {}\n", one.file, one.problem, one.reason);
  fmt::print("{} files: {}\n", report.files, report.summary());
  const std::int64_t refused = static_cast<std::int64_t>(report.left_out.size());
  fmt::print("used {}, refused {}{}\n", report.used, refused,
             report.already_done > 0 ? fmt::format(", {} were there before", report.already_done) : "");
  if (report.unsupervised > 0)
    fmt::print("{} without a supervised token were left out\n", report.unsupervised);
  if (options.check_only) return;
  fmt::print("{}\n{} documents in {}, {} tokens, {}\n", report.layers, report.documents, options.store_path,
             report.tokens, human_bytes(static_cast<double>(report.state_bytes)));
}

Json take_in_json(const TakeInReport& r, const TakeInOptions& options) {
  Json left_out = Json::array();
  for (const auto& one : r.left_out)
    left_out.push_back({{"file", one.file}, {"problem", one.problem}, {"reason", one.reason}});
  return {{"schema", 1},
          {"store", options.check_only ? Json(nullptr) : Json(options.store_path)},
          {"files", r.files},
          {"good", r.good},
          {"doubtful", r.doubtful},
          {"bad", r.bad},
          {"used", r.used},
          {"already_done", r.already_done},
          {"left_out", left_out},
          {"layers", r.layers},
          {"documents", r.documents},
          {"tokens", r.tokens},
          {"supervised_tokens", r.supervised_tokens},
          {"state_bytes", r.state_bytes}};
}

void add_common_flags(CLI::App& app, ExtractOptions* o) {
  app.add_option("--model", o->model_path, "the target: a GGUF file or a transformers folder");
  app.add_option("--conversations", o->conversations_path, "conversations.jsonl");
  app.add_option("--output-dir", o->store_path, "the state store; finished documents in it are kept");
  app.add_option("--target-layer-ids", o->target_layer_ids,
                 "layers to capture: id k is the state after k layers (default 2, L/2, L-3)")
      ->delimiter(',');
  app.add_option("--max-seq-len", o->max_seq_len, "cut documents to this many tokens (0: no cut)");
  app.add_option("--store-dtype", o->store_dtype, "bf16, bf16-lossless (about 2/3 of it) or fp8 (half)")
      ->capture_default_str();
  app.add_flag("--drop-unsupervised", o->drop_unsupervised,
               "leave out states that no drafting step can reach");
  app.add_option("--writer", o->writer, "K/N: the K-th of N processes that fill the store together");
  app.add_option("--shard-bytes", o->shard_bytes, "size at which a new file begins")->capture_default_str();
  app.add_option("--threads", o->threads, "0: all cores")->capture_default_str();
  app.add_option("--weights", o->weights, "arithmetic for a quantised target: auto, stored, f16, f32")
      ->capture_default_str();
  app.add_option("--engine", o->engine,
                 "what runs the target: native (layer by layer), llama (libllama), or auto: native for a "
                 "transformers "
                 "folder")
      ->capture_default_str();
  app.add_option("--compute-type", o->compute_type,
                 "native: products in f32 or bf16 (sums are fp32); auto: bf16 where the processor has it")
      ->capture_default_str();
  app.add_flag(
         "--deterministic,--no-deterministic{false}", o->deterministic,
         "native: the same bits whatever the memory and the passes; without it, short tiles of rows are "
         "not filled up")
      ->capture_default_str();
  app.add_option("--memory", o->memory,
                 "native: weights and activations at once, for example 4G (half of what is free)");
  app.add_option(
         "--spill", o->spill_directory,
         "native: the rows of a pass lie in a file in this folder, so that a pass may be longer than memory; "
         "the file has no name and is gone when the program is")
      ->type_name("DIR");
  app.add_flag("--force", o->force, "go on although the disk seems too small");
}

void add_server_flags(CLI::App& app, ExtractOptions* o) {
  StatesServerOptions* s = &o->server;
  app.add_option(
         "--server", o->servers,
         "vLLM servers that keep hidden states (their connector's flags: docs/formats/foreign-states.md) "
         "make them instead of the embedded model")
      ->delimiter(',')
      ->type_name("URL,URL");
  app.add_option("--states-dir", s->states_dir,
                 "with --server: the servers' shared_storage_path; files in it that answer our requests are "
                 "taken and deleted, nothing outside is touched")
      ->type_name("DIR");
  app.add_option("--served-model", s->model, "the model to ask for (default: the one that is served)")
      ->type_name("NAME");
  app.add_option("--server-kind", s->kind, "auto, or vllm for one behind a proxy")->type_name("KIND");
  app.add_option("--api-key-env", s->api_key_env, "the environment variable that holds the API key")
      ->type_name("NAME");
  app.add_option("--ca-file", s->ca_file, "certificates to trust for https")->type_name("FILE");
  app.add_option("--concurrency", s->concurrency,
                 "with --server: documents under way, and files in the folder, at most")
      ->type_name("N");
  app.add_option("--timeout", s->timeout_seconds, "longest wait for one reply")->type_name("SECONDS");
  app.add_option("--tries", s->tries, "how often one request may be sent")->type_name("N");
  app.add_option("--retry-wait", s->retry_wait_seconds, "before the first retry; doubled with each")
      ->type_name("SECONDS");
  app.add_option("--wait-ready", s->wait_ready_seconds, "for a server that is not up yet")
      ->type_name("SECONDS");
}

void add_take_in_flags(CLI::App& app, ExtractFlags* flags) {
  TakeInOptions* o = &flags->take;
  app.add_option("--from", o->from,
                 "take in states of another tool: vllm, speculators, specforge, modelopt, nemo");
  app.add_option("DIR", o->states_path, "with --from: the folder of states");
  app.add_flag("--check", o->check_only, "only look at the states; nothing is written");
  app.add_flag("--strict", flags->strict, "fail when any file is refused");
  app.add_flag("--in-place", o->in_place, "leave the states where they are, the store refers to them");
  app.add_option("--captured-layer-ids", o->captured_layer_ids, "what each slot of the files holds, in order")
      ->delimiter(',');
  app.add_option("--layer-convention", o->layer_convention,
                 "how layer ids count: input (id k = input of layer k) or output (of layer k)")
      ->capture_default_str();
  app.add_option("--backend", o->backend, "modelopt: hf or vllm, which made the files");
  app.add_flag("--accept-doubtful", o->accept_doubtful, "use files with a slot of zeros all the same");
  app.add_option("--wait-seconds", flags->wait_seconds,
                 "for a file that is locked or still being written (default 10, with --server 60)");
}

Status run_take_in(ExtractFlags* flags, Context& context) {
  TakeInOptions& o = flags->take;
  const ExtractOptions& r = flags->run;
  if (o.states_path.empty())
    return Status(StatusCode::kUsage, "--from needs the folder of states", "eaglet extract",
                  "eaglet extract --from " + o.from + " DIR --conversations c.jsonl ...");
  o.conversations_path = r.conversations_path;
  o.model_path = r.model_path;
  o.store_path = r.store_path;
  o.target_layer_ids = r.target_layer_ids;
  o.max_seq_len = r.max_seq_len;
  o.force = r.force;
  if (flags->wait_seconds) o.wait_seconds = *flags->wait_seconds;
  EAGLET_ASSIGN_OR_RETURN(o.store,
                          store_options(r.store_dtype, r.drop_unsupervised, r.shard_bytes, r.writer));
  EAGLET_ASSIGN_OR_RETURN(const TakeInReport report, take_in_states(o, *context.progress));
  if (context.json)
    fmt::print("{}\n", take_in_json(report, o).dump(2));
  else
    print(report, o);
  if (!flags->strict || report.left_out.empty()) return Status();
  return Status(StatusCode::kDataLoss, fmt::format("{} files were refused", report.left_out.size()),
                o.states_path, "the reasons are above; leave --strict out to go on without them");
}

// Flags by what they belong to; one that would have no effect is refused, not passed over.
using FlagNames = std::vector<const char*>;
const FlagNames kOfNative = {"--compute-type", "--deterministic", "--memory", "--spill"};
const FlagNames kOfLlama = {"--weights"};
const FlagNames kOfEmbedded = {"--engine", "--threads"};
const FlagNames kOfServer = {"--states-dir", "--served-model", "--server-kind", "--api-key-env",
                             "--ca-file",    "--concurrency",  "--timeout",     "--tries",
                             "--retry-wait", "--wait-ready"};
const FlagNames kOfFiles = {"DIR", "--check", "--strict", "--in-place", "--backend", "--accept-doubtful"};
const FlagNames kOfOthersStates = {"--captured-layer-ids", "--layer-convention", "--wait-seconds"};

Status refuse(const CLI::App& app, const std::vector<FlagNames>& groups, const char* belongs) {
  for (const FlagNames& group : groups)
    for (const char* flag : group)
      if (app.count(flag) > 0)
        return Status(StatusCode::kUsage, fmt::format("{} has no effect here: it belongs {}", flag, belongs),
                      "eaglet extract", "leave it out");
  return {};
}

/// What cannot be told by one option alone.
Status check_together(const CLI::App& app, const ExtractFlags& flags) {
  const ExtractOptions& run = flags.run;
  if (!run.servers.empty() && !flags.take.from.empty())
    return Status(StatusCode::kUsage, "--server and --from exclude each other", "eaglet extract",
                  "--server asks for states, --from takes files that are there");
  if (!flags.take.from.empty())
    return refuse(app, {kOfNative, kOfLlama, kOfEmbedded, kOfServer}, "to states that are made, not --from");
  if (!run.servers.empty())
    return refuse(app, {kOfNative, kOfLlama, kOfEmbedded, kOfFiles}, "to --from or to the embedded target");
  EAGLET_RETURN_IF_ERROR(refuse(app, {kOfServer}, "to --server"));
  EAGLET_RETURN_IF_ERROR(refuse(app, {kOfFiles, kOfOthersStates}, "to --from"));
  if (run.model_path.empty()) return {};  // said later
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(run));
  return engine == "native" ? refuse(app, {kOfLlama}, "to --engine llama")
                            : refuse(app, {kOfNative}, "to --engine native");
}

Status run_target(const ExtractOptions& options, Context& context) {
  for (const auto& [value, flag] :
       {std::pair(&options.model_path, "--model"), std::pair(&options.conversations_path, "--conversations"),
        std::pair(&options.store_path, "--output-dir")})
    if (value->empty())
      return Status(StatusCode::kUsage, std::string(flag) + " is required", "eaglet extract",
                    "eaglet extract --model target.gguf --conversations c.jsonl --output-dir states");
  bool leads = true;
  EAGLET_ASSIGN_OR_RETURN(const ExtractReport report, extract_with_ranks(options, *context.progress, &leads));
  if (!leads) return {};
  if (!context.json) {
    print(report, options);
    return Status();
  }
  Json json = {{"schema", 1}, {"store", options.store_path}};
  json.update(extract_json(report));
  fmt::print("{}\n", json.dump(2));
  return Status();
}

}  // namespace

Run add_extract(CLI::App& app) {
  app.description(
      "Keeps the target's hidden states, or takes in what another tool kept. Run again to go on.");
  app.footer(
      "  eaglet extract --model target.gguf --conversations runs/a/conversations.jsonl --output-dir "
      "runs/a/states\n"
      "  eaglet extract --model target.gguf --conversations c.jsonl --output-dir states --target-layer-ids 2 "
      "15 27\n"
      "  mpirun -np 4 eaglet extract --model /models/target --conversations c.jsonl --output-dir states\n"
      "  eaglet extract --server http://gpu1:8000 --states-dir /shared/hs --conversations c.jsonl \\\n"
      "                 --model target.gguf --output-dir states --target-layer-ids 3,31,59     from a "
      "running vLLM\n"
      "  eaglet extract --from vllm /data/hs --conversations c.jsonl --check --strict       look first\n"
      "  eaglet extract --from vllm /data/hs --conversations c.jsonl --model /models/target --output-dir "
      "states");
  auto flags = std::make_shared<ExtractFlags>();
  add_common_flags(app, &flags->run);
  add_server_flags(app, &flags->run);
  add_take_in_flags(app, flags.get());
  return [flags, &app](Context& context) -> Status {
    EAGLET_RETURN_IF_ERROR(check_together(app, *flags));
    flags->run.server.captured_layer_ids = flags->take.captured_layer_ids;
    flags->run.server.layer_convention = flags->take.layer_convention;
    if (flags->wait_seconds) flags->run.server.wait_seconds = *flags->wait_seconds;
    return flags->take.from.empty() ? run_target(flags->run, context) : run_take_in(flags.get(), context);
  };
}

}  // namespace eaglet::apps
