#include "extract/online_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

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

class OnlineStates : public ConversationStore {
 public:
  OnlineStates(ExtractPlan plan, std::unique_ptr<Target> target)
      : ConversationStore(std::move(plan)), target_(std::move(target)) {}

  Status start() {
    StateTakerOptions options;
    options.aux_layers = header().aux_layers;
    options.longest_document = 1;
    for (const StoredDocument& document : documents())
      options.longest_document = std::max(options.longest_document, document.tokens);
    EAGLET_ASSIGN_OR_RETURN(taker_, StateTaker::create(*target_, options));
    return {};
  }

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
    auto states = taker_->take(conversation(i).input_ids);
    if (!states.ok()) return states.status().at("document " + conversation(i).id);
    taken_ = std::move(*states);
    taken_document_ = i;
    return {};
  }

  std::unique_ptr<Target> target_;
  mutable std::mutex mutex_;  // the target, and what it made last
  mutable std::vector<std::uint16_t> taken_;
  mutable std::optional<std::size_t> taken_document_;
  std::unique_ptr<StateTaker> taker_;
};

}  // namespace

Result<std::unique_ptr<StoreReader>> open_tokens_only(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(ExtractPlan plan, plan_extraction(options));
  return std::unique_ptr<StoreReader>(std::make_unique<ConversationStore>(std::move(plan)));
}

Result<std::unique_ptr<StoreReader>> open_online_states(const ExtractOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const TargetWeightsAs weights, weights_as_from_name(options.weights));
  EAGLET_ASSIGN_OR_RETURN(ExtractPlan plan, plan_extraction(options));
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<Target> target,
                          Target::load(options.model_path, {weights, options.threads}));
  auto store = std::make_unique<OnlineStates>(std::move(plan), std::move(target));
  EAGLET_RETURN_IF_ERROR(store->start());
  return std::unique_ptr<StoreReader>(std::move(store));
}

}  // namespace eaglet
