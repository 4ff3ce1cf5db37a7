#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/cache_dir.h"
#include "apps/command.h"
#include "apps/evaluate_json.h"
#include "apps/open_device.h"
#include "apps/serve_draft.h"
#include "apps/usage_error.h"
#include "base/files.h"
#include "formats/conversations.h"
#include "store/store.h"

namespace eaglet::apps {
namespace {

struct EvaluateFlags {
  EvaluateOptions evaluate;
  ServeRequest serve;
  bool do_serve = false;
  std::int64_t max_prompts = 6;
  ServerAcceptanceOptions server;
  PassCosts costs{-1, -1};  // -1: not given
  std::string device = "auto";
};

/// Flags of one way of serving have no effect on the other.
Status check_engine_flags(const CLI::App& app, const EvaluateFlags& flags) {
  const bool native = flags.do_serve && flags.serve.with == "native";
  for (const char* flag : {"--parallel", "--tokenizer", "--compute-type", "--memory"})
    if (!native && app.count(flag) > 0)
      return flags_error(std::string(flag) + " has no effect without --serve native", "leave it out");
  for (const char* flag : {"--serve-type", "--draft-type", "--work-dir"})
    if (native && app.count(flag) > 0)
      return flags_error(std::string(flag) + " has no effect with --serve native", "leave it out");
  if (app.count("--device") > 0 && flags.evaluate.store_path.empty())
    return flags_error("--device has no effect without --store", "leave it out");
  return {};
}

Status check(const EvaluateFlags& flags) {
  const bool states = !flags.evaluate.store_path.empty(), server = !flags.server.url.empty();
  if (!states && !flags.do_serve && !server)
    return flags_error("nothing to do: neither --store nor --serve nor --server", "give --store DIR");
  if (flags.serve.draft.empty() && (states || flags.do_serve))
    return flags_error("--draft is missing", "give the checkpoint folder of the draft");
  if (flags.serve.model.empty() && (states || flags.do_serve))
    return flags_error("--model is missing", "give the target: a GGUF file or a transformers folder");
  if (server && flags.serve.options.conversations_path.empty())
    return flags_error("--server needs the prompts", "--conversations FILE: rows that the target answered");
  if (flags.do_serve && flags.serve.options.conversations_path.empty()) {
    return flags_error("--serve needs the prompts",
                       "--conversations FILE: the rows that the states were taken from");
  }
  if (states && !is_directory(flags.serve.draft)) {
    return flags_error("--store needs a checkpoint folder as --draft, not a GGUF",
                       "leave --store out to serve a GGUF only");
  }
  return {};
}

std::string held_out_text(const EvaluateReport& report, double temperature) {
  std::string text =
      fmt::format("held out   {} documents, {} answer tokens; acceptance length {:.3f} at K {}\n",
                  report.documents, report.supervised_tokens, report.acceptance_length, report.depth.size());
  text += "  depth  accepted  of tokens   share  in vocab    loss\n";
  for (std::size_t k = 0; k < report.depth.size(); ++k) {
    const DepthAcceptance& d = report.depth[k];
    const double total = std::max(d.total, 1.0);
    text += fmt::format("  {:5}  {:8.0f}  {:9.0f}  {:6.4f}    {:6.4f}  {:6.3f}\n", k + 1, d.right, d.total,
                        d.right / total, d.right_in_vocab / total, d.loss);
  }
  for (const WalkedAcceptance& w : report.walked) {
    text += fmt::format("walked     draft length {}: {:.3f} tokens per pass\n", w.draft_length,
                        w.acceptance_length());
  }
  if (!report.depth.empty() && report.depth[0].overlap_rows > 0) {
    text += fmt::format("sampled    at temperature {}: sum of min(p, q) by depth", temperature);
    for (const DepthAcceptance& d : report.depth)
      text += d.overlap_rows > 0 ? fmt::format("  {:.4f}", d.overlap / d.overlap_rows) : "  -";
    text += "\n";
  }
  text += fmt::format("           {:.1f} % of the target's best tokens lie outside the draft vocabulary\n",
                      100 * report.teacher_best_outside_share);
  return text;
}

std::string gains_text(const std::vector<LengthGain>& gains, const PassCosts& costs, const char* origin) {
  std::string text = fmt::format(
      "draft length that pays best, {} (in plain passes: {:.3f} a drafted token, {:.3f} a token checked)\n",
      origin, costs.draft_step, costs.verify_token);
  const LengthGain* best = best_gain(gains);
  for (const LengthGain& gain : gains)
    text += fmt::format(
        "  {:2}  {:.3f} tokens per pass, a pass costs {:.2f}: {:.2f}x{}\n", gain.draft_length,
        gain.tokens_per_pass, gain.pass_cost, gain.speedup(),
        best == &gain ? (gain.speedup() > 1 ? "  <- best" : "  <- best, slower than no draft") : "");
  return text;
}

std::string server_text(const ServerAcceptance& s) {
  std::string text =
      fmt::format("server     {} ({}, {}): {} prompts, {:.0f} tokens, {:.3f} tokens per pass\n", s.url,
                  s.kind, s.model, s.prompts, s.tokens, s.acceptance_length());
  text += fmt::format(
      "           {:.0f} accepted of {:.0f} drafted ({}); {:.1f} % of the recorded answers' tokens again\n",
      s.accepted, s.drafted, s.source, 100 * s.same_share);
  if (s.asked_again)
    text +=
        "           asked again, each prompt only as far as the answer was the recorded one: these numbers\n";
  if (!s.accepted_at.empty() && s.drafts > 0) {
    text += "           by position";
    for (const double accepted : s.accepted_at) text += fmt::format("  {:.3f}", accepted / s.drafts);
    text += "\n";
  }
  return text;
}

// Rows every hold_out_every-th from the first, as training holds them out, when no states say which.
Result<std::vector<std::string>> held_out_ids(const EvaluateFlags& flags) {
  EAGLET_ASSIGN_OR_RETURN(const ConversationFile file,
                          read_conversations(flags.serve.options.conversations_path));
  std::vector<std::string> ids;
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, flags.evaluate.hold_out_every));
  for (std::size_t i = 0; i < file.conversations.size(); i += step) ids.push_back(file.conversations[i].id);
  return ids;
}

