#pragma once

#include <string>

namespace eaglet {

/// Takes llama.cpp's log away from stderr, for the whole process; error lines are kept for llama_error().
/// Cheap to call again. Thread-safe.
void quiet_llama_log();

/// What llama.cpp complained about since the last call, one line (its first complaint is the cause, the rest
/// follows from it); empty when nothing. Thread-safe.
std::string take_llama_error();

}  // namespace eaglet
