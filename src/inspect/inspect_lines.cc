#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "formats/conversations.h"
#include "inspect/inspectors.h"

namespace eaglet {
namespace {

template <class File>
void add_lines(const File& file, std::size_t usable, Inspection* inspection) {
  inspection->facts["lines"] = file.lines;
  inspection->facts["usable"] = usable;
  inspection->facts["blank_lines"] = file.blank_lines;
  inspection->facts["broken_lines"] = file.broken.size();
  for (const BrokenLine& broken : file.broken)
    inspection->problems.push_back(fmt::format("line {}: {}", broken.line, broken.reason));
}

void check_vocabulary(const std::string& id, const std::vector<std::int32_t>& ids,
                      const InspectOptions& options, Inspection* inspection) {
  if (!options.verify || options.vocab_size <= 0 || ids.empty()) return;
  const auto largest = *std::max_element(ids.begin(), ids.end());
  if (largest >= options.vocab_size)
    inspection->problems.push_back(
        fmt::format("'{}': token id {} is outside the vocabulary of {}", id, largest, options.vocab_size));
}

}  // namespace

Json length_facts(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return Json();
  std::sort(lengths.begin(), lengths.end());
  return {
      {"shortest", lengths.front()}, {"median", lengths[lengths.size() / 2]}, {"longest", lengths.back()}};
}

Result<Inspection> inspect_conversations(const InspectOptions& options, Progress&) {
  Inspection inspection = begin_inspection("conversations", options.path);
  EAGLET_ASSIGN_OR_RETURN(const ConversationFile file, read_conversations(options.path));
  add_lines(file, file.conversations.size(), &inspection);
  std::int64_t tokens = 0, supervised = 0, stopped = 0, cut = 0, unsupervised = 0;
  std::int32_t largest_id = 0;
  std::vector<std::int64_t> lengths;
  for (const Conversation& conversation : file.conversations) {
    const auto marked = std::count(conversation.loss_mask.begin(), conversation.loss_mask.end(), 1);
    lengths.push_back(static_cast<std::int64_t>(conversation.input_ids.size()));
    tokens += lengths.back();
    supervised += marked;
    unsupervised += marked == 0;
    stopped += conversation.finish_reason == "stop";
    cut += conversation.finish_reason == "length";
    largest_id =
        std::max(largest_id, *std::max_element(conversation.input_ids.begin(), conversation.input_ids.end()));
    check_vocabulary(conversation.id, conversation.input_ids, options, &inspection);
  }
  Json& facts = inspection.facts;
  facts["tokens"] = tokens;
  facts["supervised_tokens"] = supervised;
  facts["conversation_tokens"] = length_facts(std::move(lengths));
  facts["largest_token_id"] = largest_id;
  facts["finished_with_stop"] = stopped;
  facts["cut_by_length"] = cut;
  facts["nothing_supervised"] = unsupervised;
  if (supervised == 0)
    inspection.doubts.push_back("no token is supervised: there is nothing to learn from this file");
  return inspection;
}

Result<Inspection> inspect_prompts(const InspectOptions& options, Progress&) {
  Inspection inspection = begin_inspection("prompts", options.path);
  EAGLET_ASSIGN_OR_RETURN(const PromptFile file, read_prompts(options.path));
  add_lines(file, file.prompts.size(), &inspection);
  std::int64_t with_ids = 0, with_system = 0;
  for (const Prompt& prompt : file.prompts) {
    with_ids += !prompt.prompt_ids.empty();
    const auto is_system = [](const Json& turn) { return turn["role"] == "system"; };
    with_system += std::any_of(prompt.messages.begin(), prompt.messages.end(), is_system);
    check_vocabulary(prompt.id, prompt.prompt_ids, options, &inspection);
  }
  inspection.facts["with_token_ids"] = with_ids;
  inspection.facts["with_system_turn"] = with_system;
  return inspection;
}

}  // namespace eaglet
