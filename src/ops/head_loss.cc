#include "ops/head_loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/bf16_rounding.h"
#include "device/threads.h"
#include "ops/device_ops.h"
#include "ops/linear.h"
#include "ops/loss_row.h"
#include "ops/vector_math.h"

namespace eaglet {
namespace {

// Stacked rows of one chunk: enough for the GEMMs to run near their peak, few enough for the logits to stay
// in a large cache.
constexpr std::int64_t kStackedRows = 288;
constexpr std::int64_t kMinChunk = 16;
constexpr std::int64_t kArgmaxRows = 64;
// Rows of the whole vocabulary's logits made at once.
constexpr std::int64_t kWholeRows = 64;

// Entries [begin[k], end[k]) of step k have their teacher in the chunk; they lie one after another in the
// stacked arrays.
struct Chunk {
  std::int64_t first_teacher = 0, teachers = 0, rows = 0;
  std::vector<std::int64_t>&begin, &end, &offset;
};

void find_entries(const HeadLossInputs& in, std::int64_t first, std::int64_t teachers, Chunk* chunk) {
  chunk->first_teacher = first;
  chunk->teachers = teachers;
  chunk->rows = 0;
  for (std::size_t k = 0; k < in.xs.size(); ++k) {
    const std::vector<std::int32_t>& of = *in.teacher[k];
    chunk->begin[k] = std::lower_bound(of.begin(), of.end(), first) - of.begin();
    chunk->end[k] = std::lower_bound(of.begin(), of.end(), first + teachers) - of.begin();
    chunk->offset[k] = chunk->rows;
    chunk->rows += chunk->end[k] - chunk->begin[k];
  }
}

struct Memory {
  float *teacher_logits, *teacher_p, *stacked_x, *logits, *d_stacked_x, *row_scratch, *whole_logits;
  std::uint16_t* rounded;  // the logits' gradients, where the head's products take them rounded
};

Memory carve(const HeadLossShape& shape, int threads, float* scratch) {
  const std::int64_t chunk = head_loss_chunk(shape), rows = LinearWeight::padded_rows(chunk * shape.steps);
  Memory m;
  m.teacher_logits = scratch;
  m.teacher_p = m.teacher_logits + chunk * shape.draft_vocab;
  m.stacked_x = m.teacher_p + chunk * shape.draft_vocab;
  m.d_stacked_x = m.stacked_x + rows * shape.hidden;
  m.logits = m.d_stacked_x + rows * shape.hidden;
  m.row_scratch = m.logits + rows * shape.draft_vocab;
  m.whole_logits = m.row_scratch + 2 * threads * shape.draft_vocab;
  m.rounded = reinterpret_cast<std::uint16_t*>(m.whole_logits + kWholeRows * shape.whole_vocab);
  return m;
}

void stack_rows(const HeadLossShape& shape, const HeadLossInputs& in, const Chunk& chunk, float* stacked) {
  for (std::size_t k = 0; k < in.xs.size(); ++k)
    std::memcpy(stacked + chunk.offset[k] * shape.hidden, in.xs[k] + chunk.begin[k] * shape.hidden,
                static_cast<std::size_t>((chunk.end[k] - chunk.begin[k]) * shape.hidden) * sizeof(float));
}

void unstack_rows(const HeadLossShape& shape, const HeadLossOutputs& out, const Chunk& chunk,
                  const float* stacked) {
  for (std::size_t k = 0; k < out.d_xs.size(); ++k)
    std::memcpy(out.d_xs[k] + chunk.begin[k] * shape.hidden, stacked + chunk.offset[k] * shape.hidden,
                static_cast<std::size_t>((chunk.end[k] - chunk.begin[k]) * shape.hidden) * sizeof(float));
}

// One teacher row from its logits over the whole vocabulary: the draft's part of it, normalised by all.
TeacherRow cut_to_draft(const HeadLossShape& shape, const HeadLossInputs& in, float* whole, float* logits,
                        float* p, std::int32_t* best_whole) {
  for (std::int64_t i = 0; i < shape.draft_vocab; ++i) logits[i] = whole[in.draft_to_target[i]];
  const std::int64_t best = vargmax(whole, shape.whole_vocab);
  const float largest = whole[best];
  const float sum = vexp_sum(whole, shape.whole_vocab, 1.0f, largest, whole);
  *best_whole = static_cast<std::int32_t>(best);
  TeacherRow row = teacher_row_of_whole(logits, shape.draft_vocab, largest + std::log(sum), p);
  row.best_is_outside = in.draft_to_target[row.best] != best;
  return row;
}

void whole_teacher_rows(const HeadLossShape& shape, const HeadLossInputs& in, const HeadLossOutputs& out,
                        const Chunk& chunk, const Memory& m, std::vector<TeacherRow>* rows) {
  for (std::int64_t first = 0; first < chunk.teachers; first += kWholeRows) {
    const std::int64_t n = std::min(kWholeRows, chunk.teachers - first);
    linear(n, shape.whole_vocab, shape.target_hidden,
           in.teacher_states + (chunk.first_teacher + first) * shape.target_hidden, in.whole_verifier_head,
           shape.target_hidden, false, m.whole_logits);
    parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t t = first + i;
        TeacherRow& row = (*rows)[static_cast<std::size_t>(t)];
        row = cut_to_draft(shape, in, m.whole_logits + i * shape.whole_vocab,
                           m.teacher_logits + t * shape.draft_vocab, m.teacher_p + t * shape.draft_vocab,
                           out.teacher_best_whole + chunk.first_teacher + t);
        out.teacher_best[chunk.first_teacher + t] = static_cast<std::int32_t>(row.best);
      }
    });
  }
}

