#include "tokenizer/special_frame.h"

#include "formats/json_field.h"
#include "tokenizer/normalizer.h"

namespace eaglet {
namespace {

Status bad_template(const std::string& what) {
  return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: the post-processor's template " + what);
}

Status add_template(const Json& json, SpecialFrame* frame) {
  const Json* single = json_field(json, "single");
  const Json* tokens = json_field(json, "special_tokens");
  if (single == nullptr || !single->is_array()) return bad_template("has no list \"single\"");
  bool behind = false;
  SpecialFrame outer;
  for (const Json& part : *single) {
    if (json_field(part, "Sequence") != nullptr) {
      if (behind) return bad_template("has the text twice");
      behind = true;
      continue;
    }
    const Json* special = json_field(part, "SpecialToken");
    const Json* name = special != nullptr ? json_field(*special, "id") : nullptr;
    const Json* token = name != nullptr && name->is_string() && tokens != nullptr
                            ? json_field(*tokens, name->get<std::string>().c_str())
                            : nullptr;
    const Json* ids = token != nullptr ? json_field(*token, "ids") : nullptr;
    if (ids == nullptr || !ids->is_array()) return bad_template("names a token without ids");
    for (const Json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX)
        return bad_template("has an odd id");
      (behind ? outer.behind : outer.before).push_back(id.get<std::int32_t>());
    }
  }
  if (!behind) return bad_template("has no place for the text");
  // Later processors of a sequence stand outside the earlier ones.
  frame->before.insert(frame->before.begin(), outer.before.begin(), outer.before.end());
  frame->behind.insert(frame->behind.end(), outer.behind.begin(), outer.behind.end());
  return {};
}

Status add_processor(const Json& json, SpecialFrame* frame) {
  const std::string type = type_of(json);
  if (type == "ByteLevel") return {};  // offsets only
  if (type == "TemplateProcessing") return add_template(json, frame);
  if (type == "Sequence") {
    const Json* list = json_field(json, "processors");
    if (list == nullptr || !list->is_array())
      return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: a Sequence has no processors");
    for (const Json& one : *list) EAGLET_RETURN_IF_ERROR(add_processor(one, frame));
    return {};
  }
  return Status(StatusCode::kConfig, "the tokenizer's post-processor " + type + " is not supported", {},
                "known: TemplateProcessing, ByteLevel, Sequence; or use the model's GGUF");
}

}  // namespace

Result<SpecialFrame> SpecialFrame::from_json(const Json& json) {
  SpecialFrame frame;
  if (!json.is_null()) EAGLET_RETURN_IF_ERROR(add_processor(json, &frame));
  return frame;
}

}  // namespace eaglet
