#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

struct InspectOptions {
  std::string path;             // a file, a store directory or a draft directory
  bool verify = false;          // read every byte: checksums, finite numbers, ids in range
  std::int64_t vocab_size = 0;  // with verify: ids must be below it; 0 = not known
};

/// What a file is. `facts` is an object: "kind" and "path" first, then what that kind has to tell; lists of
/// objects are tables. `problems` make the file unusable as a whole or in part; `doubts` are odd, but may be
/// meant.
struct Inspection {
  Json facts = Json::object();
  std::vector<std::string> problems, doubts;
};

/// Errors instead of an Inspection: kNotFound, kPermission; kDataLoss when the file is not of a kind we know,
/// or so damaged that there is nothing to tell; kInterrupted.
Result<Inspection> inspect(const InspectOptions& options, Progress& progress);

}  // namespace eaglet
