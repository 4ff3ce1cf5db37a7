#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// Reads typed fields of one JSON object. An absent or null field leaves the value alone; a field of another
/// type is remembered as the first error (kConfig, with the field's name), so that a list of reads needs one
/// check at its end.
class ConfigFields {
 public:
  explicit ConfigFields(const Json& object) : object_(object) {}
  /// nullptr when the field is absent or null.
  const Json* find(const char* name) const;
  void read(const char* name, std::int64_t* value);
  void read(const char* name, double* value);
  void read(const char* name, bool* value);
  void read(const char* name, std::string* value);
  /// A token id, or the first of a list of them.
  void read_token(const char* name, std::int32_t* value);
  /// As read(), but absence is an error.
  void require(const char* name, std::int64_t* value);
  const Status& status() const { return status_; }

 private:
  void fail(const char* name, const char* expected);
  const Json& object_;
  Status status_;
};

}  // namespace eaglet
