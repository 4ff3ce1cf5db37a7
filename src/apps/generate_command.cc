#include <fmt/format.h>

#include <cstdio>

#include "apps/command.h"
#include "apps/keep_states.h"
#include "apps/stage_json.h"
#include "generate/generate.h"

namespace eaglet::apps {
namespace {

void print_served(const GenerateReport& report, const ServedOptions& options) {
  const ServedCounts& counts = report.served;
  fmt::print(
      "  asked {}: {} whole, {} cut while thinking, {} cut in the answer{}, {} empty, {} refused by the "
      "server",
      counts.asked, counts.whole, counts.cut_while_thinking, counts.cut_in_answer,
      options.cut == "keep" ? "" : " (left out)", counts.empty, counts.refused);
  if (!counts.failed.empty()) fmt::print(", {}", reasons_text(counts.failed));
  if (counts.not_reached > 0) fmt::print(", {} not reached", counts.not_reached);
  fmt::print("\n  {} requests, {} of them again, {} told to wait\n", counts.requests, counts.retried,
             counts.busy);
  if (counts.without_thinking > 0 && (options.expect_thinking || counts.without_thinking < report.answered))
    fmt::print("  {} of {} answers have no thinking\n", counts.without_thinking, report.answered);
  if (counts.tokenised_here > 0)
    fmt::print("  {} answers tokenised here: the server gave no token ids\n", counts.tokenised_here);
}

void print_drafts(const DraftCounts& drafts) {
  fmt::print("  draft: {:.3f} tokens per pass after the prompt's; accepted by position, share of passes:",
             drafts.acceptance_length());
  for (const std::int64_t at : drafts.accepted_at)
    fmt::print(" {:.3f}", static_cast<double>(at) / static_cast<double>(drafts.passes));
  fmt::print("\n");
}

void print(const GenerateReport& report, const GenerateOptions& options) {
  fmt::print("{} answers in {} ({} now, {} before)\n", report.stopped + report.cut_by_length,
             options.output_path, report.answered, report.already_done);
  fmt::print("  {} prompt tokens, {} answer tokens; {} ended by themselves, {} cut by length, {} empty\n",
             report.prompt_tokens, report.response_tokens, report.stopped, report.cut_by_length,
             report.empty_answers);
  if (!options.servers.empty()) print_served(report, options.served);
  if (report.broken_lines + report.too_long > 0)
    fmt::print("  left out: {} of {} lines ({}), {} prompts that do not fit\n", report.broken_lines,
               report.lines, reasons_text(report.left_out), report.too_long);
  if (report.reused_prompt_tokens > 0)
    fmt::print("  {} prompt tokens were not computed again: other prompts began the same way\n",
               report.reused_prompt_tokens);
  if (report.drafts.passes > 0) print_drafts(report.drafts);
  if (report.answered > 0)
    fmt::print("  {:.0f} tokens/s over {:.1f} s\n", report.tokens_per_second, report.seconds);
}

void add_server_options(CLI::App& app, GenerateOptions& options) {
  ServedOptions& served = options.served;
  app.add_option("--server", options.servers,
                 "ask these servers instead of the embedded model: vLLM, SGLang, llama-server, or any with "
                 "OpenAI's chat route")
      ->delimiter(',')
      ->type_name("URL,URL");
  app.add_option("--served-model", served.model, "the model to ask for (default: the one that is served)")
      ->type_name("NAME");
  app.add_option("--server-kind", served.kind, "auto, vllm, sglang, llama or openai")->type_name("KIND");
  app.add_option("--api-key-env", served.api_key_env, "the environment variable that holds the API key")
      ->type_name("NAME");
  app.add_option("--ca-file", served.ca_file, "certificates to trust for https")->type_name("FILE");
  app.add_option("--concurrency", served.concurrency, "requests under way, over all servers")->type_name("N");
  app.add_option("--timeout", served.timeout_seconds, "longest wait for one reply")->type_name("SECONDS");
  app.add_option("--tries", served.tries, "how often one request may be sent")->type_name("N");
  app.add_option("--retry-wait", served.retry_wait_seconds, "before the first retry; doubled with each")
      ->type_name("SECONDS");
  app.add_option("--wait-ready", served.wait_ready_seconds, "for a server that is not up yet")
      ->type_name("SECONDS");
  app.add_option("--stall-after", served.stall_seconds, "without a reply the servers' health is shown")
      ->type_name("SECONDS");
  app.add_flag("--expect-thinking", served.expect_thinking,
               "end the run when the first answers have no thinking");
  app.add_option("--regenerate", served.regenerate,
                 "write the assistant's turns anew: none, last (the answer at the end), all (turn by turn)")
      ->type_name("WHICH");
  app.add_option("--cut", served.cut, "answers cut by length: keep (their end is not learnt) or leave-out")
      ->type_name("HOW");
  app.add_option("--request-json", served.request_json,
                 "further fields of each request, such as {\"top_k\": 20}")
      ->type_name("JSON");
  app.add_option("--chat-template", served.template_path,
                 "with --server and --model: this template where the server gives no token ids")
      ->type_name("FILE");
  app.add_option("--template-arguments", served.template_arguments, "further variables of that template")
      ->type_name("JSON");
}

const std::vector<const char*> kEmbeddedOnly = {
    "--top-k",       "--min-p",  "--repetition-penalty", "--engine",  "--tokenizer", "--keep-states",
    "--parallel",    "--memory", "--compute-type",       "--weights", "--threads",   "--draft",
    "--draft-length"};

void add_embedded_options(CLI::App& app, GenerateOptions& o) {
  app.add_option("--top-k", o.top_k, "draw from so many of the likeliest tokens (0: all)");
  app.add_option("--min-p", o.min_p,
                 "draw from tokens of at least this share of the likeliest one's probability");
  app.add_option("--repetition-penalty", o.repetition_penalty,
                 "divides the logits of tokens that prompt or answer have already (1: no penalty)");
  app.add_option(
         "--engine", o.engine,
         "what runs the target: native (all weights in memory, many sequences at once), llama (libllama), or "
         "auto: native where it knows the model and the memory holds it")
      ->capture_default_str();
  app.add_option(
         "--tokenizer", o.tokenizer_path,
         "native: another file or folder of the same model, whose tokenizer and chat template are used")
      ->type_name("TARGET");
  app.add_option("--parallel", o.parallel, "prompts answered together (64 native, 16 with libllama)");
  app.add_option("--memory", o.memory, "native: weights and caches, for example 4G (half of what is free)");
  app.add_option("--compute-type", o.compute_type,
                 "native: products in f32 or bf16 (sums are fp32); auto: bf16 where the processor has it")
      ->capture_default_str();
  app.add_option(
         "--draft", o.draft_path,
         "native: a trained draft of this target proposes tokens, the target checks them together: the "
         "same answers, fewer passes")
      ->type_name("DIR");
  app.add_option("--draft-length", o.draft_length, "tokens proposed at a time")->capture_default_str();
  app.add_option("--threads", o.threads, "0: all cores")->capture_default_str();
  app.add_option("--weights", o.weights,
                 "libllama: arithmetic for a quantised target: auto, stored, f16, f32")
      ->capture_default_str();
}

const std::vector<const char*> kOfKeptStates = {"--target-layer-ids", "--store-dtype", "--drop-unsupervised",
                                                "--max-seq-len"};

void add_keep_options(CLI::App& app, ExtractOptions& states) {
  app.add_option(
         "--keep-states", states.store_path,
         "native: also write the states of prompt and answer into this store, as extract would make it")
      ->type_name("DIR");
  app.add_option("--target-layer-ids", states.target_layer_ids, "layers to keep (default 2, n/2, n-3)")
      ->delimiter(',');
  app.add_option("--store-dtype", states.store_dtype, "of the kept states: bf16, bf16-lossless, fp8");
  app.add_flag("--drop-unsupervised", states.drop_unsupervised, "no states that no drafting step can reach");
  app.add_option("--max-seq-len", states.max_seq_len, "cut kept states to so many tokens (0: no cut)");
}

/// What cannot be told by one option alone.
Status check_together(const CLI::App& app, const GenerateOptions& options) {
  const auto usage = [](const char* what, const char* todo) {
    return Status(StatusCode::kUsage, what, "eaglet generate", todo);
  };
  if (options.servers.empty() && options.model_path.empty())
    return usage("neither --model nor --server is given",
                 "give the target (GGUF or folder), or the address of a server");
  for (const char* flag : kOfKeptStates)
    if (app.count("--keep-states") == 0 && app.count(flag) > 0)
      return Status(StatusCode::kUsage, std::string(flag) + " has no effect without --keep-states",
                    "eaglet generate", "leave it out");
  for (const char* flag : kEmbeddedOnly)
    if (!options.servers.empty() && app.count(flag) > 0)
      return Status(StatusCode::kUsage, std::string(flag) + " has no effect with --server", "eaglet generate",
                    "leave it out; further sampling settings of a server go into --request-json");
  if (app.count("--draft-length") > 0 && app.count("--draft") == 0)
    return usage("--draft-length has no effect without --draft", "leave it out, or give a draft");
  if (options.servers.empty() && options.served.regenerate != "none")
    return usage("--regenerate needs --server", "the embedded model answers what a prompt ends with");
  return {};
}

}  // namespace

Run add_generate(CLI::App& app) {
  app.description("Answers prompts with the target model, many at a time. Run again to go on after a stop.");
  app.footer(
      "  eaglet generate --model target.gguf --prompts data/prompts.jsonl --output "
      "runs/a/conversations.jsonl\n"
      "  eaglet generate --model target.gguf --prompts p.jsonl --output c.jsonl --temperature 0.7 --top-p "
      "0.95 --seed 1\n"
      "  eaglet generate --server http://gpu1:8000,http://gpu2:8000 --prompts p.jsonl --output c.jsonl "
      "--max-tokens 4096 \\\n"
      "                  --expect-thinking                     a served model, its thinking kept\n"
      "  eaglet generate --server http://gpu1:8000 --prompts talks.json.gz --output c.jsonl --regenerate "
      "all");
  auto options = std::make_shared<GenerateOptions>();
  app.add_option(
      "--model", options->model_path,
      "the target, a GGUF file or a transformers folder; with --server only where a tokenizer is needed");
  app.add_option("--prompts", options->prompts_path,
                 "prompts or conversations: JSON lines or one JSON list, plain, gz or zst")
      ->required();
  app.add_option("--output", options->output_path, "conversations.jsonl; finished answers in it are kept")
      ->required();
  app.add_option("--max-prompts", options->max_prompts, "only the first N prompts (0: all)");
  app.add_option("--max-tokens", options->max_tokens, "longest answer, in tokens")->capture_default_str();
  app.add_option("--temperature", options->temperature, "0: greedy")->capture_default_str();
  app.add_option("--top-p", options->top_p, "share of probability to draw from")->capture_default_str();
  app.add_option("--seed", options->seed, "for temperature > 0")->capture_default_str();
  add_embedded_options(app, *options);
  auto states = std::make_shared<ExtractOptions>();
  add_keep_options(app, *states);
  add_server_options(app, *options);
  return [options, states, &app](Context& context) -> Status {
    EAGLET_RETURN_IF_ERROR(check_together(app, *options));
    StatesKeeper keeper;
    states->model_path = options->model_path;
    if (!states->store_path.empty()) EAGLET_RETURN_IF_ERROR(keeper.attach(*states, true, options.get()));
    EAGLET_ASSIGN_OR_RETURN(const GenerateReport report, generate(*options, *context.progress));
    EAGLET_ASSIGN_OR_RETURN(const std::int64_t kept, keeper.finish());
    if (!context.json) {
      print(report, *options);
      if (!states->store_path.empty())
        fmt::print("  states of {} answers kept in {}\n", kept, states->store_path);
      return Status();
    }
    Json json = {{"schema", 1}, {"output", options->output_path}};
    json.update(generate_json(report));
    if (!states->store_path.empty()) json["states_kept"] = kept;
    fmt::print("{}\n", json.dump(2));
    return Status();
  };
}

}  // namespace eaglet::apps
