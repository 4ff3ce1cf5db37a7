// States that are sent ahead, as they are stored: the same bits as states that came as fp32 when they were
// wanted, whatever was sent ahead and for nothing.

#include <cstring>

#include "draft/golden_checks_test.h"
#include "draft/state_feed.h"
#include "ops/device_test.h"
#include "ops/stored_states.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

using test::accelerator;

// The states of a golden file as a store would keep them, and what these are as fp32.
class Stored : public StateRows {
 public:
  /// `times` the file's states.
  Stored(const golden::Golden& g, StateForm form, float times = 1)
      : form_(form), rows_(g.input_ids.size()), times_(times) {
    keep(g.aux, g.weights.config.target_hidden, &aux_);
    keep(g.last, g.weights.config.target_hidden, &last_);
  }
  Status read_aux(std::int64_t first, std::int64_t n, float* to) override { return copy(aux_, first, n, to); }
  Status read_last(std::int64_t first, std::int64_t n, float* to) override {
    return copy(last_, first, n, to);
  }
  StateForm form() const override { return form_; }
  Status read_stored(bool captured, std::int64_t first, std::int64_t n, const StoredRowsTo& to) override {
    if (fails) return Status(StatusCode::kDataLoss, "a page of the store is gone");
    const States& from = captured ? aux_ : last_;
    const std::size_t row_bytes = from.bytes.size() / rows_;
    std::memcpy(to.numbers, from.bytes.data() + static_cast<std::size_t>(first) * row_bytes,
                static_cast<std::size_t>(n) * row_bytes);
    for (std::int64_t layer = 0; form_ == StateForm::kFp8 && layer < from.layers; ++layer)
      for (std::int64_t row = 0; row < n; ++row)
        to.scales[layer * to.scales_ld + row] =
            from.scales[static_cast<std::size_t>((first + row) * from.layers + layer)];
    return {};
  }
  const std::vector<float>& aux() const { return aux_.widened; }
  const std::vector<float>& last() const { return last_.widened; }
  bool fails = false;

 private:
  struct States {
    std::int64_t layers = 0;
    std::vector<std::byte> bytes;
    std::vector<float> scales;  // [rows, layers]
    std::vector<float> widened;
  };
  void keep(const std::vector<float>& from, std::int64_t hidden, States* to) {
    to->layers = static_cast<std::int64_t>(from.size() / rows_) / hidden;
    to->bytes.resize(from.size() * static_cast<std::size_t>(bytes_of_number(form_)));
    to->widened.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const bool new_row = i % static_cast<std::size_t>(hidden) == 0;
      if (new_row) to->scales.push_back(0.01f + 0.001f * static_cast<float>(to->scales.size() % 7));
      const float scale = to->scales.back();
      if (form_ == StateForm::kFp8) {
        const std::uint8_t byte = f32_to_f8e4m3(times_ * from[i] / scale);
        to->bytes[i] = static_cast<std::byte>(byte);
        to->widened[i] = bf16_to_f32(f32_to_bf16(f8e4m3_table()[byte] * scale));
      } else {
        const std::uint16_t bits = f32_to_bf16(times_ * from[i]);
        std::memcpy(to->bytes.data() + 2 * i, &bits, 2);
        to->widened[i] = bf16_to_f32(bits);
      }
    }
  }
  Status copy(const States& from, std::int64_t first, std::int64_t n, float* to) const {
    const auto width = static_cast<std::int64_t>(from.widened.size() / rows_);
    std::copy_n(from.widened.begin() + first * width, n * width, to);
    return {};
  }
  const StateForm form_;
  const std::size_t rows_;
  const float times_;
  States aux_, last_;
};

class StateFeedOnDevice : public test::OnDevice {
 protected:
  const golden::Golden g_ = golden::load(EAGLET_TESTDATA "/golden/eagle3_decay_ttt5.safetensors");

