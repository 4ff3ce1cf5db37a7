#include "formats/arrow_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/files.h"
#include "formats/flat_table.h"
#include "formats/json.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {
namespace arrow {  // other files of this room have a Column, a corrupt() too

// Numbers of Arrow's format/Schema.fbs and Message.fbs.
enum TypeId : std::uint8_t {
  kNull = 1,
  kInt = 2,
  kFloat = 3,
  kBinary = 4,
  kUtf8 = 5,
  kBool = 6,
  kList = 12,
  kStruct = 13,
  kUnion = 14,
  kFixedList = 16,
  kMap = 17,
  kLargeBinary = 19,
  kLargeUtf8 = 20,
  kLargeList = 21,
  kLastSimple = 18
};
enum HeaderId : std::uint8_t { kSchemaHeader = 1, kBatchHeader = 3 };
constexpr int kMostDepth = 16;
constexpr std::size_t kMostColumns = 4096;  // a schema whose columns hold each other would never end
constexpr std::uint64_t kMostRowTokens = std::uint64_t{1} << 24;

Status corrupt(const std::string& what) {
  return Status(StatusCode::kDataLoss, "not a whole Arrow stream: " + what, "", "save the dataset again");
}
Status not_read(const std::string& what) {
  return Status(StatusCode::kConfig, "an Arrow file with " + what + " is not read", "",
                "save it with datasets' save_to_disk, as speculators does, or as JSON lines");
}

struct Column {
  std::string name;
  std::uint8_t type = 0;
  int bit_width = 0;  // of integers
  bool is_signed = true;
  std::vector<Column> children;
  // Where its parts stand in a batch's lists.
  std::size_t first_node = 0, first_buffer = 0;
};

/// Buffers of its own in a batch, without its children's; -1: of a kind that is not read.
int own_buffers(const Column& column) {
  switch (column.type) {
    case kNull:
      return 0;
    case kBinary:
    case kUtf8:
    case kLargeBinary:
    case kLargeUtf8:
      return 3;
    case kList:
    case kLargeList:
    case kMap:
      return 2;
    case kStruct:
    case kFixedList:
      return 1;
    case kUnion:
      return -1;
    default:
      return column.type <= kLastSimple ? 2 : -1;
  }
}

/// `count`: columns read so far, with those inside others.
Result<Column> read_column(FlatBuffer& message, std::uint64_t field, int depth, std::size_t* count) {
  Column column;
  if (depth > kMostDepth) return corrupt("columns nest too deeply");
  if (++*count > kMostColumns) return corrupt(fmt::format("it has more than {} columns", kMostColumns));
  column.name = message.text(message.reference(field, 0));
  column.type = message.number<std::uint8_t>(field, 2);
  if (message.reference(field, 4) != 0) {  // a dictionary: its indices stand in the batch
    column.type = kFloat;
    return column;
  }
  if (column.type == kInt) {
    const std::uint64_t type = message.reference(field, 3);
    column.bit_width = type == 0 ? 0 : message.number<std::int32_t>(type, 0);
    column.is_signed = type != 0 && message.number<std::uint8_t>(type, 1) != 0;
  }
  const std::uint64_t children = message.reference(field, 5);
  const std::uint64_t inside = message.length(children, 4);
  for (std::uint64_t i = 0; i < inside && message.ok(); ++i) {
    const std::uint64_t place = children + 4 + 4 * i;
    EAGLET_ASSIGN_OR_RETURN(Column child,
                            read_column(message, place + message.at<std::uint32_t>(place), depth + 1, count));
    column.children.push_back(std::move(child));
  }
  if (!message.ok()) return corrupt("its schema is damaged");
  if (own_buffers(column) < 0)
    return not_read(fmt::format("a column '{}' of type number {}", column.name, column.type));
  return column;
}

void place(Column* column, std::size_t* node, std::size_t* buffer) {
  column->first_node = (*node)++;
  column->first_buffer = *buffer;
  *buffer += static_cast<std::size_t>(own_buffers(*column));
  for (Column& child : column->children) place(&child, node, buffer);
}

bool is_whole_list(const Column& column) {
  if ((column.type != kList && column.type != kLargeList) || column.children.size() != 1) return false;
  const Column& item = column.children.front();
  return item.type == kBool || (item.type == kInt && (item.bit_width == 8 || item.bit_width == 16 ||
                                                      item.bit_width == 32 || item.bit_width == 64));
}

struct Span {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

/// One record batch, its columns found.
struct Batch {
  std::uint64_t rows = 0;
  std::vector<std::uint64_t> lengths, nulls;  // by node
  std::vector<Span> buffers;
};

bool bit_of(const Span& bits, std::uint64_t i) {
  return (static_cast<unsigned>(bits.data[i / 8]) >> (i % 8) & 1u) != 0;
}
template <class T>
T value_of(const Span& span, std::uint64_t i) {
  T value;
  std::memcpy(&value, span.data + i * sizeof(T), sizeof(T));
  return value;
}

/// A stream, one message after the other.
class ArrowStream {
 public:
  ArrowStream(const std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}

