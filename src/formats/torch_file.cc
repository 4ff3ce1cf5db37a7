#include "formats/torch_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "formats/stored_zip.h"
#include "formats/torch_pickle.h"

namespace eaglet {
namespace {

constexpr std::uint64_t kLargestPickle = std::uint64_t{1} << 28;

Status refused(const std::string& what, const std::string& todo) {
  return Status(StatusCode::kConfig, what, "", todo);
}

/// The archive's files by their name behind the first folder ("archive/data.pkl" -> "data.pkl").
std::map<std::string, const StoredZipEntry*> by_inner_name(const std::vector<StoredZipEntry>& entries) {
  std::map<std::string, const StoredZipEntry*> names;
  for (const StoredZipEntry& entry : entries) {
    const std::size_t slash = entry.name.find('/');
    names.emplace(slash == std::string::npos ? entry.name : entry.name.substr(slash + 1), &entry);
  }
  return names;
}

/// Copies a strided tensor's elements in row-major order.
std::vector<std::byte> gather(const TorchTensor& tensor) {
  const std::size_t size = dtype_bytes(tensor.dtype);
  const auto count = static_cast<std::size_t>(tensor.elements());
  std::vector<std::byte> bytes(count * size);
  if (count == 0) return bytes;
  if (tensor.contiguous()) {
    std::memcpy(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  std::int64_t from = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(bytes.data() + i * size, tensor.data + static_cast<std::size_t>(from) * size, size);
    for (std::size_t d = index.size(); d-- > 0;) {
      from += tensor.stride[d];
      if (++index[d] < tensor.shape[d]) break;
      from -= index[d] * tensor.stride[d];
      index[d] = 0;
    }
  }
  return bytes;
}

template <class T>
void widen(const std::vector<std::byte>& from, std::vector<std::int64_t>* to) {
  to->resize(from.size() / sizeof(T));
  for (std::size_t i = 0; i < to->size(); ++i) {
    T value;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    (*to)[i] = static_cast<std::int64_t>(value);
  }
}

Result<std::vector<std::byte>> gunzip(const std::byte* data, std::uint64_t bytes, std::uint64_t most_bytes) {
  const auto damaged = [](const char* why) {
    return Status(StatusCode::kDataLoss, std::string("the gzip packing is damaged: ") + why, "",
                  "fetch or write this file again");
  };
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return damaged("zlib does not start");
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};
  std::vector<std::byte> out;
  std::vector<std::byte> block(std::size_t{1} << 20);
  std::uint64_t taken = 0;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0 && taken < bytes) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data + taken));
      stream.avail_in = static_cast<uInt>(std::min<std::uint64_t>(bytes - taken, 1u << 30));
      taken += stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    state = inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END)
      return damaged(stream.msg != nullptr ? stream.msg : "cut short");
    const std::size_t made = block.size() - stream.avail_out;
    if (out.size() + made > most_bytes)
      return Status(StatusCode::kNoSpace, fmt::format("it unpacks to more than {} bytes", most_bytes));
    out.insert(out.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(made));
  }
  return out;
}

}  // namespace

std::int64_t TorchTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

bool TorchTensor::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && stride[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

const TorchValue* TorchValue::find(const std::string& key) const {
  if (kind != Kind::kDict) return nullptr;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i]->kind == Kind::kString && items[i]->text == key) return values[i];
  return nullptr;
}

