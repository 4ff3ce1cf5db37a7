#include "formats/stored_zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace eaglet {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50,
                        kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                        kLocator64Bytes = 20;
constexpr std::uint64_t kLongestComment = 65535, kMostEntries = 1 << 20;

Status corrupt_zip(const std::string& what) {
  return Status(StatusCode::kDataLoss, what, "", "fetch or write this file again: it is damaged");
}
Status zip_refused(const std::string& what) {
  return Status(StatusCode::kConfig, what, "",
                "only archives as torch.save writes them are read; load it there and save it again");
}

/// Little-endian numbers at checked places.
class Bytes {
 public:
  Bytes(const std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}
  bool has(std::uint64_t at, std::uint64_t count) const { return at <= bytes_ && count <= bytes_ - at; }
  template <class T>
  T get(std::uint64_t at) const {  // the caller has asked has()
    T value;
    std::memcpy(&value, data_ + at, sizeof value);
    return value;
  }
  std::string text(std::uint64_t at, std::uint64_t count) const {
    return std::string(reinterpret_cast<const char*>(data_ + at), count);
  }
  std::uint64_t size() const { return bytes_; }

 private:
  const std::byte* data_;
  std::uint64_t bytes_;
};

struct Directory {
  std::uint64_t offset = 0, bytes = 0, entries = 0;
};

std::optional<std::uint64_t> find_end(const Bytes& zip) {
  if (zip.size() < kEndBytes) return std::nullopt;
  const std::uint64_t last = zip.size() - kEndBytes;
  const std::uint64_t first = last > kLongestComment ? last - kLongestComment : 0;
  for (std::uint64_t at = last + 1; at-- > first;)
    if (zip.get<std::uint32_t>(at) == kEndMagic && zip.get<std::uint16_t>(at + 20) == last - at) return at;
  return std::nullopt;
}

Result<Directory> find_directory(const Bytes& zip) {
  const auto end = find_end(zip);
  if (!end)
    return corrupt_zip("there is no zip directory at the end: the file is cut short, or of another kind");
  if (zip.get<std::uint16_t>(*end + 4) != 0 && zip.get<std::uint16_t>(*end + 4) != 0xffff)
    return zip_refused("a zip archive of several disks");
  Directory directory{zip.get<std::uint32_t>(*end + 16), zip.get<std::uint32_t>(*end + 12),
                      zip.get<std::uint16_t>(*end + 10)};
  const bool has_locator =
      *end >= kLocator64Bytes && zip.get<std::uint32_t>(*end - kLocator64Bytes) == kLocator64Magic;
  if (has_locator) {
    const auto at = zip.get<std::uint64_t>(*end - kLocator64Bytes + 8);
    if (!zip.has(at, kEnd64Bytes) || zip.get<std::uint32_t>(at) != kEnd64Magic)
      return corrupt_zip("the 64-bit zip directory is not where it should be");
    directory = {zip.get<std::uint64_t>(at + 48), zip.get<std::uint64_t>(at + 40),
                 zip.get<std::uint64_t>(at + 32)};
  }
  if (!zip.has(directory.offset, directory.bytes))
    return corrupt_zip(fmt::format("the zip directory claims bytes {}+{} of {}", directory.offset,
                                   directory.bytes, zip.size()));
  if (directory.entries > kMostEntries || directory.entries * kCentralBytes > directory.bytes)
    return corrupt_zip(
        fmt::format("the zip directory claims {} entries in {} bytes", directory.entries, directory.bytes));
  return directory;
}

/// 64-bit sizes and offset from the extra field, for those that are all ones in the directory.
bool widen(const Bytes& zip, std::uint64_t at, std::uint64_t bytes, std::uint64_t* size,
           std::uint64_t* stored, std::uint64_t* offset) {
  const std::uint64_t end = at + bytes;
  while (at + 4 <= end) {
    const auto id = zip.get<std::uint16_t>(at);
    const std::uint64_t length = zip.get<std::uint16_t>(at + 2);
    at += 4;
    if (length > end - at) return false;
    if (id == 1) {
      const std::uint64_t field_end = at + length;
      for (std::uint64_t* value : {size, stored, offset}) {
        if (*value != 0xffffffffu) continue;
        if (at + 8 > field_end) return false;
        *value = zip.get<std::uint64_t>(at);
        at += 8;
      }
      return true;
    }
    at += length;
  }
  return *size != 0xffffffffu && *stored != 0xffffffffu && *offset != 0xffffffffu;
}

/// Follows the directory's word to the entry's own header in front of its content.
Status locate_content(const Bytes& zip, std::uint64_t local, StoredZipEntry* entry) {
  if (!zip.has(local, kLocalBytes) || zip.get<std::uint32_t>(local) != kLocalMagic)
    return corrupt_zip("the zip entry '" + entry->name + "' is not where the directory says");
  const std::uint64_t name_bytes = zip.get<std::uint16_t>(local + 26),
                      extra_bytes = zip.get<std::uint16_t>(local + 28);
  entry->offset = local + kLocalBytes + name_bytes + extra_bytes;
  if (!zip.has(local + kLocalBytes, name_bytes) || zip.text(local + kLocalBytes, name_bytes) != entry->name)
    return corrupt_zip("the zip entry '" + entry->name + "' has another name in its own header");
  if (!zip.has(entry->offset, entry->bytes))
    return corrupt_zip(fmt::format("the zip entry '{}' claims bytes {}+{} of {}", entry->name, entry->offset,
                                   entry->bytes, zip.size()));
  return {};
}

