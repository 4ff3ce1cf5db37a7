#include "export/gguf_writer.h"

#include <fmt/format.h>

#include "base/files.h"

namespace eaglet {
namespace {

Status damaged(const std::string& path, std::string what) {
  return Status(StatusCode::kDataLoss, std::move(what), path);
}

// gguf's own getters abort on a key of another type, so the type is looked at first.
std::string text_value(const gguf_context* gguf, const char* key) {
  const std::int64_t id = gguf_find_key(gguf, key);
  return id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_STRING ? gguf_get_val_str(gguf, id) : "";
}

std::int64_t number_value(const gguf_context* gguf, const std::string& key) {
  const std::int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return 0;
  switch (gguf_get_kv_type(gguf, id)) {
    case GGUF_TYPE_UINT32:
      return gguf_get_val_u32(gguf, id);
    case GGUF_TYPE_INT32:
      return gguf_get_val_i32(gguf, id);
    case GGUF_TYPE_UINT64:
      return static_cast<std::int64_t>(gguf_get_val_u64(gguf, id));
    case GGUF_TYPE_INT64:
      return gguf_get_val_i64(gguf, id);
    default:
      return 0;
  }
}

struct GgmlDeleter {
  void operator()(ggml_context* context) const { ggml_free(context); }
};

// gguf wants ggml tensors as descriptions; no_alloc keeps them empty.
Status describe(gguf_context* metadata, const std::vector<GgufOutput>& tensors) {
  const std::unique_ptr<ggml_context, GgmlDeleter> shapes(
      ggml_init({ggml_tensor_overhead() * (tensors.size() + 1), nullptr, true}));
  if (shapes == nullptr) return Status(StatusCode::kNoSpace, "not enough memory to describe the tensors");
  for (const GgufOutput& t : tensors) {
    ggml_tensor* shape = t.shape.size() == 1
                             ? ggml_new_tensor_1d(shapes.get(), t.type, t.shape[0])
                             : ggml_new_tensor_2d(shapes.get(), t.type, t.shape[1], t.shape[0]);
    ggml_set_name(shape, t.name.c_str());
    gguf_add_tensor(metadata, shape);
  }
  return {};
}

Status write_padding(AtomicFile& file, std::size_t alignment) {
  static constexpr char kZeros[256] = {};
  const std::size_t rest = file.bytes_written() % alignment;
  return rest == 0 ? Status() : file.write(kZeros, alignment - rest);
}

Status write_tensor(AtomicFile& file, const GgufOutput& t) {
  const std::int64_t columns = t.shape.back();
  const std::int64_t rows = t.shape.size() == 1 ? 1 : t.shape[0];
  if (t.type == GGML_TYPE_I64 || t.type == GGML_TYPE_F32) {
    return file.write(t.data, static_cast<std::size_t>(rows * columns) * ggml_type_size(t.type));
  }
  std::vector<std::byte> converted(static_cast<std::size_t>(rows) * ggml_row_size(t.type, columns));
  ggml_quantize_chunk(t.type, static_cast<const float*>(t.data), converted.data(), 0, rows, columns, nullptr);
  return file.write(converted.data(), converted.size());
}

}  // namespace

Result<GgufTarget> read_gguf_target(const std::string& path) {
  if (!path_exists(path)) return Status(StatusCode::kNotFound, "no such target model", path);
  GgufTarget target;
  target.header.reset(gguf_init_from_file(path.c_str(), {true, nullptr}));
  if (target.header == nullptr) return damaged(path, "not a GGUF file, or a damaged one");
  const gguf_context* gguf = target.header.get();
  target.architecture = text_value(gguf, "general.architecture");
  target.name = text_value(gguf, "general.name");
  target.num_layers = number_value(gguf, target.architecture + ".block_count");
  target.hidden = number_value(gguf, target.architecture + ".embedding_length");
  const std::int64_t tokens = gguf_find_key(gguf, "tokenizer.ggml.tokens");
  if (tokens < 0 || gguf_get_kv_type(gguf, tokens) != GGUF_TYPE_ARRAY)
    return damaged(path, "the target has no tokenizer");
  target.vocab = static_cast<std::int64_t>(gguf_get_arr_n(gguf, tokens));
  if (target.num_layers < 1 || target.hidden < 1)
    return damaged(path, "the target does not say how many layers it has");
  return target;
}

Status write_gguf(gguf_context* metadata, const std::vector<GgufOutput>& tensors, const std::string& path) {
  EAGLET_RETURN_IF_ERROR(describe(metadata, tensors));
  std::vector<char> header(gguf_get_meta_size(metadata));
  gguf_get_meta_data(metadata, header.data());
  EAGLET_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  EAGLET_RETURN_IF_ERROR(file.write(header.data(), header.size()));
  for (const GgufOutput& tensor : tensors) {
    EAGLET_RETURN_IF_ERROR(write_tensor(file, tensor));
    EAGLET_RETURN_IF_ERROR(write_padding(file, gguf_get_alignment(metadata)));
  }
  return file.commit();
}

}  // namespace eaglet