  std::unique_ptr<DraftModel> model(StateForm form, std::int64_t chunk_rows) const {
    TttOptions options = g_.options;
    options.chunk_rows = chunk_rows;
    options.states = form;
    options.row_sampling = 0.7;
    auto made = DraftModel::create(g_.weights, g_.verifier(), options, g_.inputs().rows, true, accelerator());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  DraftInputs in_memory(const Stored& states) const {
    DraftInputs inputs = g_.inputs();
    inputs.aux_hidden_states = states.aux().data();
    inputs.last_hidden_states = states.last().data();
    return inputs;
  }
  DraftInputs as_stored(Stored& states) const {
    DraftInputs inputs = g_.inputs();
    inputs.aux_hidden_states = inputs.last_hidden_states = nullptr;
    inputs.states = &states;
    return inputs;
  }
  static std::vector<float> gradients(DraftModel& model, const DraftInputs& inputs, std::uint64_t seed) {
    model.set_sampling_seed(seed);
    const auto sums = model.step(inputs, true);
    EXPECT_TRUE(sums.ok()) << sums.status().message();
    return model.gradients().to_host();
  }
};

TEST_F(StateFeedOnDevice, StoredStatesSentAheadGiveTheBitsOfFp32) {
  for (const StateForm form : {StateForm::kBF16, StateForm::kFp8})
    for (const std::int64_t chunk_rows : {7, 1000}) {
      SCOPED_TRACE(testing::Message() << bytes_of_number(form) << " bytes, chunks of " << chunk_rows);
      Stored states(g_, form), again(g_, form);
      const auto plain = model(StateForm::kF32, chunk_rows), ahead = model(form, chunk_rows);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const std::vector<float> want = gradients(*plain, in_memory(states), step);
        EXPECT_EQ(gradients(*ahead, as_stored(step % 2 == 0 ? states : again), step), want);
        ahead->look_ahead(as_stored(step % 2 == 0 ? again : states), step + 1);
      }
    }
}

// What was sent ahead for nothing does not come into another step: another batch, other rows of it, a step
// that only measures, a step that failed.
TEST_F(StateFeedOnDevice, WhatWasSentForNothingIsForgotten) {
  Stored states(g_, StateForm::kBF16), other(g_, StateForm::kBF16, 0.5f);
  const auto plain = model(StateForm::kF32, 7), ahead = model(StateForm::kBF16, 7);
  const std::vector<float> want = gradients(*plain, in_memory(states), 1);
  ahead->look_ahead(as_stored(other), 1);
  EXPECT_EQ(gradients(*ahead, as_stored(states), 1), want);
  ahead->look_ahead(as_stored(states), 2);  // draws other rows
  EXPECT_EQ(gradients(*ahead, as_stored(states), 1), want);
  ahead->look_ahead(as_stored(states), 1);
  const auto measured = ahead->step(in_memory(other), false);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(measured->depth[0].loss, plain->step(in_memory(other), false)->depth[0].loss);
  EXPECT_EQ(gradients(*ahead, as_stored(states), 1), want);
  states.fails = true;
  ahead->look_ahead(as_stored(states), 1);  // told by the step
  EXPECT_EQ(ahead->step(as_stored(states), true).status().code(), StatusCode::kDataLoss);
  states.fails = false;
  EXPECT_EQ(gradients(*ahead, as_stored(states), 1), want);
}

// As many rows, of them one another.
TEST_F(StateFeedOnDevice, ALotIsKnownByItsRows) {
  Stored states(g_, StateForm::kBF16);
  TttOptions options = g_.options;
  options.states = StateForm::kBF16;
  const auto made = [&] {
    return std::move(
        *DraftModel::create(g_.weights, g_.verifier(), options, g_.inputs().rows, true, accelerator()));
  };
  const auto plain = made(), ahead = made();
  const auto first = std::find(g_.document_ids.begin(), g_.document_ids.end(), g_.document_ids[0]);
  const auto begin = static_cast<std::size_t>(first - g_.document_ids.begin());
  std::size_t end = begin;
  while (end < g_.document_ids.size() && g_.document_ids[end] == g_.document_ids[begin]) ++end;
  ASSERT_GE(end - begin, 5u);
  std::vector<std::uint8_t> mask(g_.loss_mask.size(), 0), shifted = mask;
  mask[end - 1] = shifted[end - 1] = mask[begin + 2] = shifted[begin + 1] = 1;
  DraftInputs inputs = as_stored(states), other = inputs;
  inputs.loss_mask = mask.data();
  other.loss_mask = shifted.data();
  const std::vector<float> want = gradients(*plain, inputs, 0);
  ahead->look_ahead(other, 0);
  EXPECT_EQ(gradients(*ahead, inputs, 0), want);
}

