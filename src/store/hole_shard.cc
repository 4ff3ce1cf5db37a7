#include "store/hole_shard.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "base/files.h"
#include "base/hash.h"
#include "store/shard_format.h"

namespace eaglet {
namespace {

struct CloseFile {
  int fd;
  ~CloseFile() { ::close(fd); }
};

Status put(int fd, const std::string& path, std::uint64_t offset, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno_status("write the file", path, errno);
    from += done, offset += static_cast<std::uint64_t>(done), bytes -= static_cast<std::size_t>(done);
  }
  return {};
}

struct FreeZeros {
  void operator()(void* zeros) const { std::free(zeros); }
};

DocumentStates numbered_document(std::int64_t tokens) {
  DocumentStates document;
  document.input_ids.resize(static_cast<std::size_t>(tokens));
  std::iota(document.input_ids.begin(), document.input_ids.end(), 0);
  document.loss_mask.assign(static_cast<std::size_t>(tokens), 0);
  for (std::size_t t = document.loss_mask.size() / 2; t < document.loss_mask.size(); ++t)
    document.loss_mask[t] = 1;
  return document;
}

}  // namespace

std::uint64_t HoleShards::zeros_checksum(std::uint64_t bytes) {
  const auto known = checksums_.find(bytes);
  if (known != checksums_.end()) return known->second;
  // calloc's pages are all the kernel's one page of zeros until somebody writes.
  const std::unique_ptr<void, FreeZeros> zeros(std::calloc(bytes, 1));
  return checksums_[bytes] = zeros ? xxh64(zeros.get(), bytes) : 0;
}

Status HoleShards::write(const std::string& path, const std::vector<std::string>& names,
                         std::int64_t tokens) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status("make the file", path, errno);
  const CloseFile close_at_end{fd};
  const std::string header = encode_shard_header(header_);
  EAGLET_RETURN_IF_ERROR(put(fd, path, 0, header.data(), header.size()));
  const auto payload_bytes = static_cast<std::uint64_t>(tokens * header_.slots() * header_.hidden) * 2;
  const std::uint64_t checksum = zeros_checksum(payload_bytes);
  DocumentStates document = numbered_document(tokens);
  std::uint64_t offset = header.size();
  std::vector<RecordHead> heads;
  for (const std::string& name : names) {
    document.id = name;
    std::string meta;
    heads.push_back(encode_record(document, static_cast<std::uint8_t>(StateEncoding::kRaw), payload_bytes,
                                  checksum, &meta));
    EAGLET_RETURN_IF_ERROR(put(fd, path, offset, &heads.back(), sizeof(RecordHead)));
    EAGLET_RETURN_IF_ERROR(put(fd, path, offset + heads.back().meta_offset(), meta.data(), meta.size()));
    offset += heads.back().record_bytes;
  }
  const std::string directory = encode_directory(heads, names, offset);
  return put(fd, path, offset, directory.data(), directory.size());
}

}  // namespace eaglet
