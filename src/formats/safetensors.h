#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace eaglet {

/// One tensor of a safetensors file. `offset` counts from the start of the data section.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;  // all dimensions >= 0; empty for a scalar
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::int64_t elements() const;
};

/// A mapped safetensors file (docs/formats/safetensors.md). open() trusts nothing: the header is capped and
/// parsed first, sizes are multiplied checked, and the tensors must tile the data section without a hole.
/// Entries are sorted by name. Reading does not change the object, so threads may share it.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  /// The same checks on bytes in memory, without data access; for fuzzing.
  static Result<std::vector<SafetensorsEntry>> parse_header(const std::byte* data, std::uint64_t bytes,
                                                            std::map<std::string, std::string>* metadata,
                                                            std::uint64_t* data_start);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// nullptr when there is no tensor of that name.
  const SafetensorsEntry* find(const std::string& name) const;
  const std::byte* data(const SafetensorsEntry& entry) const {
    return file_.data() + data_start_ + entry.offset;
  }
  /// The tensor's bytes are read soon, or not again soon: for reading ahead, and for memory.
  void expect(const SafetensorsEntry& entry) const { file_.expect(data_start_ + entry.offset, entry.bytes); }
  void release(const SafetensorsEntry& entry) const {
    file_.release(data_start_ + entry.offset, entry.bytes);
  }
  /// The file's first byte, where it is mapped: data(entry) - bytes_begin() is a tensor's place in the file.
  const std::byte* bytes_begin() const { return file_.data(); }

  /// The tensor as fp32 (from F32, BF16, F16, F64). kNotFound / kInvalidArgument name tensor and file.
  Result<std::vector<float>> read_f32(const std::string& name) const;
  /// The tensor as int64 (from I64, I32, I16, I8, U8, BOOL, U16, U32).
  Result<std::vector<std::int64_t>> read_i64(const std::string& name) const;

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  std::uint64_t data_start_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written: a view, the caller keeps the bytes alive.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // nullptr: asked for when its turn has come
};

/// Bytes of tensor i of those to be written; they must stay until the next call.
using TensorBytes = std::function<Result<const void*>(std::size_t i)>;

/// Writes temporary name, sync, rename. Tensors are laid out in the given order, 8-byte aligned header.
/// `bytes_of` gives those that have no data yet, one after the other, so not all need be in memory at once.
Status write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         const TensorBytes& bytes_of = {});

}  // namespace eaglet
