#pragma once

#include <cstdint>

namespace eaglet {

/// How an answer's tokens are chosen from the logits, in this order: the penalty, the temperature, then what
/// is left out by min_p, top_k and top_p (each of what is left and adds up to 1 again), then a draw. As vLLM
/// and the transformers library define them.
struct SamplingOptions {
  double temperature = 0;  // 0: the likeliest token
  double top_p = 1;        // the likeliest tokens that together have this much; 1: all
  std::int64_t top_k = 0;  // so many of the likeliest; 0: all
  double min_p = 0;        // at least this share of the likeliest token's probability; 0: all
  double repetition_penalty =
      1;  // logits of tokens in prompt and answer: divided when above 0, else multiplied
};

}  // namespace eaglet
