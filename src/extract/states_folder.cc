#include "extract/states_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/files.h"

namespace eaglet {
namespace {

struct FreeText {
  void operator()(char* text) const { std::free(text); }
};

/// Empty, with errno, when there is none.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, FreeText> real(::realpath(path.c_str(), nullptr));
  return real ? std::string(real.get()) : std::string();
}

Status refuse_name(const std::string& what, const std::string& name) {
  return Status(StatusCode::kPermission, what, name,
                "--states-dir must be the folder that the server calls shared_storage_path, under the same "
                "path; nothing outside it is opened or deleted");
}

Status remove_one(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return errno_status("remove the file", path, errno);
}

}  // namespace

Result<StatesFolder> StatesFolder::open(const std::string& directory) {
  const std::string real = real_path(directory);
  if (real.empty() || !is_directory(real))
    return Status(StatusCode::kNotFound, "there is no such folder of states", directory,
                  "--states-dir is the server's shared_storage_path, seen from here");
  if (real == "/") return refuse_name("the whole file system is no folder of states", directory);
  return StatesFolder(real);
}

bool StatesFolder::inside(const std::string& real) const {
  return real.size() > root_.size() && real.compare(0, root_.size(), root_) == 0 && real[root_.size()] == '/';
}

Result<std::string> StatesFolder::resolve(const std::string& name) const {
  if (name.empty() || name.find('\0') != std::string::npos)
    return refuse_name("the server named no file", root_);
  const std::string path = name.front() == '/' ? name : root_ + "/" + name;
  const std::string real = real_path(path);
  if (real.empty()) {
    const int why = errno;
    const std::string folder = real_path(path.substr(0, path.rfind('/') + 1));
    if (why == ENOENT && (folder == root_ || inside(folder)))
      return Status(StatusCode::kNotFound, "the file that the server named is not there", path,
                    "is --states-dir the server's own shared_storage_path?");
    return refuse_name("the file that the server named leads nowhere inside the folder of states", path);
  }
  if (!inside(real))
    return refuse_name("the file that the server named is outside the folder of states", path);
  struct stat info = {};
  if (::lstat(real.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return refuse_name("what the server named is no regular file", path);
  if (!real.ends_with(".safetensors"))
    return refuse_name("what the server named is no .safetensors file", path);
  return real;
}

Status StatesFolder::remove(const std::string& resolved) const {
  if (!inside(resolved)) return refuse_name("this file is outside the folder of states", resolved);
  EAGLET_RETURN_IF_ERROR(remove_one(resolved));
  return remove_one(resolved + ".lock");
}

}  // namespace eaglet
