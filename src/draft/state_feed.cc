#include "draft/state_feed.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "device/host_copy.h"
#include "ops/rows.h"
#include "ops/stored_states.h"

namespace eaglet::draft_core {
namespace {

constexpr std::uint64_t kScaleAlign = 16;

// Where the scales of n rows begin in their slot.
std::uint64_t scales_at(std::uint64_t number_bytes) {
  return (number_bytes + kScaleAlign - 1) / kScaleAlign * kScaleAlign;
}

std::uint64_t lot_bytes(StateForm form, std::int64_t layers, std::int64_t hidden, std::int64_t n) {
  const auto numbers = static_cast<std::uint64_t>(n * layers * hidden * bytes_of_number(form));
  return form == StateForm::kFp8 ? scales_at(numbers) + static_cast<std::uint64_t>(n * layers) * sizeof(float)
                                 : numbers;
}

StateForm form_of(const DraftInputs& inputs) {
  return inputs.states != nullptr ? inputs.states->form() : StateForm::kF32;
}

const void* source_of(const DraftInputs& inputs) {
  return inputs.states != nullptr ? static_cast<const void*>(inputs.states) : inputs.aux_hidden_states;
}

// Puts bytes one after another into a slot, a pinned half at a time.
class SlotWriter {
 public:
  SlotWriter(DeviceFeed& feed, int slot) : feed_(feed), slot_(slot) {}
  // Room for at least `least` bytes, in *room; taken() says how many were used.
  char* space(std::uint64_t least, std::uint64_t* room) {
    if (half_ != nullptr && DeviceFeed::kHalfBytes - used_ < least) flush();
    if (half_ == nullptr) half_ = static_cast<char*>(feed_.half());
    *room = DeviceFeed::kHalfBytes - used_;
    return half_ + used_;
  }
  void taken(std::uint64_t bytes) { used_ += bytes; }
  void write(const void* from, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      std::uint64_t room = 0;
      char* to = space(1, &room);
      const std::uint64_t now = std::min(bytes - done, room);
      std::copy_n(static_cast<const char*>(from) + done, now, to);
      taken(now);
      done += now;
    }
  }
  void flush() {
    if (used_ > 0) feed_.send_half(slot_, at_, used_);
    at_ += std::exchange(used_, 0);
    half_ = nullptr;
  }
  void skip_to(std::uint64_t at) {
    flush();
    at_ = at;
  }

 private:
  DeviceFeed& feed_;
  const int slot_;
  char* half_ = nullptr;
  std::uint64_t used_ = 0, at_ = 0;
};

}  // namespace

std::uint64_t StateFeed::Sizes::slot_bytes() const {
  return std::max<std::uint64_t>(
      {lot_bytes(form, layers, hidden, keys), lot_bytes(form, 1, hidden, teachers), 1});
}

Result<std::unique_ptr<StateFeed>> StateFeed::open(Accelerator* device, const Sizes& sizes) {
  std::unique_ptr<StateFeed> feed(new StateFeed(device, sizes));
  EAGLET_ASSIGN_OR_RETURN(feed->feed_, device->open_feed(sizes.slot_bytes()));
  feed->scales_.resize(static_cast<std::size_t>(
      sizes.form == StateForm::kFp8 ? std::max(sizes.keys * sizes.layers, sizes.teachers) : 0));
  for (Lot& lot : feed->ahead_)
    lot.rows.reserve(static_cast<std::size_t>(std::max(sizes.keys, sizes.teachers)));
  return feed;
}

bool StateFeed::is(const Lot& lot, const DraftInputs& inputs, const std::vector<std::int32_t>& rows,
                   std::int64_t n, bool captured) const {
  return lot.source == source_of(inputs) && lot.captured == captured && lot.form == form_of(inputs) &&
         static_cast<std::int64_t>(lot.rows.size()) == n &&
         std::equal(lot.rows.begin(), lot.rows.end(), rows.begin());
}

Status StateFeed::send(const DraftInputs& inputs, const std::vector<std::int32_t>& rows, std::int64_t n,
                       bool captured) {
  if (n == 0 || ahead_count_ == DeviceFeed::kSlots) return {};
  for (int i = 0; i < ahead_count_; ++i)
    if (is(ahead_[static_cast<std::size_t>(i)], inputs, rows, n, captured)) return {};
  const std::int64_t layers = captured ? sizes_.layers : 1,
                     row_bytes = layers * sizes_.hidden * bytes_of_number(form_of(inputs));
  if (lot_bytes(form_of(inputs), layers, sizes_.hidden, n) > sizes_.slot_bytes() ||
      row_bytes > static_cast<std::int64_t>(DeviceFeed::kHalfBytes))
    return {};
  Lot& lot = ahead_[static_cast<std::size_t>(ahead_count_)];
  lot.source = source_of(inputs);
  lot.captured = captured;
  lot.form = form_of(inputs);
  lot.rows.assign(rows.begin(), rows.begin() + n);
  lot.slot = next_slot_;
  const double begin = monotonic_seconds();
  EAGLET_RETURN_IF_ERROR(fill(inputs, lot));
  if (device_->idle()) starved_seconds_ += monotonic_seconds() - begin;
  next_slot_ = 1 - next_slot_;
  ++ahead_count_;
  return {};
}