Result<ServeReport> run_serve(EvaluateFlags& flags, const std::optional<EvaluateReport>& held_out,
                              Progress& progress) {
  std::vector<std::string>& ids = flags.serve.options.ids;
  if (ids.empty()) {
    if (held_out) {
      ids = held_out->document_ids;
      std::sort(ids.begin(), ids.end());
    } else {
      EAGLET_ASSIGN_OR_RETURN(ids, held_out_ids(flags));
    }
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(0, flags.max_prompts));
    if (most > 0 && ids.size() > most) ids.resize(most);
  }
  return serve_draft(flags.serve, progress);
}

// The walk over exactly the served prompts, to the longest served draft.
Result<EvaluateReport> walk_served(const EvaluateFlags& flags, Progress& progress) {
  EvaluateOptions options = flags.evaluate;
  options.ids = flags.serve.options.ids;
  const auto& lengths = flags.serve.options.draft_lengths;
  options.ttt_steps = *std::max_element(lengths.begin(), lengths.end());
  return evaluate(options, progress);
}

/// The rows that the server is asked: those named, those held out, at most so many.
Result<std::vector<std::string>> server_rows(const EvaluateFlags& flags,
                                             const std::optional<EvaluateReport>& held_out) {
  std::vector<std::string> ids = flags.serve.options.ids;
  if (!ids.empty()) return ids;
  if (held_out) {
    ids = held_out->document_ids;
  } else {
    EAGLET_ASSIGN_OR_RETURN(ids, held_out_ids(flags));
  }
  std::sort(ids.begin(), ids.end());
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(0, flags.max_prompts));
  if (most > 0 && ids.size() > most) ids.resize(most);
  return ids;
}