void teacher_rows(const HeadLossShape& shape, const HeadLossInputs& in, const HeadLossOutputs& out,
                  const Chunk& chunk, const Memory& m, std::vector<TeacherRow>* rows) {
  if (shape.whole_vocab > 0) {
    whole_teacher_rows(shape, in, out, chunk, m, rows);
    return;
  }
  in.verifier_head->forward(chunk.teachers, in.teacher_states + chunk.first_teacher * shape.target_hidden,
                            false, m.teacher_logits);
  parallel_for(chunk.teachers, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      TeacherRow& row = (*rows)[static_cast<std::size_t>(t)];
      row = teacher_row(m.teacher_logits + t * shape.draft_vocab, shape.draft_vocab,
                        m.teacher_p + t * shape.draft_vocab);
      out.teacher_best[chunk.first_teacher + t] = static_cast<std::int32_t>(row.best);
    }
  });
}

void loss_rows(const HeadLossShape& shape, const std::vector<LossTerm>& terms, const HeadLossInputs& in,
               const HeadLossOutputs& out, const Chunk& chunk, const Memory& m,
               const std::vector<TeacherRow>& teachers) {
  const bool rounded = !out.d_xs.empty() && in.head->takes_rounded();
  parallel_for(chunk.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    float* row_scratch =
        m.row_scratch + 2 * (omp_in_parallel() ? omp_get_thread_num() : 0) * shape.draft_vocab;
    std::size_t k = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      while (r >= chunk.offset[k] + (chunk.end[k] - chunk.begin[k])) ++k;
      const std::int64_t entry = chunk.begin[k] + r - chunk.offset[k];
      const auto e = static_cast<std::size_t>(entry);
      const auto teacher = static_cast<std::size_t>((*in.teacher[k])[e] - chunk.first_teacher);
      std::int64_t best = 0;
      out.loss[k][entry] = loss_row(terms, teachers[teacher], shape.draft_vocab, (*in.weight[k])[e],
                                    m.logits + r * shape.draft_vocab, row_scratch, &best);
      if (rounded)  // while the row is still in the nearest cache
        round_row_to_bf16(shape.draft_vocab, m.logits + r * shape.draft_vocab,
                          m.rounded + r * shape.draft_vocab);
      out.best[k][entry] = static_cast<std::int32_t>(best);
    }
  });
}

