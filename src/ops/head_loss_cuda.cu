#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "device/cuda_device.h"
#include "device/cuda_op_times.h"
#include "device/cuda_product.h"
#include "ops/cuda_dealer.h"
#include "ops/cuda_ops.h"
#include "ops/head_loss_cuda.h"
#include "ops/loss_rows_cuda.h"

namespace eaglet::cuda {
namespace {

// Rows of a chunk over all steps: enough for the products to fill a device, few enough for the logits to stay
// below a few hundred megabytes.
constexpr std::int64_t kStackedRows = 2048;
constexpr std::int64_t kArgmaxRows = 64;
// Rows of the whole vocabulary's logits made at once.
constexpr std::int64_t kWholeRows = 64;

// A chunk of teachers, and the entries of each step that look at them; all rows of the call lie one after
// another by chunk, and by step within one.
struct Chunk {
  std::int64_t first_teacher = 0, teachers = 0, first_row = 0, rows = 0;
  std::vector<std::int64_t> begin, end;  // [K] entries
};

std::vector<Chunk> cut(std::int64_t chunk_teachers, const HeadLossInputs& in) {
  std::vector<Chunk> chunks;
  std::int64_t row = 0;
  for (std::int64_t first = 0; first < in.num_teachers; first += chunk_teachers) {
    Chunk chunk;
    chunk.first_teacher = first;
    chunk.teachers = std::min(chunk_teachers, in.num_teachers - first);
    chunk.first_row = row;
    for (const std::vector<std::int32_t>* of : in.teacher) {
      chunk.begin.push_back(std::lower_bound(of->begin(), of->end(), first) - of->begin());
      chunk.end.push_back(std::lower_bound(of->begin(), of->end(), first + chunk.teachers) - of->begin());
      chunk.rows += chunk.end.back() - chunk.begin.back();
    }
    row += chunk.rows;
    if (chunk.rows > 0) chunks.push_back(std::move(chunk));
  }
  return chunks;
}

// Calls visit(step, entry, row) for all rows of a chunk; rows count from the chunk's first.
template <class Visit>
void each_row(const Chunk& chunk, const Visit& visit) {
  std::int64_t row = 0;
  for (std::size_t k = 0; k < chunk.begin.size(); ++k)
    for (std::int64_t entry = chunk.begin[k]; entry < chunk.end[k]; ++entry) visit(k, entry, row++);
}

struct Memory {
  float *teacher_logits, *teacher_p, *stacked_x, *d_stacked_x, *logits, *whole_logits;
  // Of the whole call, so that the host fills them once and reads them once.
  TeacherFacts* facts;
  std::int32_t *teacher, *best, *best_whole;
  float *weight, *loss;
};

Memory deal(const HeadLossShape& shape, std::int64_t chunk_teachers, std::int64_t chunk_rows,
            std::int64_t teachers, std::int64_t rows, Dealer* dealer) {
  Memory m;
  m.teacher_logits = dealer->deal<float>(chunk_teachers * shape.draft_vocab);
  m.teacher_p = dealer->deal<float>(chunk_teachers * shape.draft_vocab);
  m.stacked_x = dealer->deal<float>(chunk_rows * shape.hidden);
  m.d_stacked_x = dealer->deal<float>(chunk_rows * shape.hidden);
  m.logits = dealer->deal<float>(chunk_rows * shape.draft_vocab);
  m.whole_logits = dealer->deal<float>(kWholeRows * shape.whole_vocab);
  m.facts = dealer->deal<TeacherFacts>(teachers);
  m.best_whole = dealer->deal<std::int32_t>(shape.whole_vocab > 0 ? teachers : 0);
  m.teacher = dealer->deal<std::int32_t>(rows);
  m.weight = dealer->deal<float>(rows);
  m.loss = dealer->deal<float>(rows);
  m.best = dealer->deal<std::int32_t>(rows);
  return m;
}

// Waits for the device.
template <class T>
std::vector<T> copy_out(std::int64_t count, const T* from) {
  std::vector<T> values(static_cast<std::size_t>(count));
  const std::uint64_t bytes = values.size() * sizeof(T);
  for (std::uint64_t done = 0; done < bytes; done += kHostScratchBytes) {
    const std::uint64_t part = std::min(kHostScratchBytes, bytes - done);
    {
      const TimedOp timed(OpGroup::kHeadLoss);
      note(cudaMemcpyAsync(host_scratch(), reinterpret_cast<const char*>(from) + done, part,
                           cudaMemcpyDeviceToHost, stream()),
           "head_loss");
    }
    note(cudaStreamSynchronize(stream()), "head_loss");
    std::memcpy(reinterpret_cast<char*>(values.data()) + done, host_scratch(), part);
  }
  return values;
}

void copy_rows(std::int64_t floats, const float* from, float* to) {
  if (floats > 0)
    note(cudaMemcpyAsync(to, from, static_cast<std::size_t>(floats) * sizeof(float), cudaMemcpyDeviceToDevice,
                         stream()),
         "head_loss");
}

// Numbers of teachers, within their chunk, and weights of all rows.
void fill_rows(const HeadLossInputs& in, const std::vector<Chunk>& chunks, std::int64_t rows,
               const Memory& m) {
  std::vector<std::int32_t> teacher(static_cast<std::size_t>(rows));
  std::vector<float> weight(static_cast<std::size_t>(rows));
  for (const Chunk& chunk : chunks)
    each_row(chunk, [&](std::size_t k, std::int64_t entry, std::int64_t row) {
      const auto e = static_cast<std::size_t>(entry), r = static_cast<std::size_t>(chunk.first_row + row);
      teacher[r] = (*in.teacher[k])[e] - static_cast<std::int32_t>(chunk.first_teacher);
      weight[r] = (*in.weight[k])[e];
    });
  copy_in(m.teacher, teacher.data(), teacher.size() * sizeof(std::int32_t));
  copy_in(m.weight, weight.data(), weight.size() * sizeof(float));
}

void make_teachers(const HeadLossShape& shape, const HeadLossInputs& in, const Chunk& chunk,
                   const Memory& m) {
  const float* states = in.teacher_states + chunk.first_teacher * shape.target_hidden;
  TeacherFacts* facts = m.facts + chunk.first_teacher;
  if (shape.whole_vocab == 0) {
    in.verifier_head->forward(chunk.teachers, states, false, m.teacher_logits);
    teacher_rows(chunk.teachers, shape.draft_vocab, m.teacher_logits, m.teacher_p, facts);
    return;
  }
  for (std::int64_t first = 0; first < chunk.teachers; first += kWholeRows) {
    const std::int64_t n = std::min(kWholeRows, chunk.teachers - first);
    product(n, shape.whole_vocab, shape.target_hidden, 1.0f,
            {states + first * shape.target_hidden, ComputeType::kF32, shape.target_hidden, Transpose::kNo},
            {in.whole_verifier_head, ComputeType::kF32, shape.target_hidden, Transpose::kYes}, 0.0f,
            m.whole_logits, shape.whole_vocab);
    teacher_rows_of_whole(n, shape.whole_vocab, m.whole_logits, shape.draft_vocab, in.draft_to_target,
                          m.teacher_logits + first * shape.draft_vocab,
                          m.teacher_p + first * shape.draft_vocab, facts + first,
                          m.best_whole + chunk.first_teacher + first);
  }
}

void solve_chunk(const HeadLossShape& shape, const std::vector<LossTerm>& terms, const HeadLossInputs& in,
                 const HeadLossOutputs& out, const Chunk& chunk, const Memory& m) {
  make_teachers(shape, in, chunk, m);
  std::int64_t row = 0;
  for (std::size_t k = 0; k < in.xs.size(); ++k) {
    const std::int64_t n = chunk.end[k] - chunk.begin[k];
    copy_rows(n * shape.hidden, in.xs[k] + chunk.begin[k] * shape.hidden, m.stacked_x + row * shape.hidden);
    row += n;
  }
  in.head->forward(chunk.rows, m.stacked_x, false, m.logits);
  loss_rows(terms, chunk.rows,
            {shape.draft_vocab, m.teacher_logits, m.teacher_p, m.facts + chunk.first_teacher},
            m.teacher + chunk.first_row, m.weight + chunk.first_row, m.logits, m.loss + chunk.first_row,
            m.best + chunk.first_row);
  if (out.d_xs.empty()) return;
  in.head->backward_input(chunk.rows, m.logits, false, m.d_stacked_x);
  if (out.d_head != nullptr) in.head->backward_weight(chunk.rows, m.logits, m.stacked_x, out.d_head);
  row = 0;
  for (std::size_t k = 0; k < out.d_xs.size(); ++k) {
    const std::int64_t n = chunk.end[k] - chunk.begin[k];
    copy_rows(n * shape.hidden, m.d_stacked_x + row * shape.hidden,
              out.d_xs[k] + chunk.begin[k] * shape.hidden);
    row += n;
  }
}

// The host's part of the answer: losses, best tokens.
void hand_out(const HeadLossShape& shape, const HeadLossInputs& in, const HeadLossOutputs& out,
              const std::vector<Chunk>& chunks, std::int64_t rows, const Memory& m) {
  const std::vector<float> loss = copy_out(rows, m.loss);
  const std::vector<std::int32_t> best = copy_out(rows, m.best);
  const std::vector<TeacherFacts> facts = copy_out(in.num_teachers, m.facts);
  std::vector<std::int32_t> best_whole;
  if (shape.whole_vocab > 0) best_whole = copy_out(in.num_teachers, m.best_whole);
  for (const Chunk& chunk : chunks) {
    each_row(chunk, [&](std::size_t k, std::int64_t entry, std::int64_t row) {
      out.loss[k][entry] = loss[static_cast<std::size_t>(chunk.first_row + row)];
      out.best[k][entry] = best[static_cast<std::size_t>(chunk.first_row + row)];
    });
    for (std::int64_t t = chunk.first_teacher; t < chunk.first_teacher + chunk.teachers; ++t) {
      out.teacher_best[t] = facts[static_cast<std::size_t>(t)].best;
      if (!best_whole.empty()) out.teacher_best_whole[t] = best_whole[static_cast<std::size_t>(t)];
    }
  }
}

}  // namespace

void head_loss_in_chunks(std::int64_t chunk_teachers, const HeadLossShape& shape,
                         const std::vector<LossTerm>& terms, const HeadLossInputs& in,
                         const HeadLossOutputs& out) {
  const std::vector<Chunk> chunks = cut(chunk_teachers, in);
  if (chunks.empty()) return;
  std::int64_t rows = 0, chunk_rows = 0;
  for (const Chunk& chunk : chunks) {
    rows += chunk.rows;
    chunk_rows = std::max(chunk_rows, chunk.rows);
  }
  chunk_teachers = std::min(chunk_teachers, in.num_teachers);
  Dealer count(nullptr);
  deal(shape, chunk_teachers, chunk_rows, in.num_teachers, rows, &count);
  auto* block = static_cast<char*>(op_scratch(count.bytes()));
  if (block == nullptr) return;
  Dealer dealer(block);
  const Memory m = deal(shape, chunk_teachers, chunk_rows, in.num_teachers, rows, &dealer);
  fill_rows(in, chunks, rows, m);
  {
    const TimedOp timed(OpGroup::kHeadLoss);
    for (const Chunk& chunk : chunks) solve_chunk(shape, terms, in, out, chunk, m);
  }
  hand_out(shape, in, out, chunks, rows, m);
}

// The host's scratch and workspace are not used: op_scratch holds the logits.
void head_loss(const HeadLossShape& shape, const std::vector<LossTerm>& terms, const HeadLossInputs& in,
               const HeadLossOutputs& out, float*, HeadLossWorkspace*) {
  head_loss_in_chunks(std::max<std::int64_t>(kStackedRows / shape.steps, 16), shape, terms, in, out);
}

void best_over_vocab(std::int64_t n, std::int64_t width, std::int64_t vocab, const float* states,
                     const float* head, std::int32_t* best, float*) {
  if (n == 0) return;
  Dealer count(nullptr);
  count.deal<float>(kArgmaxRows * vocab);
  count.deal<std::int32_t>(n);
  auto* block = static_cast<char*>(op_scratch(count.bytes()));
  if (block == nullptr) return;
  Dealer dealer(block);
  auto* logits = dealer.deal<float>(kArgmaxRows * vocab);
  auto* found = dealer.deal<std::int32_t>(n);
  for (std::int64_t first = 0; first < n; first += kArgmaxRows) {
    const TimedOp timed(OpGroup::kHeadLoss);
    const std::int64_t rows = std::min(kArgmaxRows, n - first);
    product(rows, vocab, width, 1.0f, {states + first * width, ComputeType::kF32, width, Transpose::kNo},
            {head, ComputeType::kF32, width, Transpose::kYes}, 0.0f, logits, vocab);
    best_of_rows(rows, vocab, logits, found + first);
  }
  const std::vector<std::int32_t> values = copy_out(n, found);
  std::copy(values.begin(), values.end(), best);
}

}  // namespace eaglet::cuda
