#pragma once

#include <cstdint>

#include "formats/conversations.h"

namespace eaglet {

enum class LimitResult {
  kWhole,              // it fits
  kCut,                // its end was cut off, supervised tokens are left
  kNothingLeft,        // every supervised token lay beyond the limit
  kNothingSupervised,  // it had none to begin with
};

/// Cuts a sequence to `limit` tokens (0: no limit), ids and mask alike. The first token is never learnt (a
/// token is learnt from the one before it), so a mask that has only that one set supervises nothing.
LimitResult cut_to_limit(std::int64_t limit, Conversation* conversation);

/// The shortest limit under which the sequence still has a supervised token; 0 when it has none at all.
std::int64_t least_useful_limit(const Conversation& conversation);

}  // namespace eaglet
