#include "extract/take_in.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "extract/foreign_slots.h"
#include "formats/target_model.h"
#include "store/forecast.h"

namespace eaglet {
namespace {

constexpr double kSecondsBetweenTakenSyncs = 20;

Status check_options(const TakeInOptions& o) {
  if (o.check_only) return {};
  const auto need = [](const std::string& value, const char* flag, const char* why) {
    return value.empty()
               ? Status(StatusCode::kUsage, std::string(flag) + " is missing", "eaglet extract --from", why)
               : Status();
  };
  EAGLET_RETURN_IF_ERROR(need(o.model_path, "--model", "the states belong to a target: name it"));
  return need(o.store_path, "--output-dir", "where the store goes; or --check to look only");
}

/// Everything that stays the same over the files of one intake.
class TakeIn {
 public:
  TakeIn(const TakeInOptions& options, StatesLayout layout, Progress& progress)
      : options_(options), layout_(layout), progress_(progress) {}

  Result<TakeInReport> run() {
    EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                            list_foreign_states(layout_, options_.states_path));
    report_.files = static_cast<std::int64_t>(files.size());
    EAGLET_RETURN_IF_ERROR(read_conversations_if_given());
    if (!options_.check_only) EAGLET_RETURN_IF_ERROR(open_store(files));
    progress_.begin(options_.check_only ? "check states" : "take in states", files.size(), "files");
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (interrupted()) return stopped();
      EAGLET_RETURN_IF_ERROR(take_file(files[i]));
      progress_.update(
          i + 1, fmt::format("bad {}, doubtful {}, good {}", report_.bad, report_.doubtful, report_.good));
    }
    EAGLET_RETURN_IF_ERROR(finish());
    progress_.end(report_.summary());
    return std::move(report_);
  }

 private:
  Status read_conversations_if_given() {
    if (options_.conversations_path.empty()) {
      if (layout_ == StatesLayout::kVllm)
        return Status(StatusCode::kUsage, "--conversations is missing", "eaglet extract --from vllm",
                      "these files hold no loss mask: it comes from the conversations");
      return {};
    }
    EAGLET_ASSIGN_OR_RETURN(conversations_, read_conversations(options_.conversations_path));
    index_ = std::make_unique<ConversationIndex>(conversations_);
    return {};
  }

  Status open_store(const std::vector<std::string>& files) {
    EAGLET_ASSIGN_OR_RETURN(facts_, read_target_facts(options_.model_path));
    EAGLET_ASSIGN_OR_RETURN(const ForeignStates first, first_readable(files));
    EAGLET_ASSIGN_OR_RETURN(slots_, choose_slots(options_, layout_, first, facts_));
    used_slots_ = slots_.aux_slots;
    used_slots_.push_back(slots_.last_slot);
    report_.layers = describe_slots(slots_, facts_.num_layers);
    progress_.note(report_.layers);
    for (const std::string& note : slots_.notes) progress_.note(note);
    if (first.width != facts_.hidden)
      return Status(StatusCode::kConfig,
                    fmt::format("the states are {} wide, the target is {}", first.width, facts_.hidden),
                    first.path, "give the model that made them");
    if (slots_.divide_by_norm) {
      EAGLET_ASSIGN_OR_RETURN(const TargetWeights weights, read_target_weights(options_.model_path));
      final_norm_ = weights.final_norm;
      if (std::find(final_norm_.begin(), final_norm_.end(), 0.0f) != final_norm_.end())
        return Status(StatusCode::kNumeric,
                      "the target's final norm holds a zero: a normed state cannot be undone",
                      options_.model_path, "extract the states again before the final norm");
    }
    if (options_.in_place && (slots_.divide_by_norm || !first.in_place_possible))
      return Status(StatusCode::kUsage,
                    slots_.divide_by_norm ? "a last state after the final norm cannot be used in place"
                                          : "packed or fp8 files cannot be used in place",
                    first.path, "leave --in-place out: the states are then converted into the store");
    header_.target_identity = facts_.identity;
    header_.target_name = facts_.name;
    header_.hidden = facts_.hidden;
    header_.target_layers = facts_.num_layers;
    header_.aux_layers = slots_.aux_places;
    if (options_.store.encoding == StateEncoding::kFp8) header_.dtype = Dtype::kF8E4M3;
    if (!options_.in_place) EAGLET_RETURN_IF_ERROR(tell_forecast(files));
    EAGLET_ASSIGN_OR_RETURN(writer_, StoreWriter::open(options_.store_path, header_, options_.store));
    for (const std::string& note : writer_->recovery_notes()) progress_.note(note);
    done_.insert(writer_->finished_ids().begin(), writer_->finished_ids().end());
    return {};
  }

