#pragma once

#include <memory>

#include "base/status.h"
#include "extract/extract.h"
#include "store/store.h"

namespace eaglet {

/// The store that extract() would write, without its states: documents and tokens come from the
/// conversations, and whoever asks for states gets kInvalidArgument. For planning.
Result<std::unique_ptr<StoreReader>> open_tokens_only(const ExtractOptions& options);

/// The same with states: each document is run through the target when its states are read, alone and from an
/// empty cache, so they are a pure function of the document. Nothing is written. Readers on several threads
/// take turns at the target.
Result<std::unique_ptr<StoreReader>> open_online_states(const ExtractOptions& options);

}  // namespace eaglet
