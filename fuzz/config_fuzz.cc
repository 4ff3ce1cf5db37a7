#include "draft/draft_config.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto json = eaglet::parse_json(as_text(data, bytes));
  if (!json.ok()) return 0;
  const auto config = eaglet::draft_config_from_json(*json);
  if (!config.ok() || config->aux_layers.empty()) return 0;
  promise(eaglet::check_draft_config(*config).ok());
  const auto again = eaglet::draft_config_from_json(eaglet::draft_config_to_json(*config));
  promise(again.ok() && *again == *config);
  return 0;
}
