#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// A copy of a GGUF model with 16-bit weights, made once and kept in `directory` (made when absent). Returns
/// its path; `model_path` itself when its matrices are 16-bit already. The copy's name carries the source's
/// identity (header, size and last bytes), so another source never finds it; a half-made copy never has that
/// name. Dequantised weights of a 4-bit file are what the copy holds: it computes what the source stands for,
/// without the source's slower arithmetic. Errors: kNotFound, kDataLoss (not a GGUF file), kNoSpace,
/// kUnavailable (llama.cpp refused).
Result<std::string> sixteen_bit_copy(const std::string& model_path, const std::string& directory,
                                     int threads);

}  // namespace eaglet