  /// Reads the schema and finds the two lists.
  Status begin() {
    if (bytes_ >= 6 && std::memcmp(data_, "ARROW1", 6) == 0)
      return not_read("the random-access format (Feather)");
    EAGLET_ASSIGN_OR_RETURN(const bool there, next_message());
    if (!there || header_type_ != kSchemaHeader) return corrupt("it does not begin with a schema");
    FlatBuffer& message = *message_;
    if (message.number<std::int16_t>(header_, 0) != 0) return not_read("big-endian numbers");
    const std::uint64_t fields = message.reference(header_, 1);
    const std::uint64_t count = message.length(fields, 4);
    std::size_t node = 0, buffer = 0, columns = 0;
    for (std::uint64_t i = 0; i < count && message.ok(); ++i) {
      const std::uint64_t at = fields + 4 + 4 * i;
      EAGLET_ASSIGN_OR_RETURN(Column column,
                              read_column(message, at + message.at<std::uint32_t>(at), 0, &columns));
      place(&column, &node, &buffer);
      columns_.push_back(std::move(column));
    }
    if (!message.ok()) return corrupt("its schema is damaged");
    nodes_ = node;
    buffers_ = buffer;
    return find_columns();
  }

  /// The next row as a JSON line; false at the end.
  Result<bool> next(std::string* line) {
    while (row_ == batch_.rows) {
      EAGLET_ASSIGN_OR_RETURN(const bool there, next_batch());
      if (!there) return false;
    }
    EAGLET_RETURN_IF_ERROR(write_row(row_++, line));
    return true;
  }

 private:
  Status find_columns() {
    std::vector<std::string> names;
    for (const Column& column : columns_) {
      names.push_back(column.name);
      if (column.name == "input_ids" && is_whole_list(column)) ids_ = &column;
      if (column.name == "loss_mask" && is_whole_list(column)) mask_ = &column;
      for (const char* wanted : {"id", "uuid", "conversation_id", "finish_reason", "text"})
        if (column.name == wanted && (column.type == kUtf8 || column.type == kLargeUtf8))
          texts_.push_back(&column);
    }
    if (ids_ != nullptr && mask_ != nullptr) return {};
    return Status(
        StatusCode::kConfig,
        fmt::format("the dataset's columns are {}: there are no lists of whole numbers input_ids and "
                    "loss_mask",
                    fmt::join(names, ", ")),
        "", "prepare it with speculators (prepare-data), or save its conversations as JSON lines");
  }

  /// One encapsulated message: marker, length, metadata, body. False at the end of the stream.
  Result<bool> next_message() {
    if (bytes_ == at_) return false;  // some writers leave the end mark out
    if (bytes_ - at_ < 8) return corrupt("it is cut");
    std::uint32_t marker = 0, length = 0;
    std::memcpy(&marker, data_ + at_, 4);
    std::memcpy(&length, data_ + at_ + 4, 4);
    if (marker != 0xffffffffu) return not_read("messages of the form before Arrow 0.15, or of another kind");
    at_ += 8;
    if (length == 0) {
      at_ = bytes_;
      return false;
    }
    if (length > bytes_ - at_) return corrupt("a message is cut");
    message_.emplace(data_ + at_, length);
    at_ += length;
    const std::uint64_t root = message_->root();
    header_type_ = message_->number<std::uint8_t>(root, 1);
    header_ = message_->reference(root, 2);
    const auto body = message_->number<std::int64_t>(root, 3);
    if (!message_->ok() || header_ == 0 || body < 0 || static_cast<std::uint64_t>(body) > bytes_ - at_)
      return corrupt("a message's body is cut");
    body_ = {data_ + at_, static_cast<std::uint64_t>(body)};
    at_ += body_.bytes;
    return true;
  }

