#include "formats/gguf_file.h"

#include <fmt/format.h>
#include <ggml.h>
#include <gguf.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <new>

namespace eaglet {

// The parser's log is the only place where it says why it refused a file.
struct QuietGgmlLogSink {
  static void receive(enum ggml_log_level level, const char* text, void* data) {
    auto& first = static_cast<QuietGgmlLog*>(data)->first_error_;
    if (level != GGML_LOG_LEVEL_ERROR || !first.empty()) return;
    std::string line = text;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    const std::size_t after_function = line.find(": ");
    if (after_function != std::string::npos) line.erase(0, after_function + 2);
    first = line;
  }
};

QuietGgmlLog::QuietGgmlLog() {
  ggml_log_callback callback = nullptr;
  ggml_log_get(&callback, &previous_data_);
  previous_callback_ = reinterpret_cast<void*>(callback);
  ggml_log_set(QuietGgmlLogSink::receive, this);
}

QuietGgmlLog::~QuietGgmlLog() {
  ggml_log_set(reinterpret_cast<ggml_log_callback>(previous_callback_), previous_data_);
}

namespace {

constexpr std::uint64_t kHeaderBytes = 24;       // magic, version, number of tensors, number of keys
constexpr std::uint64_t kLeastKeyBytes = 13;     // length, type, one byte of value
constexpr std::uint64_t kLeastTensorBytes = 24;  // name length, dimensions, type, offset

Status damaged_gguf(const std::string& what, const std::string& path) {
  return Status(StatusCode::kDataLoss, what, path, "download or convert the model again");
}

/// What ggml's parser would trust: magic, version and counts that the file can hold.
Status check_header(const MappedFile& file) {
  const std::string& path = file.path();
  if (file.bytes() < 4 || std::memcmp(file.data(), "GGUF", 4) != 0)
    return Status(StatusCode::kDataLoss, "not a GGUF file", path, "give the path of a model in GGUF form");
  if (file.bytes() < kHeaderBytes) return damaged_gguf("the GGUF file ends inside its header", path);
  std::uint32_t version = 0;
  std::uint64_t tensors = 0, keys = 0;
  std::memcpy(&version, file.data() + 4, sizeof version);
  std::memcpy(&tensors, file.data() + 8, sizeof tensors);
  std::memcpy(&keys, file.data() + 16, sizeof keys);
  if (version != 2 && version != 3)
    return Status(StatusCode::kDataLoss,
                  "GGUF version " + std::to_string(version) + " is not supported (2 and 3 are)", path,
                  "convert the model again with a current llama.cpp");
  if (tensors > file.bytes() / kLeastTensorBytes || keys > file.bytes() / kLeastKeyBytes)
    return damaged_gguf("the GGUF file is too short for its " + std::to_string(tensors) + " tensors and " +
                            std::to_string(keys) + " keys",
                        path);
  return Status();
}

/// Widens any integer type of a GGUF value or array element.
std::optional<std::int64_t> widen(gguf_type type, const void* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<std::int64_t>(value);
  };
  switch (type) {
    case GGUF_TYPE_UINT8:
      return as(std::uint8_t{});
    case GGUF_TYPE_INT8:
      return as(std::int8_t{});
    case GGUF_TYPE_UINT16:
      return as(std::uint16_t{});
    case GGUF_TYPE_INT16:
      return as(std::int16_t{});
    case GGUF_TYPE_UINT32:
      return as(std::uint32_t{});
    case GGUF_TYPE_INT32:
      return as(std::int32_t{});
    case GGUF_TYPE_UINT64:
      return as(std::uint64_t{});
    case GGUF_TYPE_INT64:
      return as(std::int64_t{});
    default:
      return std::nullopt;
  }
}

std::size_t integer_bytes(gguf_type type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

void GgufFile::Free::operator()(gguf_context* context) const {
  gguf_free(context);
}
GgufFile::GgufFile(MappedFile file, gguf_context* context) : file_(std::move(file)), context_(context) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::string& path) {
  if (is_directory(path))
    return Status(StatusCode::kDataLoss, "a directory, not a GGUF file", path,
                  "give the path of the .gguf file in it");
  EAGLET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  EAGLET_RETURN_IF_ERROR(check_header(mapped));
  gguf_context* context = nullptr;
  std::string reason;
  try {
    QuietGgmlLog log;
    context = gguf_init_from_buffer(mapped.data(), mapped.bytes(), {/*no_alloc=*/true, /*ctx=*/nullptr});
    reason = log.first_error();
  } catch (const std::exception& error) {  // numbers in the file drive its allocations
    reason = error.what();
  }
  if (context == nullptr)
    return damaged_gguf("damaged GGUF file" + (reason.empty() ? "" : ": " + reason), path);
  GgufFile file(std::move(mapped), context);
  EAGLET_RETURN_IF_ERROR(file.read_table());
  if (file.integer("split.count").value_or(1) > 1)
    return Status(StatusCode::kConfig, "one part of a split model", path,
                  "join the parts first: llama-gguf-split --merge FIRST_PART WHOLE.gguf");
  return file;
}

Status GgufFile::read_table() {
  const std::uint64_t data_offset = gguf_get_data_offset(context_.get());
  const std::int64_t count = gguf_get_n_tensors(context_.get());
  for (std::int64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    tensor.name = gguf_get_tensor_name(context_.get(), i);
    tensor.ggml_type = gguf_get_tensor_type(context_.get(), i);
    tensor.bytes = gguf_get_tensor_size(context_.get(), i);
    const std::int64_t* ne = gguf_get_tensor_ne(context_.get(), i);
    int dimensions = GGML_MAX_DIMS;
    while (dimensions > 1 && ne[dimensions - 1] == 1) --dimensions;
    for (int d = dimensions; d-- > 0;) tensor.shape.push_back(ne[d]);
    const std::uint64_t offset = gguf_get_tensor_offset(context_.get(), i);
    const std::uint64_t data_bytes = bytes() > data_offset ? bytes() - data_offset : 0;
    if (offset > data_bytes || tensor.bytes > data_bytes - offset)
      return damaged_gguf("the GGUF file is cut short: tensor " + tensor.name + " needs bytes up to " +
                              std::to_string(data_offset + offset + tensor.bytes) + ", the file has " +
                              std::to_string(bytes()),
                          path());
    tensor.data = file_.data() + data_offset + offset;
    tensors_.push_back(std::move(tensor));
  }
  return Status();
}

std::int64_t GgufFile::find_key(const std::string& key) const {
  return gguf_find_key(context_.get(), key.c_str());
}
bool GgufFile::has(const std::string& key) const {
  return find_key(key) >= 0;
}

std::optional<std::string> GgufFile::string(const std::string& key) const {
  const std::int64_t id = find_key(key);
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_STRING) return std::nullopt;
  return gguf_get_val_str(context_.get(), id);
}

