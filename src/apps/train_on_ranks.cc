#include "apps/train_on_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "apps/exit_code.h"
#include "apps/own_ranks.h"
#include "apps/train_setting_table.h"
#include "base/interrupt.h"

namespace eaglet::apps {
namespace {

std::vector<std::string> train_words(const RankSettings& where, TrainOptions options,
                                     const Context& context) {
  std::vector<std::string> words = {context.program, "--json"};
  words.insert(words.end(), context.how_it_talks.begin(), context.how_it_talks.end());
  words.insert(words.end(), {"train", "--store", options.store_path, "--model", options.model_path,
                             "--output-dir", options.output_dir, "--threads", std::to_string(options.threads),
                             "--device", where.device, "--ranks", std::to_string(where.ranks),
                             "--rank-timeout", fmt::format("{}", where.rank_timeout_seconds)});
  if (options.shard_optimizer) words.push_back("--shard-optimizer");
  const std::vector<std::string> settings = flag_words(train_setting_table(options));
  words.insert(words.end(), settings.begin(), settings.end());
  return words;
}

}  // namespace

Result<Json> train_on_ranks(const RankSettings& where, const TrainOptions& options,
                            const std::string& answer_path, const Context& context) {
  const OwnRanksPlan plan = {where.ranks, train_words(where, options, context), answer_path};
  EAGLET_ASSIGN_OR_RETURN(const int code, run_own_ranks(plan, *context.progress));
  Result<Json> answer = code == 0 ? read_json_file(answer_path) : Result<Json>(Json());
  ::unlink(answer_path.c_str());
  if (code != 0 && interrupted()) return Status(StatusCode::kInterrupted, "stopped by a signal");
  if (code != 0)
    return Status(
        kind_of_exit(code), fmt::format("the ranks that trained have ended with exit code {}", code), "train",
        "their own words stand above; what was saved is whole, and the same command goes on from it");
  return answer;
}

}  // namespace eaglet::apps
