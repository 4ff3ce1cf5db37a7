#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/status.h"

struct gguf_context;

namespace eaglet {

/// One tensor of a GGUF file. `shape` is row-major as everywhere in eaglet: [rows, columns], the reverse of
/// ggml's.
struct GgufTensor {
  std::string name;
  int ggml_type = 0;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  // inside the mapped file
  std::uint64_t bytes = 0;
};

/// "Q4_1", "BF16", "I64": ggml's name of a tensor's type, in capitals.
std::string gguf_type_text(int ggml_type);

/// A mapped GGUF file, read through ggml's own parser (docs/formats/gguf.md). open() looks at magic, version
/// and counts itself, and holds every tensor against the file's length, before anything is handed out.
/// Reading does not change the object, so threads may share it.
class GgufFile {
 public:
  /// kNotFound; kDataLoss: not a GGUF file, cut short, damaged; kConfig: one part of a split model.
  static Result<GgufFile> open(const std::string& path);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const { return file_.path(); }
  std::uint64_t bytes() const { return file_.bytes(); }

  bool has(const std::string& key) const;
  /// Nothing when the key is missing or of another kind. integer() takes every integer type, number() floats
  /// too.
  std::optional<std::string> string(const std::string& key) const;
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> boolean(const std::string& key) const;
  std::optional<std::vector<std::int64_t>> integers(const std::string& key) const;  // an array of integers
  std::optional<std::vector<std::string>> strings(const std::string& key) const;    // an array of strings

  /// Every key with its value as short text (arrays: how many of which type), in file order; for looking at.
  std::vector<std::pair<std::string, std::string>> described_keys() const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// nullptr when there is no tensor of that name.
  const GgufTensor* find(const std::string& name) const;
  /// The tensor as fp32, dequantised by ggml. kNotFound, kConfig (a type ggml cannot dequantise), kNumeric
  /// (not finite).
  Result<std::vector<float>> read_f32(const std::string& name) const;
  /// Part `index` of its outermost dimension alone (an expert of many).
  Result<std::vector<float>> read_f32_part(const std::string& name, std::int64_t index) const;

 private:
  Result<std::vector<float>> read_f32_at(const std::string& name, std::int64_t part,
                                         std::int64_t parts) const;
  GgufFile(MappedFile file, gguf_context* context);
  std::int64_t find_key(const std::string& key) const;
  Status read_table();
  struct Free {
    void operator()(gguf_context* context) const;
  };
  MappedFile file_;
  std::unique_ptr<gguf_context, Free> context_;
  std::vector<GgufTensor> tensors_;
};

/// Sends ggml's and llama.cpp's log lines to nobody while it lives and keeps the first error line. Such
/// objects must not overlap in two threads: the log is one per process.
class QuietGgmlLog {
 public:
  QuietGgmlLog();
  ~QuietGgmlLog();
  QuietGgmlLog(const QuietGgmlLog&) = delete;
  QuietGgmlLog& operator=(const QuietGgmlLog&) = delete;
  /// The first line of level error, without the function's name and newline; empty when there was none.
  const std::string& first_error() const { return first_error_; }

 private:
  friend struct QuietGgmlLogSink;
  void* previous_callback_ = nullptr;
  void* previous_data_ = nullptr;
  std::string first_error_;
};

}  // namespace eaglet
