#include "extract/online_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "device/compute_type.h"
#include "extract/native_states.h"
#include "tensor/dtype.h"
#include "verifier/state_taker.h"
#include "verifier/target.h"

namespace eaglet {
namespace {

StoredDocument facts_of(const Conversation& document) {
  const auto& mask = document.loss_mask;
  return {document.id, static_cast<std::int64_t>(mask.size()), std::count(mask.begin(), mask.end(), 1),
          std::find(mask.begin(), mask.end(), 1) - mask.begin()};
}

class ConversationStore : public StoreReader {
 public:
  explicit ConversationStore(ExtractPlan plan) : plan_(std::move(plan)) {
    for (const Conversation& document : plan_.documents) facts_.push_back(facts_of(document));
  }
  const StoreHeader& header() const override { return plan_.header; }
  const std::vector<StoredDocument>& documents() const override { return facts_; }
  std::uint64_t bytes() const override { return 0; }
  Result<DocumentStates> read_tokens(std::size_t i) const override {
    const Conversation& document = plan_.documents[i];
    return DocumentStates{document.id, document.input_ids, document.loss_mask, {}};
  }
  Result<DocumentStates> read(std::size_t) const override { return no_states(); }
  Status read_states_f32(std::size_t, const StateRange&, float*, float*) const override {
    return no_states();
  }
  Status verify() const override { return {}; }
  Status verify_document(std::size_t) const override { return {}; }

 protected:
  const Conversation& conversation(std::size_t i) const { return plan_.documents[i]; }

 private:
  static Status no_states() {
    return Status(StatusCode::kInvalidArgument, "these are conversations: there are no states to read", {},
                  "run eaglet extract, or train with --online");
  }
  ExtractPlan plan_;
  std::vector<StoredDocument> facts_;
};

/// Makes the states of one document, bf16 [tokens, slots, hidden].
using MakeStates = std::function<Result<std::vector<std::uint16_t>>(const std::vector<std::int32_t>&)>;

class OnlineStates : public ConversationStore {
 public:
  OnlineStates(ExtractPlan plan, MakeStates make)
      : ConversationStore(std::move(plan)), make_(std::move(make)) {}

  Result<DocumentStates> read(std::size_t i) const override {
    EAGLET_ASSIGN_OR_RETURN(DocumentStates document, read_tokens(i));
    const std::lock_guard lock(mutex_);
    EAGLET_RETURN_IF_ERROR(take(i));
    document.states = taken_;
    return document;
  }

  Status read_states_f32(std::size_t i, const StateRange& range, float* aux, float* last) const override {
    const std::int64_t tokens = documents()[i].tokens;
    if (range.aux_first < 0 || range.last_first < 0 || range.count < 0 ||
        std::max(range.aux_first, range.last_first) + range.count > tokens)
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("states outside of a document of {} tokens were asked for", tokens));
    const std::lock_guard lock(mutex_);
    EAGLET_RETURN_IF_ERROR(take(i));
    const auto hidden = static_cast<std::size_t>(header().hidden),
               slots = static_cast<std::size_t>(header().slots());
    const std::size_t aux_width = hidden * (slots - 1);
    for (std::int64_t row = 0; row < range.count; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const std::uint16_t* aux_from =
          taken_.data() + (static_cast<std::size_t>(range.aux_first) + at) * hidden * slots;
      const std::uint16_t* last_from =
          taken_.data() + (static_cast<std::size_t>(range.last_first) + at) * hidden * slots + aux_width;
      for (std::size_t j = 0; aux != nullptr && j < aux_width; ++j)
        aux[at * aux_width + j] = bf16_to_f32(aux_from[j]);
      for (std::size_t j = 0; last != nullptr && j < hidden; ++j)
        last[at * hidden + j] = bf16_to_f32(last_from[j]);
    }
    return {};
  }

 private:
  /// Makes taken_ the states of document i, all of them: a part alone would be rounded otherwise. A document
  /// that is read chunk by chunk runs once.
  Status take(std::size_t i) const {
    if (taken_document_ == i) return {};
    taken_document_.reset();
    auto states = make_(conversation(i).input_ids);
    if (!states.ok()) return states.status().at("document " + conversation(i).id);
    taken_ = std::move(*states);
    taken_document_ = i;
    return {};
  }

  MakeStates make_;
  mutable std::mutex mutex_;  // the target, and what it made last
  mutable std::vector<std::uint16_t> taken_;
  mutable std::optional<std::size_t> taken_document_;
};

/// What extract() would run, with the weights kept: each document is a pass of its own. The same bits.
Result<MakeStates> make_natively(const ExtractOptions& options, const StoreHeader& header) {
  ForwardOptions arithmetic;
  EAGLET_ASSIGN_OR_RETURN(arithmetic.compute_type, steady_compute_type(options.compute_type));
  arithmetic.keep_weights = true;
  EAGLET_ASSIGN_OR_RETURN(auto opened, TargetForward::open(options.model_path, arithmetic));
  return MakeStates([header, target = std::shared_ptr<TargetForward>(std::move(opened))](
                        const std::vector<std::int32_t>& ids) {
    return native_document_states(ids, header, target.get());
  });
}

Result<MakeStates> make_with_llama(const ExtractOptions& options, const ExtractPlan& plan) {
  EAGLET_ASSIGN_OR_RETURN(const TargetWeightsAs weights, weights_as_from_name(options.weights));
  EAGLET_ASSIGN_OR_RETURN(auto loaded, Target::load(options.model_path, {weights, options.threads}));
  StateTakerOptions how{plan.header.aux_layers, 1};
  for (const Conversation& document : plan.documents)
    how.longest_document =
        std::max(how.longest_document, static_cast<std::int64_t>(document.input_ids.size()));
  EAGLET_ASSIGN_OR_RETURN(auto made, StateTaker::create(*loaded, how));
  return MakeStates([target = std::shared_ptr<Target>(std::move(loaded)),
                     taker = std::shared_ptr<StateTaker>(std::move(made))](
                        const std::vector<std::int32_t>& ids) { return taker->take(ids); });
}

}  // namespace

Result<std::unique_ptr<StoreReader>> open_tokens_only(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(ExtractPlan plan, plan_extraction(options));
  return std::unique_ptr<StoreReader>(std::make_unique<ConversationStore>(std::move(plan)));
}

Result<std::unique_ptr<StoreReader>> open_online_states(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(ExtractPlan plan, plan_extraction(options));
  EAGLET_ASSIGN_OR_RETURN(const std::string engine, choose_engine(options));
  EAGLET_ASSIGN_OR_RETURN(MakeStates make, engine == "native" ? make_natively(options, plan.header)
                                                              : make_with_llama(options, plan));
  return std::unique_ptr<StoreReader>(std::make_unique<OnlineStates>(std::move(plan), std::move(make)));
}

}  // namespace eaglet