/// Asks the user's server, and holds what it accepts against the walk over the same rows.
Status run_server(const EvaluateFlags& flags, const std::optional<EvaluateReport>& held_out, Context& context,
                  Json* json) {
  ServerAcceptanceOptions options = flags.server;
  options.conversations_path = flags.serve.options.conversations_path;
  options.max_tokens = flags.serve.options.max_tokens;
  EAGLET_ASSIGN_OR_RETURN(options.ids, server_rows(flags, held_out));
  if (held_out) {
    options.for_walk = true;
    EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open(flags.evaluate.store_path));
    for (const StoredDocument& document : store->documents())
      options.stored_tokens[document.id] = std::min(document.tokens, flags.evaluate.max_seq_len);
  }
  EAGLET_ASSIGN_OR_RETURN(const ServerAcceptance served, measure_server(options, *context.progress));
  (*json)["server"] = server_json(served);
  if (!context.json) fmt::print("{}", server_text(served));
  std::fflush(stdout);
  if (!held_out) return {};
  if (served.draft_length < 1)
    return flags_error("the server does not tell its draft length",
                       "give the one it was started with: --draft-length N");
  EvaluateOptions same = flags.evaluate;
  same.ids.clear();
  for (const auto& [id, tokens] : served.answer_tokens) same.ids.push_back(id);
  same.answer_tokens = served.answer_tokens;
  same.ttt_steps = served.draft_length;
  same.temperature = 0;
  EAGLET_ASSIGN_OR_RETURN(const EvaluateReport walked, evaluate(same, *context.progress));
  const ServerVerdict verdict = judge_server(served, walked.walked.back());
  (*json)["server_against_walked"] = verdict_json(verdict);
  (*json)["server_against_walked"]["walk"] = walk_json(walked.walked.back());
  if (!context.json)
    fmt::print(
        "walked     {:.3f} tokens per pass over the same rows at draft length {}: the server reaches {:.3f} "
        "of it\n",
        verdict.walked, served.draft_length, verdict.ratio);
  if (verdict.good) return {};
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("the server accepts less than the draft can: {:.3f} tokens per pass, {:.3f} walked",
                  served.acceptance_length(), verdict.walked),
      served.url, "look at, the likeliest first: " + fmt::format("{}", fmt::join(verdict.causes, "; ")));
}

/// What each draft length is worth, from given costs and from measured ones.
void tell_gains(const EvaluateFlags& flags, const EvaluateReport& walked, const ServeReport* served,
                bool print, Json* json) {
  const auto tell = [&](const PassCosts& costs, const char* origin, const char* key) {
    const std::vector<LengthGain> gains = length_gains(walked.walked, costs);
    (*json)[key] = gains_json(gains, costs);
    if (print) fmt::print("{}", gains_text(gains, costs, origin));
  };
  if (flags.costs.draft_step >= 0 || flags.costs.verify_token >= 0)
    tell({std::max(0.0, flags.costs.draft_step), std::max(0.0, flags.costs.verify_token)},
         "by the given costs", "draft_length_by_given_costs");
  if (served == nullptr) return;
  if (const auto costs = measured_costs(*served))
    tell(*costs, "by the costs measured here", "draft_length_by_measured_costs");
}

Json comparison_json(const ServeReport& report, const EvaluateReport* walked) {
  Json list = Json::array();
  for (const ServedLength& served : report.lengths) {
    const double against = served_against_walked(served, walked);
    list.push_back({{"draft_length", served.draft_length},
                    {"served", served.acceptance_length()},
                    {"served_over_walked_minus_one", std::isnan(against) ? Json(nullptr) : Json(against)}});
  }
  return list;
}

