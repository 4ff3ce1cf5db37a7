#include "verifier/widened_copy.h"

#include <fmt/format.h>
#include <ggml.h>
#include <llama.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "formats/gguf_file.h"
#include "verifier/llama_log.h"

namespace eaglet {

WidenedCopy::WidenedCopy(WidenedCopy&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
WidenedCopy::~WidenedCopy() {
  if (fd_ >= 0) ::close(fd_);
}

std::string WidenedCopy::path() const {
  return "/proc/self/fd/" + std::to_string(fd_);
}

Result<std::uint64_t> widened_bytes(const std::string& model_path, int bits) {
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(model_path));
  std::uint64_t bytes = 0;
  bool quantised = false;
  for (const GgufTensor& tensor : file.tensors()) {
    std::uint64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= static_cast<std::uint64_t>(extent);
    bytes += elements * static_cast<std::uint64_t>(bits / 8);
    quantised = quantised || ggml_is_quantized(static_cast<ggml_type>(tensor.ggml_type));
  }
  return quantised ? bytes : 0;
}

std::uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kibibytes = 0;
  while (file >> key >> kibibytes) {
    if (key == "MemAvailable:") return kibibytes * 1024;
    file.ignore(64, '\n');
  }
  return 0;
}

Result<WidenedCopy> WidenedCopy::make(const std::string& model_path, int bits, int threads) {
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t needed, widened_bytes(model_path, bits));
  if (needed + needed / 4 > available_memory_bytes())
    return Status(StatusCode::kNoSpace,
                  fmt::format("a {}-bit copy of the model needs {} of memory, {} are available", bits,
                              human_bytes(static_cast<double>(needed)),
                              human_bytes(static_cast<double>(available_memory_bytes()))),
                  model_path, "run the weights as they are stored (--weights stored)");
  // A limit on file sizes (ulimit -f) holds for files in memory as well.
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < needed)
    return Status(StatusCode::kNoSpace,
                  fmt::format("a {}-bit copy of the model needs {}, the limit on file sizes is {}", bits,
                              human_bytes(static_cast<double>(needed)),
                              human_bytes(static_cast<double>(limit.rlim_cur))),
                  model_path,
                  "raise the limit (ulimit -f), or run the weights as they are stored (--weights stored)");
  const int fd = ::memfd_create("eaglet-widened-target", MFD_CLOEXEC);
  if (fd < 0) return errno_status("create a file in memory", model_path, errno);
  WidenedCopy copy(fd);
  quiet_llama_log();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = bits == 32 ? LLAMA_FTYPE_ALL_F32 : LLAMA_FTYPE_MOSTLY_F16;
  params.allow_requantize = true;
  params.nthread = threads;
  bool made = false;
  std::string reason;
  try {
    made = llama_model_quantize(model_path.c_str(), copy.path().c_str(), &params) == 0;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!made) {
    if (reason.empty()) reason = take_llama_error();
    return Status(StatusCode::kUnavailable, "llama.cpp could not dequantise the model: " + reason, model_path,
                  "run the weights as they are stored (--weights stored)");
  }
  return copy;
}

}  // namespace eaglet