  Result<ForeignStates> first_readable(const std::vector<std::string>& files) const {
    Status first;
    for (const std::string& file : files) {
      auto states = open_when_ready(layout_, file, 0);
      if (states.ok()) return states;
      if (first.ok()) first = states.status();
    }
    return first;
  }

  Status tell_forecast(const std::vector<std::string>& files) {
    std::vector<DocumentSize> sizes;
    for (const std::string& file : files) {
      EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(file));
      report_.source_bytes += bytes;
      const auto states = open_foreign_states(layout_, file);
      if (!states.ok()) continue;
      sizes.push_back({cut(states->rows), 16});
    }
    const Forecast forecast = forecast_store(header_, sizes, options_.store);
    EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, free_disk_bytes(options_.store_path));
    EAGLET_RETURN_IF_ERROR(check_forecast(forecast, free_bytes, options_.store_path, options_.force));
    progress_.note(
        fmt::format("states of {} documents, {} tokens: {}; the files they come from stay and hold {} "
                    "more (--in-place needs no copy)",
                    forecast.documents, forecast.tokens, forecast_text(forecast, free_bytes),
                    human_bytes(static_cast<double>(report_.source_bytes))));
    return {};
  }

  std::int64_t limit() const { return options_.max_seq_len; }
  std::int64_t cut(std::int64_t tokens) const { return limit() > 0 ? std::min(limit(), tokens) : tokens; }

  Status take_file(const std::string& file) {
    auto opened = open_when_ready(layout_, file, options_.wait_seconds);
    if (!opened.ok()) {
      const StatusCode code = opened.status().code();
      if (code == StatusCode::kPermission || code == StatusCode::kNoSpace) return opened.status();
      leave_out(file, {code == StatusCode::kBusy ? StatesProblem::kLocked : StatesProblem::kUnreadable,
                       opened.status().what()});
      return {};
    }
    const ForeignStates& states = *opened;
    const Conversation* conversation = index_ ? index_->find(states) : nullptr;
    if (index_ && conversation == nullptr) {
      leave_out(file, {StatesProblem::kNoConversation, "no conversation has this name or these token ids"});
      return {};
    }
    const std::string id = conversation != nullptr ? conversation->id : own_id(states);
    if (writer_ && done_.contains(id)) {
      ++report_.already_done;
      return {};
    }
    StatesVerdict verdict = check_shape(states);
    if (verdict.good()) verdict = check_foreign(states, conversation, limit(), used_slots_);
    if (!verdict.good() && !(verdict.doubtful() && options_.accept_doubtful)) {
      leave_out(file, verdict);
      return {};
    }
    ++(verdict.good() ? report_.good : report_.doubtful);
    if (verdict.doubtful()) progress_.note(file + ": used all the same: " + verdict.reason);
    if (!writer_) {
      ++report_.used;
      return {};
    }
    return append(states, id, conversation != nullptr ? conversation->loss_mask : states.loss_mask);
  }

  std::string own_id(const ForeignStates& states) const {
    if (!states.conversation_id.empty()) return states.conversation_id;
    return fmt::format("{}-{}", options_.from, states.conversation_row);
  }

  /// All files of one folder hold the same slots.
  StatesVerdict check_shape(const ForeignStates& states) {
    if (slot_count_ == 0) {
      slot_count_ = states.slots.size();
      width_ = states.width;
    }
    if (states.slots.size() == slot_count_ && states.width == width_) return {};
    return {StatesProblem::kOtherShape,
            fmt::format("{} slots of width {}, the files before it have {} of width {}", states.slots.size(),
                        states.width, slot_count_, width_)};
  }

  Status append(const ForeignStates& states, const std::string& id, const std::vector<std::uint8_t>& mask) {
    DocumentStates document;
    const std::int64_t tokens = cut(states.rows);
    document.id = id;
    document.input_ids.assign(states.input_ids.begin(), states.input_ids.begin() + tokens);
    document.loss_mask.assign(mask.begin(), mask.begin() + tokens);
    if (tokens < 2 ||
        std::find(document.loss_mask.begin() + 1, document.loss_mask.end(), 1) == document.loss_mask.end()) {
      ++report_.unsupervised;
      return {};
    }
    for (const std::int32_t token : document.input_ids)
      if (token >= facts_.vocab) {
        leave_out(states.path,
                  {StatesProblem::kOtherTokens,
                   fmt::format("token id {} is outside the target's vocabulary of {}", token, facts_.vocab)});
        --report_.good;
        return {};
      }
    document.states = gather_states(states, slots_, final_norm_, tokens);
    if (options_.in_place) document.reference = refer_to(states, slots_);
    EAGLET_RETURN_IF_ERROR(writer_->append(document).at(states.path));
    done_.insert(id);
    ++report_.used;
    if (monotonic_seconds() - synced_ < kSecondsBetweenTakenSyncs) return {};
    synced_ = monotonic_seconds();
    return writer_->flush();
  }

  void leave_out(const std::string& file, const StatesVerdict& verdict) {
    ++(verdict.doubtful() ? report_.doubtful : report_.bad);
    ++report_.by_problem[static_cast<std::size_t>(verdict.problem)];
    report_.left_out.push_back({file, problem_name(verdict.problem), verdict.reason});
    progress_.note(file + ": left out: " + verdict.reason);
  }

  Status stopped() {
    if (writer_) EAGLET_RETURN_IF_ERROR(writer_->flush());
    return Status(StatusCode::kInterrupted,
                  fmt::format("stopped by a signal; {} documents were taken in", report_.used),
                  options_.store_path, "run the same command again to go on");
  }

  Status finish() {
    if (!writer_) return {};
    EAGLET_RETURN_IF_ERROR(writer_->finish());
    std::string lines;
    for (const auto& one : report_.left_out)
      lines += json_line({{"file", one.file}, {"problem", one.problem}, {"reason", one.reason}}) + "\n";
    EAGLET_RETURN_IF_ERROR(write_file_atomic(options_.store_path + "/left_out.jsonl", lines));
    if (report_.used + report_.already_done == 0)
      return Status(StatusCode::kDataLoss, "none of the files could be used: " + report_.summary(),
                    options_.states_path,
                    report_.left_out.empty() ? "no document has a supervised token"
                                             : "the first reason: " + report_.left_out.front().reason);
    EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open(options_.store_path));
    report_.documents = static_cast<std::int64_t>(store->documents().size());
    report_.state_bytes = store->bytes();
    for (const StoredDocument& document : store->documents()) {
      report_.tokens += document.tokens;
      report_.supervised_tokens += document.supervised_tokens;
    }
    return {};
  }

  const TakeInOptions& options_;
  StatesLayout layout_;
  Progress& progress_;
  TakeInReport report_;
  ConversationFile conversations_;
  std::unique_ptr<ConversationIndex> index_;
  TargetFacts facts_;
  std::vector<float> final_norm_;
  SlotChoice slots_;
  std::vector<std::size_t> used_slots_;  // a slot of zeros that nobody reads is no doubt
  StoreHeader header_;
  std::unique_ptr<StoreWriter> writer_;
  std::unordered_set<std::string> done_;
  std::size_t slot_count_ = 0;
  std::int64_t width_ = 0;
  double synced_ = monotonic_seconds();
};

}  // namespace

std::string TakeInReport::summary() const {
  std::string reasons;
  for (int i = 1; i < kStatesProblems; ++i) {
    if (by_problem[i] == 0 || static_cast<StatesProblem>(i) == StatesProblem::kEmptySlot) continue;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ",
                           problem_name(static_cast<StatesProblem>(i)), by_problem[i]);
  }
  return fmt::format("bad {}{}, doubtful {}, good {}", bad, reasons.empty() ? "" : " (" + reasons + ")",
                     doubtful, good);
}

Result<TakeInReport> take_in_states(const TakeInOptions& options, Progress& progress) {
  EAGLET_RETURN_IF_ERROR(check_options(options));
  EAGLET_ASSIGN_OR_RETURN(const StatesLayout layout, states_layout_from_name(options.from));
  return TakeIn(options, layout, progress).run();
}

}  // namespace eaglet
