#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

struct FreeGguf {
  void operator()(gguf_context* context) const { gguf_free(context); }
};
using GgufPtr = std::unique_ptr<gguf_context, FreeGguf>;

/// What an export has to know about its target, read from the target's GGUF header.
struct GgufTarget {
  GgufPtr header;  // metadata only; holds the tokenizer that the draft copies
  std::string architecture, name;
  std::int64_t num_layers = 0, hidden = 0, vocab = 0;
};
/// kNotFound, kDataLoss (not a GGUF file, or one without the usual keys).
Result<GgufTarget> read_gguf_target(const std::string& path);

/// One tensor to be written. `shape` is [rows, columns] or [n] as everywhere here (ggml counts the other way
/// round).
struct GgufOutput {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // fp32 for the float types and Q8_0 (converted while writing), int64 for I64
};

/// Writes header and tensors by temporary name, sync and rename; one tensor at a time is converted, so memory
/// stays small. `metadata` gets the tensors' descriptions added.
Status write_gguf(gguf_context* metadata, const std::vector<GgufOutput>& tensors, const std::string& path);

}  // namespace eaglet
