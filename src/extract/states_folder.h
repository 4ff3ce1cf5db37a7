#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// The folder in which servers leave files of states for us. What a server names is not trusted: it must
/// resolve, links followed, to a regular .safetensors file inside the folder, or it is neither opened nor
/// deleted.
class StatesFolder {
 public:
  /// kNotFound when there is no such folder.
  static Result<StatesFolder> open(const std::string& directory);
  /// `name` as a server gave it: absolute, or relative to the folder. The real path. kNotFound: not there
  /// (yet), in a folder that is inside; kPermission: anything else.
  Result<std::string> resolve(const std::string& name) const;
  /// Removes what resolve() gave, and the lock file beside it; fine when they are gone.
  Status remove(const std::string& resolved) const;
  const std::string& root() const { return root_; }

 private:
  explicit StatesFolder(std::string root) : root_(std::move(root)) {}
  bool inside(const std::string& real) const;
  std::string root_;  // real path, without '/' at its end
};

}  // namespace eaglet