std::optional<std::int64_t> GgufFile::integer(const std::string& key) const {
  const std::int64_t id = find_key(key);
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(context_.get(), id);
  if (type == GGUF_TYPE_ARRAY || type == GGUF_TYPE_STRING) return std::nullopt;
  return widen(type, gguf_get_val_data(context_.get(), id));
}

std::optional<double> GgufFile::number(const std::string& key) const {
  const std::int64_t id = find_key(key);
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(context_.get(), id);
  if (type == GGUF_TYPE_FLOAT32) return gguf_get_val_f32(context_.get(), id);
  if (type == GGUF_TYPE_FLOAT64) return gguf_get_val_f64(context_.get(), id);
  const auto whole = integer(key);
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<bool> GgufFile::boolean(const std::string& key) const {
  const std::int64_t id = find_key(key);
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_BOOL) return std::nullopt;
  return gguf_get_val_bool(context_.get(), id);
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(const std::string& key) const {
  const std::int64_t id = find_key(key);
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY) return std::nullopt;
  const gguf_type type = gguf_get_arr_type(context_.get(), id);
  if (type == GGUF_TYPE_STRING) return std::nullopt;
  std::vector<std::int64_t> all;
  const auto* at = static_cast<const std::byte*>(gguf_get_arr_data(context_.get(), id));
  for (std::size_t i = 0, n = gguf_get_arr_n(context_.get(), id); i < n; ++i) {
    const auto one = widen(type, at + i * integer_bytes(type));
    if (!one) return std::nullopt;
    all.push_back(*one);
  }
  return all;
}

std::optional<std::vector<std::string>> GgufFile::strings(const std::string& key) const {
  const std::int64_t id = find_key(key);
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(context_.get(), id) != GGUF_TYPE_STRING)
    return std::nullopt;
  std::vector<std::string> all;
  for (std::size_t i = 0, n = gguf_get_arr_n(context_.get(), id); i < n; ++i)
    all.emplace_back(gguf_get_arr_str(context_.get(), id, i));
  return all;
}

