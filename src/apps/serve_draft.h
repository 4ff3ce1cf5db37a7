#pragma once

#include <string>

#include "base/progress.h"
#include "evaluate/evaluate.h"
#include "formats/json.h"

namespace eaglet::apps {

/// A draft checkpoint (or, in llama.cpp, a GGUF made from one) to be measured.
struct ServeRequest {
  std::string with = "llama";       // llama: llama.cpp, one prompt at a time; native: our own, many at once
  std::string draft;                // checkpoint folder, or a GGUF
  std::string draft_type = "q8_0";  // of the GGUF made from a checkpoint: f32, f16, q8_0
  std::string model;                // the target's GGUF
  std::string serve_type = "f16";   // f16: a 16-bit copy of the target; as-is: the file itself
  std::string work_dir;             // where the copy is kept (and the draft's GGUF while it is measured)
  std::string tokenizer, compute_type = "auto", memory;  // native: as generate has them
  int parallel = 16;                                     // native
  double temperature = 0;                                // native
  ServeOptions options;                                  // target_path and draft_gguf are filled here
};

/// Makes what has to be made, serves, and cleans the draft's GGUF up again. kUsage: an engine that does not
/// exist, a GGUF for our own.
Result<ServeReport> serve_draft(const ServeRequest& request, Progress& progress);

/// The table a user reads: one line a draft length, the plain speed, whether the texts are identical.
/// `walked` may be nullptr.
std::string serve_text(const ServeReport& report, const EvaluateReport* walked);
/// Difference of the served acceptance length from the walked one at the same draft length, as a share; NaN
/// when not walked.
double served_against_walked(const ServedLength& served, const EvaluateReport* walked);

}  // namespace eaglet::apps
