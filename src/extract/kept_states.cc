#include "extract/kept_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "extract/extract_work.h"
#include "extract/states_maker.h"
#include "formats/length_limit.h"
#include "store/forecast.h"

namespace eaglet {

Result<std::vector<std::int32_t>> KeptStates::layers_of(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  ExtractOptions native = options;
  native.engine = "native";
  return choose_layers(native, facts);
}

namespace {

std::vector<DocumentSize> sizes_of(const std::vector<std::int64_t>& prompt_tokens, std::int64_t answer,
                                   std::int64_t limit) {
  std::vector<DocumentSize> sizes;
  for (const std::int64_t tokens : prompt_tokens) {
    DocumentSize size;
    size.tokens = limit > 0 ? std::min(limit, tokens + answer) : tokens + answer;
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

Result<std::string> KeptStates::foresee(const ExtractOptions& options,
                                        const std::vector<std::int64_t>& prompt_tokens,
                                        std::int64_t max_tokens) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> layers, layers_of(options));
  EAGLET_ASSIGN_OR_RETURN(
      const StoreWriterOptions store,
      store_options(options.store_dtype, options.drop_unsupervised, options.shard_bytes, options.writer));
  const StoreHeader header = header_for(facts, std::move(layers), store);
  const std::int64_t limit = length_limit(options, facts);
  const auto bytes = [&](std::int64_t answer) {
    return forecast_store(header, sizes_of(prompt_tokens, answer, limit), store).needed_bytes;
  };
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, free_disk_bytes(options.store_path));
  const std::uint64_t least = bytes(1), most = bytes(max_tokens);
  const auto amount = [](std::uint64_t n) { return human_bytes(static_cast<double>(n)); };
  if (least > free_bytes)
    return Status(StatusCode::kNoSpace,
                  fmt::format("the states of the prompts alone need {}, {} are free", amount(least),
                              amount(free_bytes)),
                  options.store_path,
                  "keep the states elsewhere, ask fewer prompts, give --store-dtype fp8 or a --max-seq-len");
  return fmt::format("states of {} answers: {} to {}, {} free{}", prompt_tokens.size(), amount(least),
                     amount(most), amount(free_bytes),
                     most > free_bytes
                         ? "; long answers would not fit: a full disk ends the run cleanly, what is "
                           "there stays and the same command goes on"
                         : "");
}

Result<std::unique_ptr<KeptStates>> KeptStates::open(const ExtractOptions& options, ComputeType type) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  std::unique_ptr<KeptStates> kept(new KeptStates);
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> layers, layers_of(options));
  EAGLET_ASSIGN_OR_RETURN(
      const StoreWriterOptions store,
      store_options(options.store_dtype, options.drop_unsupervised, options.shard_bytes, options.writer));
  const StoreHeader header = header_for(facts, std::move(layers), store);
  EAGLET_ASSIGN_OR_RETURN(kept->writer_, StoreWriter::open(options.store_path, header, store));
  EAGLET_RETURN_IF_ERROR(agree_on_maker(options.store_path, native_maker(type)));
  kept->limit_ = length_limit(options, facts);
  kept->row_elements_ = header.slots() * header.hidden;
  kept->store_path_ = options.store_path;
  return kept;
}

Status KeptStates::take(const Conversation& conversation, std::vector<std::uint16_t> states) {
  Conversation document = conversation;
  const LimitResult cut = cut_to_limit(limit_, &document);
  if (cut != LimitResult::kWhole && cut != LimitResult::kCut) return {};
  if (writer_->tokens_of(document.id) > 0)
    return Status(StatusCode::kConfig, "the store has states of document " + document.id + " already",
                  store_path_, "give the answers that they belong to, or keep the states in a new directory");
  states.resize(document.input_ids.size() * static_cast<std::size_t>(row_elements_));
  ++documents_;
  return writer_->append({document.id, std::move(document.input_ids), std::move(document.loss_mask),
                          std::move(states), std::nullopt});
}

}  // namespace eaglet