std::string gguf_type_text(int ggml_type) {
  std::string name = ggml_type_name(static_cast<enum ggml_type>(ggml_type));
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::pair<std::string, std::string>> GgufFile::described_keys() const {
  constexpr std::size_t kLongestText = 60;
  std::vector<std::pair<std::string, std::string>> described;
  for (std::int64_t id = 0; id < gguf_get_n_kv(context_.get()); ++id) {
    const std::string key = gguf_get_key(context_.get(), id);
    const gguf_type type = gguf_get_kv_type(context_.get(), id);
    std::string text;
    if (type == GGUF_TYPE_ARRAY) {
      text = std::to_string(gguf_get_arr_n(context_.get(), id)) + " of type " +
             gguf_type_name(gguf_get_arr_type(context_.get(), id));
    } else if (const auto string_value = string(key)) {
      text = string_value->size() > kLongestText ? string_value->substr(0, kLongestText - 3) + "..."
                                                 : *string_value;
      for (char& c : text)  // a chat template has lines of its own
        if (c == '\n' || c == '\r' || c == '\t') c = ' ';
    } else if (const auto flag = boolean(key)) {
      text = *flag ? "true" : "false";
    } else if (const auto whole = integer(key)) {
      text = std::to_string(*whole);
    } else if (const auto real = number(key)) {
      text = fmt::format("{:g}", *real);
    }
    described.emplace_back(key, text);
  }
  return described;
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  for (const GgufTensor& tensor : tensors_)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

Result<std::vector<float>> GgufFile::read_f32(const std::string& name) const {
  return read_f32_at(name, 0, 1);
}

Result<std::vector<float>> GgufFile::read_f32_part(const std::string& name, std::int64_t index) const {
  const GgufTensor* tensor = find(name);
  if (tensor != nullptr && (tensor->shape.size() < 2 || index < 0 || index >= tensor->shape[0]))
    return Status(StatusCode::kInvalidArgument, "the tensor has no part " + std::to_string(index),
                  path() + ", tensor " + name);
  return read_f32_at(name, index, tensor == nullptr ? 1 : tensor->shape[0]);
}

// Part `part` of `parts` equal ones; whole rows, so whole blocks of a quantised type.
Result<std::vector<float>> GgufFile::read_f32_at(const std::string& name, std::int64_t part,
                                                 std::int64_t parts) const {
  const std::string place = path() + ", tensor " + name;
  const GgufTensor* tensor = find(name);
  if (tensor == nullptr)
    return Status(StatusCode::kNotFound, "the model has no such tensor", place,
                  "use a complete language model");
  const auto type = static_cast<ggml_type>(tensor->ggml_type);
  std::uint64_t elements = 1;  // ggml's parser has checked that the product fits
  for (const std::int64_t extent : tensor->shape) elements *= static_cast<std::uint64_t>(extent);
  elements /= static_cast<std::uint64_t>(parts);
  const std::byte* from = reinterpret_cast<const std::byte*>(tensor->data) +
                          elements / static_cast<std::uint64_t>(ggml_blck_size(type)) * ggml_type_size(type) *
                              static_cast<std::uint64_t>(part);
  std::vector<float> values;
  try {
    values.resize(elements);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kNoSpace,
                  "no memory for " + std::to_string(elements * sizeof(float)) + " bytes", place,
                  "use a machine with more memory");
  }
  const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
  if (type == GGML_TYPE_F32) {
    std::memcpy(values.data(), from, elements * sizeof(float));
  } else if (to_float != nullptr) {
    to_float(from, values.data(), static_cast<std::int64_t>(elements));
  } else {
    return Status(StatusCode::kConfig, std::string("cannot dequantise type ") + ggml_type_name(type), place,
                  "use a model in f32, f16, bf16 or one of llama.cpp's quantised types");
  }
  // Or a model larger than the memory would seem to fill it.
  file_.release(static_cast<std::uint64_t>(from - file_.data()),
                elements / static_cast<std::uint64_t>(ggml_blck_size(type)) * ggml_type_size(type));
  for (const float value : values)
    if (!std::isfinite(value))
      return Status(StatusCode::kNumeric, "a weight is not finite", place, "get the model again");
  return values;
}

}  // namespace eaglet