void head_gradients(const HeadLossInputs& in, const HeadLossOutputs& out, const Chunk& chunk,
                    const Memory& m) {
  if (in.head->takes_rounded()) {
    in.head->backward_input_rounded(chunk.rows, m.rounded, m.d_stacked_x);
    if (out.d_head != nullptr)
      in.head->backward_weight_rounded(chunk.rows, m.rounded, m.stacked_x, out.d_head);
    return;
  }
  in.head->backward_input(chunk.rows, m.logits, false, m.d_stacked_x, true);
  if (out.d_head != nullptr) in.head->backward_weight(chunk.rows, m.logits, m.stacked_x, out.d_head);
}

}  // namespace

std::int64_t head_loss_chunk(const HeadLossShape& shape) {
  // Whole steps of rows for the products: 96 teachers with 3 drafting steps, 16 with 16.
  constexpr std::int64_t kStep = 16;
  return std::max(kStackedRows / shape.steps / kStep * kStep, kMinChunk);
}

std::int64_t head_loss_scratch_floats(const HeadLossShape& shape, int threads) {
  const std::int64_t chunk = head_loss_chunk(shape), rows = LinearWeight::padded_rows(chunk * shape.steps);
  return (2 * chunk + rows + 2 * threads) * shape.draft_vocab + 2 * rows * shape.hidden +
         kWholeRows * shape.whole_vocab + LinearWeight::padded_depth(rows) * (shape.draft_vocab + 1) / 2;
}

void head_loss(const HeadLossShape& shape, const std::vector<LossTerm>& terms, const HeadLossInputs& in,
               const HeadLossOutputs& out, float* scratch, HeadLossWorkspace* workspace) {
  if (const DeviceOps* device = device_ops(in.teacher_states))
    return device->head_loss(shape, terms, in, out, scratch, workspace);
  const std::int64_t chunk_teachers = head_loss_chunk(shape);
  const Memory m = carve(shape, num_threads(), scratch);
  workspace->begin.resize(in.xs.size());
  workspace->end.resize(in.xs.size());
  workspace->offset.resize(in.xs.size());
  workspace->teachers.resize(static_cast<std::size_t>(chunk_teachers));
  Chunk chunk{0, 0, 0, workspace->begin, workspace->end, workspace->offset};
  std::vector<TeacherRow>& teachers = workspace->teachers;
  for (std::int64_t first = 0; first < in.num_teachers; first += chunk_teachers) {
    find_entries(in, first, std::min(chunk_teachers, in.num_teachers - first), &chunk);
    if (chunk.rows == 0) continue;
    teacher_rows(shape, in, out, chunk, m, &teachers);
    stack_rows(shape, in, chunk, m.stacked_x);
    in.head->forward(chunk.rows, m.stacked_x, false, m.logits, true);
    loss_rows(shape, terms, in, out, chunk, m, teachers);
    if (out.d_xs.empty()) continue;
    head_gradients(in, out, chunk, m);
    unstack_rows(shape, out, chunk, m.d_stacked_x);
  }
}

std::int64_t best_over_vocab_scratch_floats(std::int64_t vocab) {
  return kArgmaxRows * vocab;
}

void best_over_vocab(std::int64_t n, std::int64_t width, std::int64_t vocab, const float* states,
                     const float* head, std::int32_t* best, float* scratch) {
  if (const DeviceOps* device = device_ops(states))
    return device->best_over_vocab(n, width, vocab, states, head, best, scratch);
  for (std::int64_t first = 0; first < n; first += kArgmaxRows) {
    const std::int64_t rows = std::min(kArgmaxRows, n - first);
    linear(rows, vocab, width, states + first * width, head, width, false, scratch);
    parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        best[first + r] = static_cast<std::int32_t>(vargmax(scratch + r * vocab, vocab));
    });
  }
}

}  // namespace eaglet
