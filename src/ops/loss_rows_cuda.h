#pragma once

#include <cstdint>
#include <vector>

#include "ops/loss_kind.h"

namespace eaglet::cuda {

// loss_row.h for many rows in device memory: what the head's loss on a device is made of.

/// TeacherRow without its pointers.
struct TeacherFacts {
  float entropy_term, log_sum_exp, mass;
  std::int32_t best;
  std::int32_t best_is_outside;
};

/// teacher_row() of every row: logits and p [rows, n], facts [rows].
void teacher_rows(std::int64_t rows, std::int64_t n, const float* logits, float* p, TeacherFacts* facts);

/// teacher_row_of_whole() of every row: whole [rows, vocab] logits over the whole vocabulary, of which the
/// draft's tokens draft_to_target [n] are put into `logits` [rows, n]; best_whole [rows].
void teacher_rows_of_whole(std::int64_t rows, std::int64_t vocab, const float* whole, std::int64_t n,
                           const std::int32_t* draft_to_target, float* logits, float* p, TeacherFacts* facts,
                           std::int32_t* best_whole);

/// Index of the largest of each row [rows, n].
void best_of_rows(std::int64_t rows, std::int64_t n, const float* values, std::int32_t* best);

/// Teachers of a chunk, in device memory.
struct Teachers {
  std::int64_t n = 0;  // draft vocabulary
  const float* logits = nullptr;
  const float* p = nullptr;
  const TeacherFacts* facts = nullptr;
};

/// loss_row() of every row: z [rows, n] logits in, `weight` * d loss / d z out; teacher [rows] numbers of its
/// teacher rows; weight [rows], 0 = metric only; loss and best [rows]. Terms are weighted and added up.
void loss_rows(const std::vector<LossTerm>& terms, std::int64_t rows, const Teachers& teachers,
               const std::int32_t* teacher, const float* weight, float* z, float* loss, std::int32_t* best);

}  // namespace eaglet::cuda