Status run_evaluate(EvaluateFlags& flags, Context& context) {
  EAGLET_RETURN_IF_ERROR(check(flags));
  flags.evaluate.draft_path = flags.serve.draft;
  flags.evaluate.model_path = flags.serve.model;
  flags.serve.options.threads = flags.evaluate.threads;
  flags.serve.temperature = flags.evaluate.temperature;
  if (flags.serve.work_dir.empty()) flags.serve.work_dir = cache_dir();
  Json json = {{"schema", 1}};
  std::optional<EvaluateReport> held_out, walked;
  if (!flags.evaluate.store_path.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<Accelerator> device,
                            open_device(flags.device, *context.progress));
    flags.evaluate.device = device.get();
    EAGLET_ASSIGN_OR_RETURN(held_out, evaluate(flags.evaluate, *context.progress));
    flags.evaluate.device = nullptr;  // it closes here
    json["held_out"] = evaluate_json(*held_out);
    if (!context.json) fmt::print("{}", held_out_text(*held_out, flags.evaluate.temperature));
    std::fflush(stdout);
  }
  if (flags.do_serve) {
    EAGLET_ASSIGN_OR_RETURN(const ServeReport report, run_serve(flags, held_out, *context.progress));
    if (held_out && report.temperature == 0) {  // the walk is greedy
      EAGLET_ASSIGN_OR_RETURN(walked, walk_served(flags, *context.progress));
    }
    const EvaluateReport* same_prompts = walked ? &*walked : nullptr;
    json["served"] = serve_json(report);
    json["served_against_walked"] = comparison_json(report, same_prompts);
    if (!context.json) fmt::print("{}", serve_text(report, same_prompts));
    if (same_prompts != nullptr) tell_gains(flags, *same_prompts, &report, !context.json, &json);
    if (!report.identical()) {
      if (context.json) fmt::print("{}\n", json_line(json));
      return Status(StatusCode::kInternal,
                    "the answers with the draft are not those of plain greedy decoding", flags.serve.draft,
                    "the differences are listed above; please report them with the target's name");
    }
  }
  if (held_out && !flags.do_serve) tell_gains(flags, *held_out, nullptr, !context.json, &json);
  const Status status = flags.server.url.empty() ? Status() : run_server(flags, held_out, context, &json);
  if (context.json) fmt::print("{}\n", json_line(json));
  return status;
}

void add_server_flags(CLI::App& app, EvaluateFlags& flags) {
  app.add_option("--server", flags.server.url,
                 "a running vLLM, SGLang or llama-server with the draft loaded: its acceptance, beside ours")
      ->type_name("URL");
  app.add_option("--served-model", flags.server.model, "with --server: the model's name there")
      ->type_name("NAME");
  app.add_option("--server-kind", flags.server.kind, "auto, vllm, sglang or llama")->type_name("KIND");
  app.add_option("--draft-length", flags.server.draft_length,
                 "with --server: the draft length it was started with, when it does not tell")
      ->type_name("N");
  app.add_option("--api-key-env", flags.server.api_key_env, "the environment variable with the server's key")
      ->type_name("NAME");
  app.add_option("--ca-file", flags.server.ca_file, "certificates to trust for https")->type_name("FILE");
  app.add_option(
         "--temperature", flags.evaluate.temperature,
         "also the sum of min(p, q) by depth: what a server accepts that samples at it; --serve native "
         "samples at it too")
      ->type_name("T");
  app.add_option("--draft-cost", flags.costs.draft_step,
                 "cost of one drafted token, in plain passes of the target")
      ->type_name("X");
  app.add_option("--verify-cost", flags.costs.verify_token, "cost of one more token in the target's pass")
      ->type_name("X");
}

