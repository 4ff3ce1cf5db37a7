#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/cache_dir.h"
#include "apps/command.h"
#include "apps/evaluate_json.h"
#include "apps/serve_draft.h"
#include "base/files.h"
#include "formats/conversations.h"

namespace eaglet::apps {
namespace {

struct EvaluateFlags {
  EvaluateOptions evaluate;
  ServeRequest serve;
  bool do_serve = false;
  std::int64_t max_prompts = 6;
};

Status usage(std::string what, std::string todo) {
  return Status(StatusCode::kUsage, std::move(what), {}, std::move(todo));
}

Status check(const EvaluateFlags& flags) {
  const bool states = !flags.evaluate.store_path.empty();
  if (!states && !flags.do_serve)
    return usage("nothing to do: neither --store nor --serve", "give --store DIR");
  if (flags.do_serve && flags.serve.options.conversations_path.empty()) {
    return usage("--serve needs the prompts",
                 "--conversations FILE: the rows that the states were taken from");
  }
  if (states && !is_directory(flags.serve.draft)) {
    return usage("--store needs a checkpoint folder as --draft, not a GGUF",
                 "leave --store out to serve a GGUF only");
  }
  return {};
}

std::string held_out_text(const EvaluateReport& report) {
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
  text += fmt::format("           {:.1f} % of the target's best tokens lie outside the draft vocabulary\n",
                      100 * report.teacher_best_outside_share);
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
  if (flags.serve.work_dir.empty()) flags.serve.work_dir = cache_dir();
  Json json = {{"schema", 1}};
  std::optional<EvaluateReport> held_out, walked;
  if (!flags.evaluate.store_path.empty()) {
    EAGLET_ASSIGN_OR_RETURN(held_out, evaluate(flags.evaluate, *context.progress));
    json["held_out"] = evaluate_json(*held_out);
    if (!context.json) fmt::print("{}", held_out_text(*held_out));
    std::fflush(stdout);
  }
  if (flags.do_serve) {
    EAGLET_ASSIGN_OR_RETURN(const ServeReport report, run_serve(flags, held_out, *context.progress));
    if (held_out) {
      EAGLET_ASSIGN_OR_RETURN(walked, walk_served(flags, *context.progress));
    }
    const EvaluateReport* same_prompts = walked ? &*walked : nullptr;
    json["served"] = serve_json(report);
    json["served_against_walked"] = comparison_json(report, same_prompts);
    if (!context.json) fmt::print("{}", serve_text(report, same_prompts));
    if (!report.identical()) {
      if (context.json) fmt::print("{}\n", json_line(json));
      return Status(StatusCode::kInternal,
                    "the answers with the draft are not those of plain greedy decoding", flags.serve.draft,
                    "the differences are listed above; please report them with the target's name");
    }
  }
  if (context.json) fmt::print("{}\n", json_line(json));
  return {};
}

void add_serve_flags(CLI::App& app, EvaluateFlags& flags) {
  app.add_flag("--serve", flags.do_serve,
               "measure the draft in llama.cpp: accepted tokens, tokens/s, same text?");
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
  app.description("measures a draft: acceptance on held-out answers, and in llama.cpp itself");
  app.footer(
      "  eaglet evaluate --draft run/draft/checkpoints/best --model target.gguf --store run/states\n"
      "  eaglet evaluate --draft DIR --model target.gguf --store run/states \\\n"
      "                  --serve --conversations run/conversations.jsonl          the real thing, and both "
      "compared\n"
      "  eaglet evaluate --draft draft.gguf --model target.gguf --serve --conversations FILE --draft-lengths "
      "1,2,3");
  app.add_option("--draft", flags->serve.draft, "a checkpoint folder (or, only to serve, a GGUF)")
      ->required()
      ->type_name("PATH");
  app.add_option("--model", flags->serve.model, "the target's GGUF")->required()->type_name("GGUF");
  app.add_option("--store,--states", flags->evaluate.store_path, "the state store")->type_name("DIR");
  app.add_option("--hold-out-every", flags->evaluate.hold_out_every,
                 "evaluate documents 0, n, 2n, ...; 0 = all")
      ->type_name("N");
  app.add_option("--ttt-steps", flags->evaluate.ttt_steps, "depths to evaluate")->type_name("K");
  app.add_option("--max-seq-len", flags->evaluate.max_seq_len, "rows of one batch")->type_name("N");
  app.add_option("--threads", flags->evaluate.threads, "0 = all cores")->type_name("N");
  add_serve_flags(app, *flags);
  return [flags](Context& context) { return run_evaluate(*flags, context); };
}

}  // namespace eaglet::apps
