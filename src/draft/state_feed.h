#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/accelerator.h"
#include "draft/draft_model.h"

namespace eaglet::draft_core {

/// States of rows on their way to a device, as small as they are stored: sent ahead by a stream of their own
/// while it computes, widened to fp32 there when the ops want them. Two lots at a time, in the order in which
/// they are fetched.
class StateFeed {
 public:
  struct Sizes {
    std::int64_t layers = 0, hidden = 0;  // captured layers; width of a state
    StateForm form = StateForm::kF32;
    std::int64_t keys = 0, teachers = 0;  // most rows of a lot
    std::uint64_t slot_bytes() const;
    std::uint64_t bytes() const { return DeviceFeed::kSlots * slot_bytes(); }
  };
  static Result<std::unique_ptr<StateFeed>> open(Accelerator* device, const Sizes& sizes);

  /// Begins to send the rows that fetch() is asked for next, or after the lot that is ahead already. The
  /// states were read when it returns. Does nothing when two lots are ahead, or this one already is.
  Status send(const DraftInputs& inputs, const std::vector<std::int32_t>& rows, std::int64_t n,
              bool captured);
  /// to [n, width of the lot] = these rows as fp32, in order with the ops; sent now unless they are ahead.
  /// What is ahead of other rows is dropped. False: they are more than a slot takes, and `to` is as it was.
  Result<bool> fetch(const DraftInputs& inputs, const std::vector<std::int32_t>& rows, std::int64_t n,
                     bool captured, float* to);
  /// Forgets what is ahead.
  void drop() { ahead_count_ = 0; }
  std::uint64_t bytes() const { return sizes_.bytes(); }
  /// Seconds that sending took so far after which the device was found with nothing to do.
  double starved_seconds() const { return starved_seconds_; }

 private:
  struct Lot {
    const void* source = nullptr;  // whose rows
    bool captured = false;
    std::vector<std::int32_t> rows;
    StateForm form = StateForm::kF32;
    int slot = 0;
  };
  StateFeed(Accelerator* device, const Sizes& sizes) : sizes_(sizes), device_(device) {}
  std::int64_t layers_of(const Lot& lot) const { return lot.captured ? sizes_.layers : 1; }
  std::int64_t width_of(const Lot& lot) const { return layers_of(lot) * sizes_.hidden; }
  bool is(const Lot& lot, const DraftInputs& inputs, const std::vector<std::int32_t>& rows, std::int64_t n,
          bool captured) const;
  Status read(const DraftInputs& inputs, const Lot& lot, std::int64_t at, std::int64_t first, std::int64_t n,
              char* to);
  Status fill(const DraftInputs& inputs, const Lot& lot);
  void widen(const Lot& lot, const void* from, float* to) const;

  const Sizes sizes_;
  Accelerator* const device_;
  double starved_seconds_ = 0;
  std::unique_ptr<DeviceFeed> feed_;
  std::array<Lot, DeviceFeed::kSlots> ahead_;  // the first ahead_count_ of them, the next one to fetch first
  int ahead_count_ = 0, next_slot_ = 0;
  std::vector<float> scales_;  // of the lot that is filled
};

/// Calls body(first, n) for runs of rows that follow one another in their document; stops at the first
/// failure.
template <class Body>
Status each_run(const std::int32_t* document_ids, const std::vector<std::int32_t>& rows, std::int64_t n,
                const Body& body) {
  for (std::int64_t i = 0; i < n;) {
    std::int64_t end = i + 1;
    const auto next_in_document = [&] {
      const std::int32_t before = rows[static_cast<std::size_t>(end - 1)],
                         row = rows[static_cast<std::size_t>(end)];
      return row == before + 1 && document_ids[row] == document_ids[before];
    };
    while (end < n && next_in_document()) ++end;
    EAGLET_RETURN_IF_ERROR(body(i, static_cast<std::int64_t>(rows[static_cast<std::size_t>(i)]), end - i));
    i = end;
  }
  return {};
}

}  // namespace eaglet::draft_core
