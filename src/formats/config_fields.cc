#include "formats/config_fields.h"

#include <fmt/format.h>

#include <limits>

namespace eaglet {

const Json* ConfigFields::find(const char* name) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigFields::fail(const char* name, const char* expected) {
  if (status_.ok()) status_ = Status(StatusCode::kConfig, fmt::format("\"{}\" is not {}", name, expected));
}

void ConfigFields::read(const char* name, std::int64_t* value) {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (field->is_number_unsigned() && field->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    return fail(name, "a number of usable size");
  }
  if (!field->is_number_integer()) return fail(name, "a whole number");
  *value = field->get<std::int64_t>();
}

void ConfigFields::read(const char* name, double* value) {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_number()) return fail(name, "a number");
  *value = field->get<double>();
}

void ConfigFields::read(const char* name, bool* value) {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_boolean()) return fail(name, "true or false");
  *value = field->get<bool>();
}

void ConfigFields::read(const char* name, std::string* value) {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_string()) return fail(name, "a text");
  *value = field->get<std::string>();
}

void ConfigFields::read_token(const char* name, std::int32_t* value) {
  const Json* field = find(name);
  if (field == nullptr) return;
  const Json& id = field->is_array() && !field->empty() ? field->front() : *field;
  if (!id.is_number_integer() || id.get<std::int64_t>() < -1 || id.get<std::int64_t>() > INT32_MAX) {
    return fail(name, "a token id");
  }
  *value = id.get<std::int32_t>();
}

void ConfigFields::require(const char* name, std::int64_t* value) {
  if (find(name) == nullptr) return fail(name, "there; a draft config needs it");
  read(name, value);
}

}  // namespace eaglet