// Lot rows [at, at + n), batch rows from `first` on.
Status StateFeed::read(const DraftInputs& inputs, const Lot& lot, std::int64_t at, std::int64_t first,
                       std::int64_t n, char* to) {
  if (inputs.states == nullptr) {
    const std::int64_t width = width_of(lot);
    const float* from = (lot.captured ? inputs.aux_hidden_states : inputs.last_hidden_states) + first * width;
    copy_with_threads(to, from, static_cast<std::uint64_t>(n * width) * sizeof(float));
    return {};
  }
  if (lot.form != StateForm::kF32)
    return inputs.states->read_stored(lot.captured, first, n,
                                      {to, lot.form == StateForm::kFp8 ? scales_.data() + at : nullptr,
                                       static_cast<std::int64_t>(lot.rows.size())});
  auto* floats = reinterpret_cast<float*>(to);
  return lot.captured ? inputs.states->read_aux(first, n, floats)
                      : inputs.states->read_last(first, n, floats);
}

Status StateFeed::fill(const DraftInputs& inputs, const Lot& lot) {
  const auto n = static_cast<std::int64_t>(lot.rows.size());
  const auto row_bytes = static_cast<std::uint64_t>(width_of(lot) * bytes_of_number(lot.form));
  const auto num_scales = lot.form == StateForm::kFp8 ? static_cast<std::size_t>(n * layers_of(lot)) : 0;
  scales_.resize(std::max(scales_.size(), num_scales));
  feed_->open_slot(lot.slot);
  SlotWriter writer(*feed_, lot.slot);
  const auto send_run = [&](std::int64_t at, std::int64_t first, std::int64_t rows) -> Status {
    for (std::int64_t done = 0; done < rows;) {
      std::uint64_t room = 0;
      char* to = writer.space(row_bytes, &room);
      const auto now = std::min<std::int64_t>(rows - done, static_cast<std::int64_t>(room / row_bytes));
      EAGLET_RETURN_IF_ERROR(read(inputs, lot, at + done, first + done, now, to));
      writer.taken(static_cast<std::uint64_t>(now) * row_bytes);
      done += now;
    }
    return {};
  };
  EAGLET_RETURN_IF_ERROR(each_run(inputs.document_ids, lot.rows, n, send_run));
  if (num_scales > 0) {
    writer.skip_to(scales_at(static_cast<std::uint64_t>(n) * row_bytes));
    writer.write(scales_.data(), num_scales * sizeof(float));
  }
  writer.flush();
  feed_->close_slot(lot.slot);
  return {};
}

Result<bool> StateFeed::fetch(const DraftInputs& inputs, const std::vector<std::int32_t>& rows,
                              std::int64_t n, bool captured, float* to) {
  if (n == 0) return true;
  if (ahead_count_ > 0 && !is(ahead_[0], inputs, rows, n, captured)) ahead_count_ = 0;
  if (ahead_count_ == 0) EAGLET_RETURN_IF_ERROR(send(inputs, rows, n, captured));
  if (ahead_count_ == 0) return false;
  const Lot& lot = ahead_[0];
  widen(lot, feed_->use(lot.slot), to);
  feed_->done(lot.slot);
  std::swap(ahead_[0], ahead_[1]);
  --ahead_count_;
  return true;
}

void StateFeed::widen(const Lot& lot, const void* from, float* to) const {
  const auto n = static_cast<std::int64_t>(lot.rows.size());
  const std::int64_t layers = layers_of(lot), width = width_of(lot);
  if (lot.form == StateForm::kF32) {
    gather_rows(n, width, static_cast<const float*>(from), nullptr, to);
  } else if (lot.form == StateForm::kBF16) {
    widen_bf16(n, width, static_cast<const std::uint16_t*>(from), width, to, width);
  } else {
    const auto* numbers = static_cast<const std::uint8_t*>(from);
    const auto* scales =
        reinterpret_cast<const float*>(numbers + scales_at(static_cast<std::uint64_t>(n * width)));
    for (std::int64_t layer = 0; layer < layers; ++layer)
      widen_fp8(n, sizes_.hidden, scales + layer * n, numbers + layer * sizes_.hidden, width,
                to + layer * sizes_.hidden, width);
  }
}

}  // namespace eaglet::draft_core
