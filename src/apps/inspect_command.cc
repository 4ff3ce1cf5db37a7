#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <optional>

#include "apps/command.h"
#include "apps/facts_text.h"
#include "apps/show_row.h"
#include "apps/show_tokens.h"
#include "base/files.h"
#include "inspect/inspect.h"
#include "train/checkpoint_folder.h"

namespace eaglet::apps {
namespace {

constexpr std::size_t kMostRows = 20;

struct InspectFlags {
  InspectOptions options;
  bool all = false;
  std::string show, model;
  std::optional<std::string> tokens;
};

/// A checkpoint of ours carries a list of its files with their checksums.
void check_seal(const InspectOptions& options, Inspection* inspection) {
  if (!options.verify || !path_exists(options.path + "/" + kCompleteFile)) return;
  const FolderCheck folder = check_folder(options.path);
  inspection->facts["checkpoint_whole"] = folder.whole;
  if (!folder.whole) inspection->problems.push_back(folder.reason);
  if (!inspection->problems.empty()) inspection->facts["verified"] = false;
}

void print_json(const Inspection& inspection) {
  Json document = {{"schema", 1}};
  document.update(inspection.facts);
  document["problems"] = inspection.problems;
  document["doubts"] = inspection.doubts;
  std::printf("%s\n", json_line(document).c_str());
}

void print_list(const char* title, const std::vector<std::string>& lines, std::size_t most) {
  if (lines.empty()) return;
  std::printf("\n%s (%zu)\n", title, lines.size());
  for (std::size_t i = 0; i < lines.size() && i < most; ++i) std::printf("  %s\n", lines[i].c_str());
  if (lines.size() > most) std::printf("  ... and %zu more (--all)\n", lines.size() - most);
}

void print_text(const Inspection& inspection, std::size_t most) {
  std::fputs(facts_text(inspection.facts, most).c_str(), stdout);
  print_list("doubts", inspection.doubts, most);
  print_list("problems", inspection.problems, most);
}

/// Broken lines of a JSONL file are left out by every reader, so they alone fail an inspection only with
/// --verify.
Status verdict(const InspectOptions& options, const Inspection& inspection) {
  const bool lines = inspection.facts.contains("broken_lines");
  if (inspection.problems.empty() || (lines && !options.verify)) return {};
  return Status(StatusCode::kDataLoss,
                fmt::format("{} problem{}; the first: {}", inspection.problems.size(),
                            inspection.problems.size() == 1 ? "" : "s", inspection.problems.front()),
                options.path, "");
}

Status print_tokens(const InspectFlags& flags, const Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const Json tokens, tokens_json(flags.options.path, *flags.tokens));
  Json document = {{"schema", 1}};
  document.update(tokens);
  std::printf("%s", context.json ? (json_line(document) + "\n").c_str() : tokens_text(tokens).c_str());
  return {};
}

Status run_inspect(const InspectFlags& flags, const Context& context) {
  if (flags.tokens) return print_tokens(flags, context);
  if (!flags.show.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const std::string text,
                            show_row(flags.options.path, flags.show, flags.model, context.color));
    std::fputs(text.c_str(), stdout);
    return {};
  }
  EAGLET_ASSIGN_OR_RETURN(Inspection inspection, inspect(flags.options, *context.progress));
  check_seal(flags.options, &inspection);
  if (context.json)
    print_json(inspection);
  else
    print_text(inspection, flags.all ? std::numeric_limits<std::size_t>::max() : kMostRows);
  std::fflush(stdout);
  return verdict(flags.options, inspection);
}

}  // namespace

Run add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  app.description("Say what a file or directory is, and check it.");
  app.footer(
      "  eaglet inspect run/states --verify                     every checksum and number of a state store\n"
      "  eaglet inspect run/conversations.jsonl --vocab-size 49152 --verify\n"
      "  eaglet inspect run/conversations.jsonl --show p0007 --model target.gguf     what is learnt of one "
      "answer\n"
      "  eaglet inspect run/draft/checkpoints/latest            shapes, draft vocabulary, captured layers\n"
      "  eaglet inspect model.gguf --json                       facts for a script\n"
      "  eaglet inspect /models/target --tokens 'Hi there'      a text's ids, by a folder's or GGUF's "
      "tokenizer");
  app.add_option("path", flags->options.path,
                 "a state store or one shard, a draft directory, safetensors, GGUF, torch and NumPy files, "
                 "vocabulary maps, conversations or prompts "
                 "(JSON lines)")
      ->required();
  app.add_flag("--verify", flags->options.verify, "read every byte: checksums, finite numbers, ids in range");
  app.add_option("--vocab-size", flags->options.vocab_size, "with --verify: token ids must be below this")
      ->check(CLI::PositiveNumber);
  app.add_flag("--all", flags->all, fmt::format("show all rows of long lists, not only {}", kMostRows));
  app.add_option("--show", flags->show, "print the sequence with this id, supervised tokens marked")
      ->type_name("ID");
  app.add_option("--model", flags->model,
                 "with --show: the target (GGUF or folder), for the text of the tokens")
      ->type_name("TARGET");
  app.add_option("--tokens", flags->tokens, "of a target: this text as its tokenizer cuts it")
      ->type_name("TEXT");
  return [flags](Context& context) { return run_inspect(*flags, context); };
}

}  // namespace eaglet::apps
