#include "verifier/quantize_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gguf.h>
#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "verifier/llama_log.h"

namespace eaglet {
namespace {

struct GgufDeleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
};

struct Source {
  std::uint64_t sixteen_bit_bytes = 0;  // all tensors at two bytes a number
  bool is_sixteen_bit = true;           // every matrix is F16 or BF16
};

Result<Source> read_source(const std::string& path) {
  if (!path_exists(path)) return Status(StatusCode::kNotFound, "no such model file", path);
  const std::unique_ptr<gguf_context, GgufDeleter> gguf(gguf_init_from_file(path.c_str(), {true, nullptr}));
  if (gguf == nullptr) return Status(StatusCode::kDataLoss, "not a GGUF file, or a damaged one", path);
  Source source;
  for (std::int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
    const std::int64_t* shape = gguf_get_tensor_ne(gguf.get(), i);
    const ggml_type type = gguf_get_tensor_type(gguf.get(), i);
    source.sixteen_bit_bytes += 2 * static_cast<std::uint64_t>(shape[0] * shape[1] * shape[2] * shape[3]);
    if (shape[1] > 1 && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16) source.is_sixteen_bit = false;
  }
  return source;
}

// Header and tail: the header holds every tensor's type and place, the tail is weights.
Result<std::string> identity(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  constexpr std::uint64_t kPart = std::uint64_t{8} << 20;
  const std::uint64_t part = std::min(kPart, file.bytes());
  const std::uint64_t head = xxh64(file.data(), part, file.bytes());
  return hex64(xxh64(file.data() + (file.bytes() - part), part, head));
}

Status sync_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_status("open", path, errno);
  const int failed = fsync(fd) != 0 ? errno : 0;
  close(fd);
  return failed != 0 ? errno_status("sync", path, failed) : Status();
}

Status check_space(const std::string& directory, std::uint64_t needed) {
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, free_disk_bytes(directory));
  if (free_bytes > needed + needed / 50) return {};
  return Status(
      StatusCode::kNoSpace,
      fmt::format("a 16-bit copy of the model needs {}, {} are free",
                  human_bytes(static_cast<double>(needed)), human_bytes(static_cast<double>(free_bytes))),
      directory, "free some space, or measure with the model as it is (--serve-type as-is)");
}

}  // namespace

Result<std::string> sixteen_bit_copy(const std::string& model_path, const std::string& directory,
                                     int threads) {
  EAGLET_ASSIGN_OR_RETURN(const Source source, read_source(model_path));
  if (source.is_sixteen_bit) return model_path;
  EAGLET_RETURN_IF_ERROR(make_directories(directory));
  EAGLET_ASSIGN_OR_RETURN(const std::string id, identity(model_path));
  const std::string stem = std::filesystem::path(model_path).stem().string();
  const std::string path = fmt::format("{}/{}-f16-{}.gguf", directory, stem, id);
  if (path_exists(path)) return path;
  EAGLET_RETURN_IF_ERROR(check_space(directory, source.sixteen_bit_bytes));

  quiet_llama_log();
  const std::string temporary =
      fmt::format("{}.{}.tmp", path, getpid());  // two processes may make it at once
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_MOSTLY_F16;
  params.allow_requantize = true;
  params.nthread = threads;
  const bool made = llama_model_quantize(model_path.c_str(), temporary.c_str(), &params) == 0;
  const Status status =
      made ? sync_file(temporary)
           : Status(StatusCode::kUnavailable,
                    "llama.cpp could not make a 16-bit copy of this model: " + take_llama_error(), model_path,
                    "measure with the model as it is (--serve-type as-is)");
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  EAGLET_RETURN_IF_ERROR(rename_synced(temporary, path));
  return path;
}

}  // namespace eaglet
