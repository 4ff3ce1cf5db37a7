#include <algorithm>

#include "draft/draft_core.h"
#include "ops/rows.h"

namespace eaglet::draft_core {
namespace {

constexpr std::int64_t kStagedRows = 256;

// On a device rows go through the host's memory, a few at a time.
Status read_run(StateRows& states, std::int64_t first, std::int64_t n, std::int64_t width, bool captured,
                Core* core, float* to) {
  const auto read = [&](std::int64_t from, std::int64_t rows, float* into) {
    return captured ? states.read_aux(from, rows, into) : states.read_last(from, rows, into);
  };
  if (!core->on_device()) return read(first, n, to);
  float* staging = core->copies.staging.data();
  for (std::int64_t done = 0; done < n; done += kStagedRows) {
    const std::int64_t rows = std::min(kStagedRows, n - done);
    EAGLET_RETURN_IF_ERROR(read(first + done, rows, staging));
    core->device->to_device(to + done * width, staging,
                            static_cast<std::uint64_t>(rows * width) * sizeof(float));
  }
  return {};
}

void copy_run(const float* states, std::int64_t first, std::int64_t n, std::int64_t width, Core* core,
              float* to) {
  core->device->to_device(to, states + first * width, static_cast<std::uint64_t>(n * width) * sizeof(float));
}

// The teacher's rows in the draft's order.
Status place_teacher_rows(const DraftVocab& vocab, const float* head, Core* core) {
  const std::int64_t width = core->dims.Ht;
  PlacedArray<float>& rows = core->copies.teacher_rows;
  EAGLET_RETURN_IF_ERROR(rows.take(vocab.size() * width, core->device));
  std::vector<float>& staging = core->copies.staging;
  for (std::int64_t first = 0; first < vocab.size(); first += kStagedRows) {
    const std::int64_t n = std::min(kStagedRows, vocab.size() - first);
    gather_rows(n, width, head, vocab.target_ids.data() + first, staging.data());
    rows.write(first * width, n * width, staging.data());
  }
  return {};
}

template <class T>
Status copy_in(const T* from, std::int64_t n, Core* core, PlacedArray<T>* to, const T** at) {
  EAGLET_RETURN_IF_ERROR(to->take(n, core->device));
  to->write(0, n, from);
  *at = to->data();
  return {};
}

}  // namespace

Status fetch_states(const DraftInputs& inputs, const std::vector<std::int32_t>& rows, std::int64_t n,
                    std::int64_t width, bool captured, Core* core, float* to) {
  const float* in_memory = captured ? inputs.aux_hidden_states : inputs.last_hidden_states;
  if (inputs.states == nullptr && !core->on_device()) {
    gather_rows(n, width, in_memory, rows.data(), to);
    return {};
  }
  if (core->feed != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(const bool fed, core->feed->fetch(inputs, rows, n, captured, to));
    if (fed) return {};
  }
  return each_run(inputs.document_ids, rows, n, [&](std::int64_t at, std::int64_t first, std::int64_t run) {
    if (inputs.states != nullptr)
      return read_run(*inputs.states, first, run, width, captured, core, to + at * width);
    copy_run(in_memory, first, run, width, core, to + at * width);
    return Status();
  });
}

Status place_constants(const DraftVocab& vocab, Core* core) {
  core->inv_freq = core->rope.inv_freq.data();
  if (!core->on_device()) return {};
  const Dims& d = core->dims;
  DeviceCopies& copies = core->copies;
  copies.staging.resize(static_cast<std::size_t>(kStagedRows * d.Ht * std::max<std::int64_t>(d.A, 1)));
  EAGLET_RETURN_IF_ERROR(copy_in(core->rope.inv_freq.data(),
                                 static_cast<std::int64_t>(core->rope.inv_freq.size()), core,
                                 &copies.inv_freq, &core->inv_freq));
  EAGLET_RETURN_IF_ERROR(
      copy_in(core->verifier.final_norm, d.Ht, core, &copies.final_norm, &core->verifier.final_norm));
  EAGLET_RETURN_IF_ERROR(
      copy_in(core->draft_to_target, vocab.size(), core, &copies.draft_to_target, &core->draft_to_target));
  if (core->weights.embed == nullptr)  // else they are a parameter
    EAGLET_RETURN_IF_ERROR(
        copy_in(core->embed_tokens, d.V * d.H, core, &copies.embed_tokens, &core->embed_tokens));
  if (core->options.teacher_vocab == TeacherVocab::kWhole) return {};
  return place_teacher_rows(vocab, core->verifier.lm_head, core);
}

Result<const float*> whole_head(Core* core) {
  if (!core->on_device()) return core->verifier.lm_head;
  PlacedArray<float>& head = core->copies.whole_head;
  if (!head.on_device()) {
    EAGLET_RETURN_IF_ERROR(head.take(core->dims.V * core->dims.Ht, core->device));
    head.write(0, core->dims.V * core->dims.Ht, core->verifier.lm_head);
  }
  return static_cast<const float*>(head.data());
}

}  // namespace eaglet::draft_core
