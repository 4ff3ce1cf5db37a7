#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/http_pool.h"

namespace eaglet {

// One request for states to vLLM's connector (docs/formats/foreign-states.md): ids go in, the name of a file
// comes back.

constexpr const char* kStatesRoute = "/v1/completions";
std::string states_request(const std::string& model, const std::vector<std::int32_t>& ids);

enum class StatesReply {
  kFile,         // `file` is its name, unchecked
  kOtherTokens,  // the server read other ids than were sent
  kRefused,      // the request is at fault
  kNoReply,      // no whole or sensible reply; the same request may do better later
  kPermission,   // the API key
  kNoConnector   // the server answers but keeps no states, or keeps them where no file is
};
struct StatesAnswer {
  StatesReply kind = StatesReply::kNoReply;
  std::string file, message;
};
/// Any reply is survived.
StatesAnswer read_states_reply(const HttpReply& reply, const std::vector<std::int32_t>& ids);

}  // namespace eaglet