const char* kind_name(TorchValue::Kind kind) {
  static constexpr const char* kNames[] = {"nothing", "a bool", "a whole number", "a number",
                                           "a text",  "a list", "a dict",         "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<TorchFile> TorchFile::finish(TorchFile file, const std::byte* data, std::uint64_t bytes) {
  if (bytes == 0) return Status(StatusCode::kDataLoss, "the file is empty", "", "write this file again");
  if (bytes < 2 || (std::memcmp(data, "PK", 2) != 0 && data[0] == std::byte{0x80}))
    return refused("the form that torch wrote before 1.6, a bare pickle",
                   "load it with torch and save it again: torch.save(torch.load(f), f)");
  EAGLET_ASSIGN_OR_RETURN(const std::vector<StoredZipEntry> entries, read_stored_zip(data, bytes));
  const auto names = by_inner_name(entries);
  const auto pickle = names.find("data.pkl");
  if (pickle == names.end())
    return refused("a zip archive without data.pkl: not a file of torch.save", "give a .pt or .ckpt file");
  if (names.contains("constants.pkl"))
    return refused("a torch script (constants.pkl), which holds code", "give a file that torch.save wrote");
  if (const auto order = names.find("byteorder"); order != names.end()) {
    const std::string_view text(reinterpret_cast<const char*>(data + order->second->offset),
                                order->second->bytes);
    if (text != "little") return refused("numbers in big-endian order", "save it on a little-endian machine");
  }
  if (pickle->second->bytes > kLargestPickle)
    return refused("its pickle is larger than 256 MiB", "save fewer things in one file");
  EAGLET_RETURN_IF_ERROR(check_zip_entry(data, *pickle->second));
  const FindStorage find_storage = [&](const std::string& key) -> Result<TorchStorage> {
    const auto it = names.find("data/" + key);
    if (it == names.end())
      return Status(StatusCode::kDataLoss, "a tensor's numbers (data/" + key + ") are missing", "",
                    "fetch or write this file again");
    EAGLET_RETURN_IF_ERROR(check_zip_entry(data, *it->second));
    return TorchStorage{data + it->second->offset, it->second->offset, it->second->bytes};
  };
  file.nodes_ = std::make_unique<std::deque<TorchValue>>();
  const std::string_view code(reinterpret_cast<const char*>(data + pickle->second->offset),
                              pickle->second->bytes);
  EAGLET_ASSIGN_OR_RETURN(file.root_, run_torch_pickle(code, find_storage, file.nodes_.get()));
  return file;
}

Result<TorchFile> TorchFile::open(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  TorchFile file;
  file.path_ = path;
  file.file_ = std::make_unique<MappedFile>(std::move(mapped));
  const std::byte* data = file.file_->data();
  const std::uint64_t bytes = file.file_->bytes();
  auto finished = finish(std::move(file), data, bytes);
  if (!finished.ok()) return finished.status().at(path);
  return finished;
}

Result<TorchFile> TorchFile::parse(std::vector<std::byte> bytes, const std::string& path) {
  TorchFile file;
  file.path_ = path;
  file.owned_ = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  const std::byte* data = file.owned_->data();
  const std::uint64_t count = file.owned_->size();
  auto finished = finish(std::move(file), data, count);
  if (!finished.ok()) return finished.status().at(path);
  return finished;
}

Result<TorchFile> TorchFile::open_gzip(const std::string& path, std::uint64_t most_bytes) {
  EAGLET_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(path));
  auto bytes = gunzip(mapped.data(), mapped.bytes(), most_bytes);
  if (!bytes.ok()) return bytes.status().at(path);
  return parse(std::move(*bytes), path);
}

Result<std::vector<float>> TorchFile::read_f32(const TorchTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  if (!convert_to_f32(tensor.dtype, gather(tensor).data(), values.size(), values.data()))
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a tensor of {}, not of a floating-point type", dtype_name(tensor.dtype)));
  return values;
}

Result<std::vector<std::int64_t>> TorchFile::read_i64(const TorchTensor& tensor) {
  const std::vector<std::byte> bytes = gather(tensor);
  std::vector<std::int64_t> values;
  switch (tensor.dtype) {
    case Dtype::kI64:
      widen<std::int64_t>(bytes, &values);
      return values;
    case Dtype::kI32:
      widen<std::int32_t>(bytes, &values);
      return values;
    case Dtype::kI16:
      widen<std::int16_t>(bytes, &values);
      return values;
    case Dtype::kI8:
      widen<std::int8_t>(bytes, &values);
      return values;
    case Dtype::kU8:
    case Dtype::kBool:
      widen<std::uint8_t>(bytes, &values);
      return values;
    default:
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("a tensor of {}, not of a whole-number type", dtype_name(tensor.dtype)));
  }
}

}  // namespace eaglet