Result<StoredZipEntry> read_entry(const Bytes& zip, std::uint64_t at, std::uint64_t end,
                                  std::uint64_t* next) {
  if (end - at < kCentralBytes || zip.get<std::uint32_t>(at) != kCentralMagic)
    return corrupt_zip("the zip directory is damaged");
  const auto flags = zip.get<std::uint16_t>(at + 8), method = zip.get<std::uint16_t>(at + 10);
  std::uint64_t stored = zip.get<std::uint32_t>(at + 20), size = zip.get<std::uint32_t>(at + 24),
                local = zip.get<std::uint32_t>(at + 42);
  const std::uint64_t name_bytes = zip.get<std::uint16_t>(at + 28), extra = zip.get<std::uint16_t>(at + 30),
                      comment = zip.get<std::uint16_t>(at + 32);
  if (name_bytes + extra + comment > end - at - kCentralBytes)
    return corrupt_zip("the zip directory is cut short");
  StoredZipEntry entry;
  entry.name = zip.text(at + kCentralBytes, name_bytes);
  entry.crc32 = zip.get<std::uint32_t>(at + 16);
  if ((flags & 1) != 0) return zip_refused("the zip entry '" + entry.name + "' is encrypted");
  if (method != 0) return zip_refused("the zip entry '" + entry.name + "' is compressed");
  if (!widen(zip, at + kCentralBytes + name_bytes, extra, &size, &stored, &local) || stored != size)
    return corrupt_zip("the zip entry '" + entry.name + "' has sizes that do not fit together");
  entry.bytes = size;
  EAGLET_RETURN_IF_ERROR(locate_content(zip, local, &entry));
  *next = at + kCentralBytes + name_bytes + extra + comment;
  return entry;
}

template <class T>
void put(std::string* to, T value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint32_t crc_of(const void* data, std::uint64_t bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, static_cast<const Bytef*>(data), bytes));
}

}  // namespace

Result<std::vector<StoredZipEntry>> read_stored_zip(const std::byte* data, std::uint64_t bytes) {
  const Bytes zip(data, bytes);
  EAGLET_ASSIGN_OR_RETURN(const Directory directory, find_directory(zip));
  std::vector<StoredZipEntry> entries;
  std::uint64_t at = directory.offset;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    std::uint64_t next = 0;
    EAGLET_ASSIGN_OR_RETURN(StoredZipEntry entry,
                            read_entry(zip, at, directory.offset + directory.bytes, &next));
    entries.push_back(std::move(entry));
    at = next;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (const StoredZipEntry& entry : entries) spans.emplace_back(entry.offset, entry.offset + entry.bytes);
  std::sort(spans.begin(), spans.end());
  for (std::size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second) return corrupt_zip("two zip entries overlap");
  return entries;
}

Status check_zip_entry(const std::byte* data, const StoredZipEntry& entry) {
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  if (crc_of(data + entry.offset, entry.bytes) != entry.crc32)
    return corrupt_zip("the zip entry '" + entry.name + "' is damaged (checksum)");
#endif
  (void)data;
  (void)entry;
  return {};
}

std::string make_stored_zip(const std::vector<StoredZipFile>& files) {
  constexpr std::size_t kAlignment = 64;  // torch maps tensors straight from the file
  std::string zip, directory;
  for (const StoredZipFile& file : files) {
    const auto offset = static_cast<std::uint32_t>(zip.size());
    const auto size = static_cast<std::uint32_t>(file.content.size());
    const std::uint32_t crc = crc_of(file.content.data(), file.content.size());
    const std::size_t head = zip.size() + kLocalBytes + file.name.size() + 4;
    const auto padding = static_cast<std::uint16_t>((kAlignment - head % kAlignment) % kAlignment);
    std::string common;  // version, flags, method, time, date, checksum, both sizes, name's length
    for (const std::uint16_t value : {10, 0, 0, 0, 0x21}) put<std::uint16_t>(&common, value);
    for (const std::uint32_t value : {crc, size, size}) put(&common, value);
    put(&common, static_cast<std::uint16_t>(file.name.size()));
    put(&zip, kLocalMagic);
    zip += common;
    put(&zip, static_cast<std::uint16_t>(padding + 4));
    zip += file.name;
    put<std::uint16_t>(&zip, 0x4246);  // "FB": the padding field that torch uses
    put(&zip, padding);
    zip.append(padding, 'Z');
    zip += file.content;
    put(&directory, kCentralMagic);
    put<std::uint16_t>(&directory, 10);
    directory += common;
    for (const std::uint16_t value : {0, 0, 0, 0}) put<std::uint16_t>(&directory, value);
    put<std::uint32_t>(&directory, 0);
    put(&directory, offset);
    directory += file.name;
  }
  const auto start = static_cast<std::uint32_t>(zip.size());
  zip += directory;
  put(&zip, kEndMagic);
  put<std::uint32_t>(&zip, 0);
  put(&zip, static_cast<std::uint16_t>(files.size()));
  put(&zip, static_cast<std::uint16_t>(files.size()));
  put(&zip, static_cast<std::uint32_t>(directory.size()));
  put(&zip, start);
  put<std::uint16_t>(&zip, 0);
  return zip;
}

}  // namespace eaglet