  Result<bool> next_batch() {
    do {
      EAGLET_ASSIGN_OR_RETURN(const bool there, next_message());
      if (!there) return false;
    } while (header_type_ != kBatchHeader);  // dictionaries belong to columns that are passed over
    FlatBuffer& message = *message_;
    if (message.reference(header_, 3) != 0) return not_read("compressed batches");
    batch_ = {};
    row_ = 0;
    const auto rows = message.number<std::int64_t>(header_, 0);
    const std::uint64_t nodes = message.reference(header_, 1), buffers = message.reference(header_, 2);
    if (message.length(nodes, 16) != nodes_ || message.length(buffers, 16) != buffers_ || rows < 0)
      return corrupt("a batch does not fit the schema");
    for (std::size_t i = 0; i < nodes_; ++i) {
      batch_.lengths.push_back(message.at<std::uint64_t>(nodes + 4 + 16 * i));
      batch_.nulls.push_back(message.at<std::uint64_t>(nodes + 4 + 16 * i + 8));
    }
    for (std::size_t i = 0; i < buffers_; ++i) {
      const auto offset = message.at<std::uint64_t>(buffers + 4 + 16 * i);
      const auto bytes = message.at<std::uint64_t>(buffers + 4 + 16 * i + 8);
      if (offset > body_.bytes || bytes > body_.bytes - offset) return corrupt("a buffer leaves its batch");
      batch_.buffers.push_back({body_.data + offset, bytes});
    }
    if (!message.ok()) return corrupt("a batch is damaged");
    batch_.rows = static_cast<std::uint64_t>(rows);
    EAGLET_RETURN_IF_ERROR(check_list(*ids_));
    EAGLET_RETURN_IF_ERROR(check_list(*mask_));
    for (const Column* column : texts_) EAGLET_RETURN_IF_ERROR(check_offsets(*column));
    return true;
  }

  const Span& buffer(const Column& column, std::size_t i) const {
    return batch_.buffers[column.first_buffer + i];
  }

  Status check_offsets(const Column& column) const {
    const bool large = column.type == kLargeList || column.type == kLargeUtf8;
    const std::uint64_t width = large ? 8 : 4;
    if (batch_.lengths[column.first_node] != batch_.rows ||
        (batch_.rows > 0 && batch_.rows >= buffer(column, 1).bytes / width))
      return corrupt(fmt::format("the column {} has not one entry a row", column.name));
    if (batch_.nulls[column.first_node] != 0 && buffer(column, 0).bytes < (batch_.rows + 7) / 8)
      return corrupt(fmt::format("the column {} is cut", column.name));
    return {};
  }
  Status check_list(const Column& column) const {
    EAGLET_RETURN_IF_ERROR(check_offsets(column));
    const Column& item = column.children.front();
    const std::uint64_t count = batch_.lengths[item.first_node];
    const std::uint64_t bits = item.type == kBool ? 1 : static_cast<std::uint64_t>(item.bit_width);
    if (batch_.nulls[item.first_node] != 0)
      return Status(StatusCode::kDataLoss,
                    fmt::format("the column {} has entries without a number", column.name));
    if (count > buffer(item, 1).bytes * 8 / bits)
      return corrupt(fmt::format("the column {} is cut", column.name));
    return {};
  }
  bool is_null(const Column& column, std::uint64_t row) const {
    return batch_.nulls[column.first_node] != 0 && !bit_of(buffer(column, 0), row);
  }
  /// From where to where row `row` of a list or text lies.
  std::pair<std::uint64_t, std::uint64_t> range_of(const Column& column, std::uint64_t row) const {
    const Span& offsets = buffer(column, 1);
    if (column.type == kLargeList || column.type == kLargeUtf8)
      return {value_of<std::uint64_t>(offsets, row), value_of<std::uint64_t>(offsets, row + 1)};
    return {value_of<std::uint32_t>(offsets, row), value_of<std::uint32_t>(offsets, row + 1)};
  }
  std::int64_t number_at(const Column& item, std::uint64_t i) const {
    const Span& values = buffer(item, 1);
    if (item.type == kBool) return bit_of(values, i) ? 1 : 0;
    switch (item.bit_width) {
      case 8:
        return item.is_signed ? value_of<std::int8_t>(values, i) : value_of<std::uint8_t>(values, i);
      case 16:
        return item.is_signed ? value_of<std::int16_t>(values, i) : value_of<std::uint16_t>(values, i);
      case 32:
        return item.is_signed ? value_of<std::int32_t>(values, i) : value_of<std::uint32_t>(values, i);
      default:
        return value_of<std::int64_t>(values, i);
    }
  }

