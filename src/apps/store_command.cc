#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <unordered_set>

#include "apps/command.h"
#include "base/files.h"
#include "base/hash.h"
#include "extract/extract.h"
#include "formats/json.h"
#include "store/store_tools.h"

namespace eaglet::apps {
namespace {

struct StoreFlags {
  std::vector<std::string> inputs;
  std::string output, ids, store_dtype = "bf16";
  bool drop_unsupervised = false;
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  std::int64_t parts = 0, first = 0, longest = 0;
  enum class Action { kMerge, kSplit, kSubset, kRepair } action = Action::kMerge;
};

Result<std::unordered_set<std::string>> read_ids(const std::string& path) {
  std::unordered_set<std::string> ids;
  if (path.empty()) return ids;
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) ids.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return ids;
}

void print(const CopyReport& report, const std::string& output, bool as_json) {
  if (as_json)
    fmt::print("{}\n", json_line({{"schema", 1},
                                  {"output", output},
                                  {"documents", report.documents},
                                  {"already_there", report.already_there},
                                  {"left_out", report.left_out}}));
  else
    fmt::print("{}: {} documents copied, {} were there before, {} left out\n", output, report.documents,
               report.already_there, report.left_out);
}

Status run_copy(const StoreFlags& flags, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const StoreWriterOptions options,
                          store_options(flags.store_dtype, flags.drop_unsupervised, flags.shard_bytes, ""));
  if (flags.action == StoreFlags::Action::kSplit) {
    if (flags.parts < 2)
      return Status(StatusCode::kUsage, "--parts is missing", "eaglet store split", "2 or more");
    for (std::int64_t part = 0; part < flags.parts; ++part) {
      const std::string output = fmt::format("{}/part-{}", flags.output, part);
      const auto wanted = [&](const StoredDocument& document) {
        return static_cast<std::int64_t>(xxh64(document.id) % static_cast<std::uint64_t>(flags.parts)) ==
               part;
      };
      EAGLET_ASSIGN_OR_RETURN(const CopyReport report,
                              copy_store(flags.inputs, output, options, wanted, *context.progress));
      print(report, output, context.json);
    }
    return {};
  }
  EAGLET_ASSIGN_OR_RETURN(const auto ids, read_ids(flags.ids));
  std::int64_t taken = 0;
  const auto wanted = [&](const StoredDocument& document) {
    if (flags.action == StoreFlags::Action::kMerge) return true;
    if (!flags.ids.empty() && !ids.contains(document.id)) return false;
    if (flags.longest > 0 && document.tokens > flags.longest) return false;
    return flags.first == 0 || taken++ < flags.first;
  };
  EAGLET_ASSIGN_OR_RETURN(const CopyReport report,
                          copy_store(flags.inputs, flags.output, options, wanted, *context.progress));
  print(report, flags.output, context.json);
  return {};
}

Status run_repair(const StoreFlags& flags, Context& context) {
  for (const std::string& input : flags.inputs) {
    EAGLET_ASSIGN_OR_RETURN(const RepairReport report, repair_store(input, *context.progress));
    if (context.json) {
      fmt::print("{}\n", json_line({{"schema", 1},
                                    {"store", input},
                                    {"repaired_shards", report.shards},
                                    {"kept_documents", report.kept},
                                    {"lost", report.lost}}));
      continue;
    }
    fmt::print("{}: {} shards repaired, {} documents kept in them, {} lost\n", input, report.shards,
               report.kept, report.lost.size());
    for (const std::string& id : report.lost) fmt::print("  lost: {}\n", id);
    if (report.shards > 0)
      fmt::print("run the extract command that made this store again: only what is missing is made\n");
  }
  return {};
}

void add_copy_flags(CLI::App* command, StoreFlags* flags) {
  command->add_option("STORES", flags->inputs, "stores to read")->required();
  command->add_option("--output-dir,-o", flags->output, "the store to write; documents in it stay")
      ->required();
  command->add_option("--store-dtype", flags->store_dtype, "bf16, bf16-lossless or fp8")
      ->capture_default_str();
  command->add_flag("--drop-unsupervised", flags->drop_unsupervised,
                    "leave out states that no drafting step can reach");
  command->add_option("--shard-bytes", flags->shard_bytes, "size at which a new file begins")
      ->capture_default_str();
}

}  // namespace

Run add_store(CLI::App& app) {
  app.description("merges, splits, thins out, converts and repairs stores of hidden states");
  app.footer(
      "  eaglet store merge a/states b/states --output-dir all\n"
      "  eaglet store merge states --store-dtype bf16-lossless --output-dir smaller       another form\n"
      "  eaglet store subset states --ids keep.txt --output-dir some\n"
      "  eaglet store split states --parts 4 --output-dir parts\n"
      "  eaglet store repair states                       (check with: eaglet inspect --verify states)");
  auto flags = std::make_shared<StoreFlags>();
  CLI::App* merge = app.add_subcommand("merge", "several stores into one, or one into another form");
  CLI::App* subset = app.add_subcommand("subset", "some of the documents");
  CLI::App* split = app.add_subcommand("split", "into stores of about the same size, by the hash of the id");
  CLI::App* repair = app.add_subcommand("repair", "saves the whole documents of damaged shards");
  for (CLI::App* command : {merge, subset, split}) add_copy_flags(command, flags.get());
  subset->add_option("--ids", flags->ids, "a file with one id a line");
  subset->add_option("--first", flags->first, "so many documents");
  subset->add_option("--longest", flags->longest, "none with more tokens");
  split->add_option("--parts", flags->parts, "how many");
  repair->add_option("STORES", flags->inputs, "stores to repair")->required();
  app.require_subcommand(1);
  return [flags, subset, split, repair](Context& context) -> Status {
    flags->action = repair->parsed()   ? StoreFlags::Action::kRepair
                    : split->parsed()  ? StoreFlags::Action::kSplit
                    : subset->parsed() ? StoreFlags::Action::kSubset
                                       : StoreFlags::Action::kMerge;
    return repair->parsed() ? run_repair(*flags, context) : run_copy(*flags, context);
  };
}

}  // namespace eaglet::apps
