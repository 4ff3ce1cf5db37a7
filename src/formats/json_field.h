#pragma once

#include <string>

#include "formats/json.h"

namespace eaglet {

/// nullptr when the field is absent or null.
inline const Json* json_field(const Json& row, const char* name) {
  if (!row.is_object()) return nullptr;
  const auto it = row.find(name);
  return it == row.end() || it->is_null() ? nullptr : &*it;
}

/// A value as it may stand in an error line: short, never throwing on odd bytes.
inline std::string json_shown(const Json& value) {
  std::string text = json_line(value);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

/// A failure that names a field of a row.
inline Status bad_row(const std::string& what) {
  return Status(StatusCode::kDataLoss, what);
}

}  // namespace eaglet
