#include "train/trainer_state.h"

#include "base/hash.h"

namespace eaglet {
namespace {

constexpr int kSchema = 1;

Json validation_to_json(const Validation& validation) {
  Json json;
  json["step"] = validation.step;
  json["acceptance_length"] = validation.acceptance_length;
  json["total_loss"] = validation.total_loss;
  json["loss"] = validation.loss;
  json["full_acc"] = validation.full_acc;
  json["cond_acc"] = validation.cond_acc;
  return json;
}

Validation validation_from_json(const Json& json) {
  Validation validation;
  json.at("step").get_to(validation.step);
  json.at("acceptance_length").get_to(validation.acceptance_length);
  json.at("total_loss").get_to(validation.total_loss);
  json.at("loss").get_to(validation.loss);
  json.at("full_acc").get_to(validation.full_acc);
  json.at("cond_acc").get_to(validation.cond_acc);
  return validation;
}

}  // namespace

void TrainerState::advance(std::int64_t batches, std::int64_t tokens_of_step) {
  ++step;
  if (tokens >= 0) tokens += tokens_of_step;
  next_batch += batches;
  if (next_batch < batches_per_epoch) return;
  next_batch = 0;
  ++epoch;
}

Json trainer_state_to_json(const TrainerState& state) {
  Json json;
  json["schema"] = kSchema;
  json["step"] = state.step;
  json["epoch"] = state.epoch;
  json["next_batch"] = state.next_batch;
  json["batches_per_epoch"] = state.batches_per_epoch;
  json["threads"] = state.threads;
  json["device"] = state.device;
  json["first_loss"] = state.first_loss;
  json["last_loss"] = state.last_loss;
  json["covered_share"] = state.covered_share;
  json["best_step"] = state.best_step;
  json["best_acceptance_length"] = state.best_acceptance_length;
  json["stale_validations"] = state.stale_validations;
  json["skipped_updates"] = state.skipped_updates;
  json["tokens"] = state.tokens;
  json["last_validation"] = validation_to_json(state.last_validation);
  json["settings"] = state.settings;
  json["settings_hash"] = hex64(xxh64(json_line(state.settings)));
  return json;
}

Result<TrainerState> trainer_state_from_json(const Json& json) {
  TrainerState state;
  try {
    if (json.at("schema").get<int>() != kSchema)
      return Status(StatusCode::kDataLoss, "trainer state of another schema", {},
                    "use the eaglet that wrote it");
    json.at("step").get_to(state.step);
    json.at("epoch").get_to(state.epoch);
    json.at("next_batch").get_to(state.next_batch);
    json.at("batches_per_epoch").get_to(state.batches_per_epoch);
    json.at("threads").get_to(state.threads);
    state.device = json.value("device", std::string("cpu"));  // not in older states
    json.at("first_loss").get_to(state.first_loss);
    json.at("last_loss").get_to(state.last_loss);
    json.at("covered_share").get_to(state.covered_share);
    json.at("best_step").get_to(state.best_step);
    json.at("best_acceptance_length").get_to(state.best_acceptance_length);
    state.stale_validations = json.value("stale_validations", std::int64_t{0});  // not in older states
    state.skipped_updates = json.value("skipped_updates", std::int64_t{0});
    state.tokens = json.value("tokens", std::int64_t{-1});
    state.last_validation = validation_from_json(json.at("last_validation"));
    state.settings = json.at("settings");
    if (json.at("settings_hash").get<std::string>() != hex64(xxh64(json_line(state.settings))))
      return Status(StatusCode::kDataLoss, "the settings in the trainer state do not match their hash");
  } catch (const Json::exception& error) {
    return Status(StatusCode::kDataLoss, std::string("not a trainer state: ") + error.what());
  }
  if (state.step < 0 || state.epoch < 0 || state.next_batch < 0)
    return Status(StatusCode::kDataLoss, "a count in the trainer state is negative");
  return state;
}

}  // namespace eaglet
