#pragma once

#include <memory>

#include "base/status.h"
#include "extract/extract.h"
#include "extract/kept_states.h"
#include "generate/generate.h"

namespace eaglet::apps {

/// Lets generate() hand the states it computes to a store; the store is made when the first come. One object
/// for one run of generate(), which it must outlive.
class StatesKeeper {
 public:
  /// Sets generate->keep. `states` says model, store, layers and form. kUsage, kNotFound, kConfig.
  Status attach(const ExtractOptions& states, bool required, GenerateOptions* generate);
  /// Closes the store; 0 documents when nothing came.
  Result<std::int64_t> finish();

 private:
  std::unique_ptr<KeptStates> kept_;
};

}  // namespace eaglet::apps
