#include "extract/states_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/server_facts.h"
#include "formats/json.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {

/// The ids that the server says it read: with the choice, or beside it. nullptr: not told.
const Json* ids_read(const Json& reply) {
  if (const Json* ids = json_field(reply, "prompt_token_ids"); ids != nullptr && ids->is_array()) return ids;
  const Json* choices = json_field(reply, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return nullptr;
  const Json* ids = json_field(choices->front(), "prompt_token_ids");
  return ids != nullptr && ids->is_array() ? ids : nullptr;
}

std::string first_difference(const Json& read, const std::vector<std::int32_t>& sent) {
  for (std::size_t i = 0; i < std::min(read.size(), sent.size()); ++i)
    if (!read[i].is_number_integer() || read[i].get<std::int64_t>() != sent[i])
      return fmt::format("the server read other token ids than were sent, first at position {}", i);
  if (read.size() != sent.size())
    return fmt::format("the server read {} token ids, {} were sent", read.size(), sent.size());
  return {};
}

}  // namespace

std::string states_request(const std::string& model, const std::vector<std::int32_t>& ids) {
  // One token must be asked for; it is thrown away.
  return json_line(
      {{"model", model}, {"prompt", ids}, {"max_tokens", 1}, {"temperature", 0}, {"return_token_ids", true}});
}

StatesAnswer read_states_reply(const HttpReply& reply, const std::vector<std::int32_t>& ids) {
  if (reply.status == 0) return {StatesReply::kNoReply, {}, reply.error};
  if (!reply.ok()) {
    int code = 0;
    const std::string message = fmt::format("{}: {}", reply.status, error_message(reply.body, &code));
    if (reply.status == 401 || reply.status == 403) return {StatesReply::kPermission, {}, message};
    const bool at_fault =
        reply.status == 400 || reply.status == 404 || reply.status == 413 || reply.status == 422;
    return {at_fault ? StatesReply::kRefused : StatesReply::kNoReply, {}, message};
  }
  const auto json = parse_json(reply.body);
  if (!json.ok() || !json->is_object()) return {StatesReply::kNoReply, {}, "the reply is no JSON object"};
  if (const Json* read = ids_read(*json); read != nullptr)
    if (std::string difference = first_difference(*read, ids); !difference.empty())
      return {StatesReply::kOtherTokens, {}, std::move(difference)};
  const Json* params = json_field(*json, "kv_transfer_params");
  const Json* file = params == nullptr ? nullptr : json_field(*params, "hidden_states_path");
  if (file != nullptr && file->is_string()) return {StatesReply::kFile, file->get<std::string>(), {}};
  const bool handle = params != nullptr && json_field(*params, "handle") != nullptr;
  return {StatesReply::kNoConnector,
          {},
          handle ? "the server keeps states in another store (its answers name a handle, not a file)"
                 : "the server's answers name no file of states"};
}

}  // namespace eaglet
