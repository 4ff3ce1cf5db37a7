#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// The tokens that a tokenizer puts around a text when it is asked to: bos, eos.
struct SpecialFrame {
  std::vector<std::int32_t> before, behind;
  /// The "post_processor" of a tokenizer.json for one text; null: nothing is put. kConfig: a kind that is not
  /// supported, by name.
  static Result<SpecialFrame> from_json(const Json& json);
};

}  // namespace eaglet
