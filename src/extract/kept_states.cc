#include "extract/kept_states.h"

#include <fmt/format.h>

#include <utility>

#include "extract/extract_work.h"
#include "extract/states_maker.h"
#include "formats/length_limit.h"

namespace eaglet {

Result<std::vector<std::int32_t>> KeptStates::layers_of(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(options.model_path));
  ExtractOptions native = options;
  native.engine = "native";
  return choose_layers(native, facts);
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
