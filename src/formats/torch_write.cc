#include <fmt/format.h>

#include "formats/stored_zip.h"
#include "formats/torch_file.h"

namespace eaglet {
namespace {

/// Pickle protocol 2, without memo: every reader of pickles takes that.
class Pickle {
 public:
  Pickle() { code_ = "\x80\x02"; }
  Pickle& op(char code) {
    code_ += code;
    return *this;
  }
  Pickle& integer(std::int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) {
      code_ += 'J';
      raw(static_cast<std::int32_t>(value));
    } else {
      code_ += "\x8a\x08";
      raw(value);
    }
    return *this;
  }
  Pickle& text(const std::string& value) {
    code_ += 'X';
    raw(static_cast<std::uint32_t>(value.size()));
    code_ += value;
    return *this;
  }
  Pickle& global(const std::string& module, const std::string& name) {
    code_ += "c" + module + "\n" + name + "\n";
    return *this;
  }
  Pickle& list(const std::vector<std::int64_t>& values) {  // as a tuple
    op('(');
    for (const std::int64_t value : values) integer(value);
    return op('t');
  }
  std::string finish() && { return std::move(op('.').code_); }

 private:
  template <class T>
  void raw(T value) {
    code_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string code_;
};

Status write_archive(const std::string& path, std::string pickle, std::vector<StoredZipFile> storages) {
  std::vector<StoredZipFile> files = {{"archive/data.pkl", std::move(pickle)},
                                      {"archive/byteorder", "little"}};
  for (StoredZipFile& storage : storages) files.push_back(std::move(storage));
  files.push_back({"archive/version", "3\n"});
  return write_file_atomic(path, make_stored_zip(files));
}

const char* storage_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return "BoolStorage";
    case Dtype::kF32:
      return "FloatStorage";
    default:
      return "LongStorage";
  }
}

void put_tensor(const TorchOutputTensor& tensor, const std::string& key, Pickle* pickle) {
  std::int64_t elements = 1;
  std::vector<std::int64_t> strides(tensor.shape.size());
  for (std::size_t d = tensor.shape.size(); d-- > 0; elements *= tensor.shape[d]) strides[d] = elements;
  pickle->global("torch._utils", "_rebuild_tensor_v2").op('(').op('(').text("storage");
  pickle->global("torch", storage_name(tensor.dtype)).text(key).text("cpu").integer(elements).op('t').op('Q');
  pickle->integer(0).list(tensor.shape).list(strides).op('\x89');
  pickle->global("collections", "OrderedDict").op(')').op('R').op('t').op('R');
}

}  // namespace

Status write_torch_counts(const std::string& path, const std::map<std::int64_t, std::int64_t>& counts) {
  Pickle pickle;
  pickle.op('}').op('(');
  for (const auto& [id, count] : counts) pickle.integer(id).integer(count);
  return write_archive(path, std::move(pickle.op('u')).finish(), {});
}

Status write_torch_list(const std::string& path, const std::vector<std::int64_t>& list) {
  Pickle pickle;
  pickle.op(']').op('(');
  for (const std::int64_t value : list) pickle.integer(value);
  return write_archive(path, std::move(pickle.op('e')).finish(), {});
}

Status write_torch_tensors(const std::string& path, const std::vector<TorchOutputTensor>& tensors) {
  Pickle pickle;
  std::vector<StoredZipFile> storages;
  pickle.op('}').op('(');
  for (const TorchOutputTensor& tensor : tensors) {
    const std::string key = std::to_string(storages.size());
    pickle.text(tensor.name);
    put_tensor(tensor, key, &pickle);
    storages.push_back({"archive/data/" + key, tensor.bytes});
  }
  return write_archive(path, std::move(pickle.op('u')).finish(), std::move(storages));
}

}  // namespace eaglet