// More than a pinned half takes, its parts one after another, the scales behind them.
TEST_F(StateFeedOnDevice, ALargeLotGoesInParts) {
  constexpr std::int64_t kRows = 40, kLayers = 2, kHidden = 120000;
  class Large : public StateRows {
   public:
    static std::uint8_t number(std::int64_t row, std::int64_t i) {
      return static_cast<std::uint8_t>((row * 31 + i * 7 + i / 1000) % 0x70);
    }
    static float scale(std::int64_t row, std::int64_t layer) {
      return 0.5f + static_cast<float>(row * kLayers + layer);
    }
    Status read_aux(std::int64_t, std::int64_t, float*) override { return no_floats(); }
    Status read_last(std::int64_t, std::int64_t, float*) override { return no_floats(); }
    StateForm form() const override { return StateForm::kFp8; }
    Status read_stored(bool, std::int64_t first, std::int64_t n, const StoredRowsTo& to) override {
      auto* numbers = static_cast<std::uint8_t*>(to.numbers);
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t i = 0; i < kLayers * kHidden; ++i)
          numbers[row * kLayers * kHidden + i] = number(first + row, i);
        for (std::int64_t layer = 0; layer < kLayers; ++layer)
          to.scales[layer * to.scales_ld + row] = scale(first + row, layer);
      }
      return {};
    }

   private:
    static Status no_floats() { return Status(StatusCode::kInternal, "not as fp32"); }
  };
  Large states;
  const auto feed =
      draft_core::StateFeed::open(accelerator(), {kLayers, kHidden, StateForm::kFp8, kRows, kRows});
  ASSERT_TRUE(feed.ok()) << feed.status().message();
  const std::vector<std::int32_t> documents(kRows + 3, 0);
  std::vector<std::int32_t> rows;
  for (std::int32_t row = 3; row < kRows + 3; ++row) rows.push_back(row);
  DraftInputs inputs;
  inputs.document_ids = documents.data();
  inputs.states = &states;
  PlacedArray<float> to;
  ASSERT_TRUE(to.take(kRows * kLayers * kHidden, accelerator()).ok());
  const auto fetched = (*feed)->fetch(inputs, rows, kRows, true, to.data());
  ASSERT_TRUE(fetched.ok() && *fetched);
  const std::vector<float> values = to.to_host();
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t i = 0; i < kLayers * kHidden; i += 97) {
      const float scale = Large::scale(row + 3, i / kHidden);
      ASSERT_EQ(values[static_cast<std::size_t>(row * kLayers * kHidden + i)],
                bf16_to_f32(f32_to_bf16(f8e4m3_table()[Large::number(row + 3, i)] * scale)))
          << row << " " << i;
    }
}

// Memory was taken for smaller forms: they come the old way.
TEST_F(StateFeedOnDevice, StatesLargerThanTheirSlotStillCome) {
  Stored states(g_, StateForm::kBF16);
  const auto plain = model(StateForm::kF32, 1000), small = model(StateForm::kFp8, 1000);
  const std::vector<float> want = gradients(*plain, in_memory(states), 1);
  EXPECT_EQ(gradients(*small, as_stored(states), 1), want);
  EXPECT_EQ(gradients(*small, in_memory(states), 1), want);
  EXPECT_LT(small->memory_bytes(), plain->memory_bytes());
}

}  // namespace
}  // namespace eaglet
