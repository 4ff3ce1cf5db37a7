#include "store/forecast.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "store/shard_format.h"
#include "store/state_codec.h"

namespace eaglet {
namespace {

/// `bytes` in the unit that human_bytes() chooses for `like`, so that two numbers can be compared by eye.
std::string bytes_like(std::uint64_t bytes, std::uint64_t like) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  double scale = 1;
  for (; static_cast<double>(like) >= scale * 1000 && unit + 1 < std::size(kUnits); ++unit) scale *= 1000;
  return fmt::format("{:.{}f} {}", static_cast<double>(bytes) / scale, unit == 0 ? 0 : 2, kUnits[unit]);
}

/// Adds documents to shards as DirectoryWriter does.
class ShardCounter {
 public:
  ShardCounter(const StoreHeader& header, std::uint64_t shard_bytes)
      : header_bytes_(encode_shard_header(header).size()), shard_bytes_(shard_bytes) {}

  void add(std::uint64_t record_bytes, std::uint64_t states_bytes, std::uint64_t name_bytes) {
    if (documents_ > 0 && end_ + states_bytes > shard_bytes_) finish();
    if (documents_ == 0) end_ = header_bytes_;
    ++documents_;
    end_ += record_bytes;
    names_bytes_ += name_bytes;
  }
  void finish() {
    if (documents_ == 0) return;
    total_ += end_ + round_up(documents_ * sizeof(RecordHead) + names_bytes_, 8) + sizeof(ShardFooter);
    ++shards_;
    documents_ = names_bytes_ = end_ = 0;
  }
  std::uint64_t total() const { return total_; }
  std::int64_t shards() const { return shards_; }

 private:
  std::uint64_t header_bytes_, shard_bytes_;
  std::uint64_t documents_ = 0, end_ = 0, names_bytes_ = 0, total_ = 0;
  std::int64_t shards_ = 0;
};

}  // namespace

namespace {

std::uint64_t payload_bytes(const StoreHeader& header, const DocumentSize& document,
                            const StoreWriterOptions& options) {
  const bool dropped = options.drop_unsupervised && document.aux_rows >= 0;
  const bool planes = options.encoding == StateEncoding::kPlanes;
  const auto form = static_cast<std::uint8_t>(planes ? StateEncoding::kRaw : options.encoding);
  const std::uint64_t bytes =
      fixed_payload_bytes(header, static_cast<std::uint8_t>(form | (dropped ? kDroppedRows : 0)),
                          dropped ? document.aux_rows : document.tokens, dropped ? document.last_rows : 0);
  return planes ? static_cast<std::uint64_t>(static_cast<double>(bytes) * kLosslessShare) : bytes;
}

}  // namespace

Forecast forecast_store(const StoreHeader& header, const std::vector<DocumentSize>& documents,
                        const StoreWriterOptions& options) {
  Forecast forecast;
  forecast.bytes_per_token = static_cast<std::uint64_t>(header.slots() * header.hidden) * 2;
  forecast.exact = options.encoding != StateEncoding::kPlanes;
  ShardCounter shards(header, options.shard_bytes);
  for (const DocumentSize& document : documents) {
    ++forecast.documents;
    forecast.tokens += document.tokens;
    RecordHead head = {};
    head.tokens = static_cast<std::uint32_t>(document.tokens);
    head.name_bytes = static_cast<std::uint16_t>(document.name_bytes);
    const std::uint64_t unpacked = static_cast<std::uint64_t>(document.tokens) * forecast.bytes_per_token;
    const std::uint64_t payload = payload_bytes(header, document, options);
    forecast.state_bytes += payload;
    shards.add(head.states_offset() + round_up(payload, kShardAlignment), unpacked,
               static_cast<std::uint64_t>(document.name_bytes));
  }
  shards.finish();
  forecast.shards = shards.shards();
  forecast.needed_bytes = shards.total();
  return forecast;
}

std::string forecast_text(const Forecast& forecast, std::uint64_t free_bytes) {
  std::string text =
      fmt::format("needs about {}, free {}", human_bytes(static_cast<double>(forecast.needed_bytes)),
                  human_bytes(static_cast<double>(free_bytes)));
  if (forecast.needed_bytes > free_bytes)
    text += ", short by about " + bytes_like(forecast.needed_bytes - free_bytes, forecast.needed_bytes);
  return text;
}

Status check_forecast(const Forecast& forecast, std::uint64_t free_bytes, const std::string& store_path,
                      bool force) {
  if (force || forecast.needed_bytes <= free_bytes) return Status();
  return Status(
      StatusCode::kNoSpace,
      fmt::format("the states of {} documents, {} tokens: {}", forecast.documents, forecast.tokens,
                  forecast_text(forecast, free_bytes)),
      store_path,
      "free some space; or capture fewer layers (--target-layer-ids), cut documents shorter (--max-seq-len), "
      "use fewer conversations, store them smaller (--store-dtype fp8, --drop-unsupervised), make states on "
      "demand instead of storing all: train in parts with "
      "--drop-states between them; or go on with --force");
}

}  // namespace eaglet
