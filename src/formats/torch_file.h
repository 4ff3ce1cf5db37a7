#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace eaglet {

/// A tensor inside a torch file: a strided view of a storage, in elements. The last element is known to lie
/// within the storage.
struct TorchTensor {
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape, stride;
  const std::byte* data = nullptr;  // its first element
  std::uint64_t file_offset = 0;    // where that lies in the file
  std::int64_t elements() const;
  bool contiguous() const;
};

/// What a torch file holds: data only. A tuple reads as a list.
struct TorchValue {
  enum class Kind { kNone, kBool, kInteger, kFloat, kString, kList, kDict, kTensor };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  // also a bool
  double number = 0;
  std::string text;
  std::vector<const TorchValue*> items;   // a list's; a dict's keys
  std::vector<const TorchValue*> values;  // a dict's
  TorchTensor tensor;
  /// nullptr unless this is a dict with that text as a key.
  const TorchValue* find(const std::string& key) const;
};
/// "a tensor", "a list", ...: for messages.
const char* kind_name(TorchValue::Kind kind);

/// A file that torch.save wrote (zip form, torch 1.6 and later), read without running anything: the pickle in
/// it may make tensors, lists, tuples, dicts, strings, numbers and None; any other thing is refused by its
/// name (kConfig). Sizes, offsets and strides are held against the file. docs/formats/torch.md.
class TorchFile {
 public:
  /// kNotFound, kDataLoss (cut, damaged), kConfig (things that are not data, the old form, big-endian).
  static Result<TorchFile> open(const std::string& path);
  /// The same for a file packed by gzip: unpacked into memory, at most `most_bytes`.
  static Result<TorchFile> open_gzip(const std::string& path,
                                     std::uint64_t most_bytes = std::uint64_t{1} << 34);
  /// The same for bytes in memory.
  static Result<TorchFile> parse(std::vector<std::byte> bytes, const std::string& path);

  const TorchValue& root() const { return *root_; }
  const std::string& path() const { return path_; }
  /// The whole file is mapped, not unpacked: file_offset of its tensors can be used in `path`.
  bool mapped() const { return owned_ == nullptr; }

  /// The tensor's elements in row-major order: fp32 from F32, BF16, F16, F64; int64 from the integer types.
  static Result<std::vector<float>> read_f32(const TorchTensor& tensor);
  static Result<std::vector<std::int64_t>> read_i64(const TorchTensor& tensor);

 private:
  TorchFile() = default;
  static Result<TorchFile> finish(TorchFile file, const std::byte* data, std::uint64_t bytes);
  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<std::vector<std::byte>> owned_;
  std::unique_ptr<std::deque<TorchValue>> nodes_;  // addresses stay
  const TorchValue* root_ = nullptr;
};

/// What we write: a dict of integers, a list of integers, or a dict of named tensors.
struct TorchOutputTensor {
  std::string name;
  Dtype dtype = Dtype::kI64;  // I64, BOOL, F32
  std::vector<std::int64_t> shape;
  std::string bytes;
};
Status write_torch_counts(const std::string& path, const std::map<std::int64_t, std::int64_t>& counts);
Status write_torch_list(const std::string& path, const std::vector<std::int64_t>& list);
Status write_torch_tensors(const std::string& path, const std::vector<TorchOutputTensor>& tensors);

}  // namespace eaglet
