#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// One file inside a zip archive whose files are stored as they are (as torch.save writes them).
struct StoredZipEntry {
  std::string name;
  std::uint64_t offset = 0, bytes = 0;  // of its content in the archive
  std::uint32_t crc32 = 0;
};

/// The entries of a zip archive in memory, also one with 64-bit sizes, in the order of its directory. Nothing
/// in it is trusted: every offset and size is held against `bytes`, entries must not overlap, local headers
/// must agree with the directory. kDataLoss for damage; kConfig for what torch.save never writes (compressed
/// or encrypted entries, several disks). Source: PKWARE APPNOTE 6.3.
Result<std::vector<StoredZipEntry>> read_stored_zip(const std::byte* data, std::uint64_t bytes);

/// kDataLoss naming the entry when its content does not have its checksum.
Status check_zip_entry(const std::byte* data, const StoredZipEntry& entry);

/// The file that is written: entries one after the other, contents at multiples of 64 bytes.
struct StoredZipFile {
  std::string name;
  std::string content;
};
/// The archive's bytes; contents together below 4 GiB.
std::string make_stored_zip(const std::vector<StoredZipFile>& files);

}  // namespace eaglet
