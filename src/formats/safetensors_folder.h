#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/safetensors.h"

namespace eaglet {

/// The tensors of a transformers folder: one model.safetensors, or several files that
/// model.safetensors.index.json names. Files are opened when a tensor of theirs is asked for. The index is
/// not trusted: its file names must be plain names, and a tensor must be in the file that it tells.
class SafetensorsFolder {
 public:
  /// kNotFound when there are no weights; kDataLoss, kConfig for an index that cannot be.
  static Result<SafetensorsFolder> open(const std::string& directory);

  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };
  /// Sorted.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return file_of_.contains(name); }
  /// kNotFound naming tensor and folder.
  Result<Tensor> find(const std::string& name);
  const std::string& directory() const { return directory_; }

 private:
  Result<const SafetensorsFile*> file(const std::string& name);
  std::string directory_;
  std::map<std::string, std::string> file_of_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

}  // namespace eaglet