  Status add_list(const Column& column, std::uint64_t row, std::string* line) const {
    *line += fmt::format("\"{}\":[", column.name);
    if (!is_null(column, row)) {
      const auto [from, to] = range_of(column, row);
      const Column& item = column.children.front();
      if (from > to || to > batch_.lengths[item.first_node] || to - from > kMostRowTokens)
        return corrupt(fmt::format("a row of {} leaves the column", column.name));
      for (std::uint64_t i = from; i < to; ++i) {
        if (i > from) *line += ',';
        fmt::format_to(std::back_inserter(*line), "{}", number_at(item, i));
      }
    }
    *line += ']';
    return {};
  }
  Status write_row(std::uint64_t row, std::string* line) const {
    *line = "{";
    EAGLET_RETURN_IF_ERROR(add_list(*ids_, row, line));
    *line += ',';
    EAGLET_RETURN_IF_ERROR(add_list(*mask_, row, line));
    for (const Column* column : texts_) {
      if (is_null(*column, row)) continue;
      const auto [from, to] = range_of(*column, row);
      const Span& characters = buffer(*column, 2);
      if (from > to || to > characters.bytes)
        return corrupt(fmt::format("a row of {} leaves the column", column->name));
      const std::string text(reinterpret_cast<const char*>(characters.data + from), to - from);
      *line += fmt::format(",\"{}\":{}", column->name, json_line(Json(text)));
    }
    *line += '}';
    return {};
  }

  const std::byte* data_;
  std::uint64_t bytes_, at_ = 0;
  std::optional<FlatBuffer> message_;
  std::uint8_t header_type_ = 0;
  std::uint64_t header_ = 0;
  Span body_;
  std::vector<Column> columns_;
  const Column *ids_ = nullptr, *mask_ = nullptr;
  std::vector<const Column*> texts_;
  std::size_t nodes_ = 0, buffers_ = 0;
  Batch batch_;
  std::uint64_t row_ = 0;
};

class ArrowRows : public RowSource {
 public:
  explicit ArrowRows(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  const char* unit() const override { return "row"; }
  Result<bool> next(RowText* row) override {
    for (;;) {
      if (!stream_) {
        if (file_at_ == paths_.size()) return false;
        EAGLET_RETURN_IF_ERROR(open_file());
      }
      const auto there = stream_->next(&row->text);
      if (!there.ok()) return there.status().at(paths_[file_at_]);
      if (*there) break;
      stream_.reset();
      ++file_at_;
    }
    row->number = ++number_;
    row->unfinished = false;
    return true;
  }
  Status open_file() {
    EAGLET_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(paths_[file_at_]));
    file_.emplace(std::move(file));
    stream_.emplace(file_->data(), file_->bytes());
    return stream_->begin().at(paths_[file_at_]);
  }

 private:
  std::vector<std::string> paths_;
  std::size_t file_at_ = 0;
  std::optional<MappedFile> file_;
  std::optional<ArrowStream> stream_;
  std::uint64_t number_ = 0;
};

}  // namespace arrow
}  // namespace

Result<std::vector<std::string>> arrow_files(const std::string& path) {
  std::vector<std::string> files;
  if (!is_directory(path)) return files;
  if (const auto state = read_json_file(path + "/state.json"); state.ok()) {
    const Json* listed = json_field(*state, "_data_files");
    for (const Json& entry : listed != nullptr && listed->is_array() ? *listed : Json::array()) {
      const Json* name = json_field(entry, "filename");
      if (name == nullptr || !name->is_string()) continue;
      const auto text = name->get<std::string>();
      if (text.empty() || text.find('/') != std::string::npos)
        return Status(StatusCode::kDataLoss, "state.json names a file that is no plain name: " + text, path);
      files.push_back(path + "/" + text);
    }
    if (!files.empty()) return files;
  }
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(path));
  for (const std::string& name : names)
    if (name.ends_with(".arrow")) files.push_back(path + "/" + name);
  return files;
}

Result<std::unique_ptr<RowSource>> open_arrow_rows(const std::vector<std::string>& paths) {
  auto rows = std::make_unique<arrow::ArrowRows>(paths);
  EAGLET_RETURN_IF_ERROR(rows->open_file());  // what it is not is said at once
  return std::unique_ptr<RowSource>(std::move(rows));
}

Result<std::vector<std::string>> parse_arrow_stream(const std::byte* data, std::uint64_t bytes) {
  arrow::ArrowStream stream(data, bytes);
  EAGLET_RETURN_IF_ERROR(stream.begin());
  std::vector<std::string> lines;
  for (std::string line;;) {
    EAGLET_ASSIGN_OR_RETURN(const bool there, stream.next(&line));
    if (!there) return lines;
    lines.push_back(line);
  }
}

}  // namespace eaglet