void add_serve_flags(CLI::App& app, EvaluateFlags& flags) {
  app.add_option("--serve", flags.serve.with,
                 "measure the draft at work: accepted tokens, tokens/s, same text? In llama.cpp (llama, the "
                 "default), or in our own engine (native), many prompts at once")
      ->expected(0, 1)
      ->default_str("llama")
      ->type_name("[ENGINE]");
  app.add_option("--parallel", flags.serve.parallel, "with --serve native: prompts answered together")
      ->type_name("N");
  app.add_option("--tokenizer", flags.serve.tokenizer,
                 "with --serve native: another file or folder, as in generate")
      ->type_name("TARGET");
  app.add_option("--compute-type", flags.serve.compute_type, "with --serve native: auto, f32 or bf16")
      ->type_name("TYPE");
  app.add_option("--memory", flags.serve.memory, "with --serve native: weights and caches, for example 4G")
      ->type_name("SIZE");
  app.add_option("--conversations", flags.serve.options.conversations_path, "rows whose prompts are served")
      ->type_name("FILE");
  app.add_option("--ids", flags.serve.options.ids, "serve these rows (default: held-out ones)")
      ->delimiter(',')
      ->type_name("IDS");
  app.add_option("--max-prompts", flags.max_prompts, "serve at most so many; 0 = all held-out ones")
      ->type_name("N");
  app.add_option("--draft-lengths", flags.serve.options.draft_lengths,
                 "how many tokens to draft, one measurement each")
      ->delimiter(',')
      ->type_name("N,N");
  app.add_option("--max-tokens", flags.serve.options.max_tokens,
                 "per answer; 0 = as many as the recorded answer")
      ->type_name("N");
  app.add_option("--serve-type", flags.serve.serve_type, "the target as it is, or a 16-bit copy")
      ->check(CLI::IsMember({"f16", "as-is"}).description(""))
      ->type_name("TYPE");
  app.add_option("--draft-type", flags.serve.draft_type, "weights of the served draft: f32, f16, q8_0")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}).description(""))
      ->type_name("TYPE");
  app.add_option("--work-dir", flags.serve.work_dir,
                 "where the 16-bit copy is kept (default: eaglet's cache)")
      ->type_name("DIR");
}

}  // namespace

Run add_evaluate(CLI::App& app) {
  auto flags = std::make_shared<EvaluateFlags>();
  app.description(
      "measures a draft: acceptance on held-out answers, and at work, in llama.cpp or our own engine");
  app.footer(
      "  eaglet evaluate --draft run/draft/checkpoints/best --model target.gguf --store run/states\n"
      "  eaglet evaluate --draft DIR --model target.gguf --store run/states \\\n"
      "                  --serve --conversations run/conversations.jsonl          the real thing, and both "
      "compared\n"
      "  eaglet evaluate --draft DIR --model target.gguf --conversations FILE --max-prompts 0 \\\n"
      "                  --serve native --draft-lengths 1,2,4,8,16        thousands of prompts, many at "
      "once\n"
      "  eaglet evaluate --draft draft.gguf --model target.gguf --serve --conversations FILE --draft-lengths "
      "1,2,3\n"
      "  eaglet evaluate --draft DIR --model target.gguf --store run/states --conversations FILE \\\n"
      "                  --server http://localhost:8000       a running server with the draft loaded, beside "
      "our walk\n"
      "  eaglet evaluate --draft DIR --model target.gguf --store run/states --temperature 0.7 --draft-cost "
      "0.03");
  app.add_option("--draft", flags->serve.draft, "a checkpoint folder (or, only to serve, a GGUF)")
      ->type_name("PATH");
  app.add_option("--model", flags->serve.model,
                 "the target: a GGUF file, or a transformers folder (not for llama.cpp)")
      ->type_name("TARGET");
  app.add_option("--store,--states", flags->evaluate.store_path, "the state store")->type_name("DIR");
  app.add_option("--hold-out-every", flags->evaluate.hold_out_every,
                 "evaluate documents 0, n, 2n, ...; 0 = all")
      ->type_name("N");
  app.add_option("--ttt-steps", flags->evaluate.ttt_steps, "depths to evaluate")->type_name("K");
  app.add_option("--max-seq-len", flags->evaluate.max_seq_len, "rows of one batch")->type_name("N");
  app.add_option("--threads", flags->evaluate.threads, "0 = all cores")->type_name("N");
  app.add_option("--device", flags->device, kDeviceHelp)->type_name("DEVICE");
  add_serve_flags(app, *flags);
  add_server_flags(app, *flags);
  return [flags, &app](Context& context) -> Status {
    flags->do_serve = app.count("--serve") > 0;
    EAGLET_RETURN_IF_ERROR(check_engine_flags(app, *flags));
    return run_evaluate(*flags, context);
  };
}

}  // namespace eaglet::apps
