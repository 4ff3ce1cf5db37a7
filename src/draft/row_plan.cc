#include "draft/row_plan.h"

#include <algorithm>
#include <array>

#include "base/rng.h"

namespace eaglet {
namespace {

bool counts(std::int64_t document_end, const std::uint8_t* mask, std::int64_t p, int k) {
  return p + k < document_end && mask[p + k] != 0;
}

// cond_acc at a later step asks whether this supervised row was right here, even where row p+k itself is not
// supervised.
bool metric_only(std::int64_t document_end, const std::uint8_t* mask, int steps, std::int64_t p, int k) {
  return k + 1 < steps && mask[p] != 0 && p + k + 1 < document_end && !counts(document_end, mask, p, k);
}

bool has_entry(std::int64_t document_end, const std::uint8_t* mask, int steps, std::int64_t p, int k) {
  return counts(document_end, mask, p, k) || metric_only(document_end, mask, steps, p, k);
}

std::int16_t last_entry_step(std::int64_t document_end, const std::uint8_t* mask, int steps, std::int64_t p) {
  for (int k = steps - 1; k >= 0; --k)
    if (has_entry(document_end, mask, steps, p, k)) return static_cast<std::int16_t>(k);
  return -1;
}

// Systematic sampling: start row i is kept where floor(share * i + offset) jumps. Every row is kept with the
// same chance `share`, and the rows kept are spread evenly.
class Sampler {
 public:
  Sampler(const RowSampling& sampling, std::int64_t document_begin)
      : share_(sampling.share),
        at_(share_ < 1 ? Rng(sampling.seed, static_cast<std::uint64_t>(document_begin)).uniform() : 0) {}
  bool keep() {
    if (share_ >= 1) return true;
    at_ += share_;
    if (at_ < 1) return false;
    at_ -= 1;
    return true;
  }

 private:
  double share_, at_;
};

void plan_document(std::int64_t begin, std::int64_t end, int steps, const std::uint8_t* mask,
                   const RowSampling& sampling, RowPlan* plan) {
  Sampler sampler(sampling, begin);
  std::int64_t needed_end = begin;
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int16_t last = last_entry_step(end, mask, steps, p);
    if (last < 0 || !sampler.keep()) continue;
    plan->last_step[static_cast<std::size_t>(p)] = last;
    needed_end = std::max<std::int64_t>(needed_end, p + last + 1);
  }
  if (needed_end == begin) return;
  plan->documents.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end),
                             static_cast<std::int32_t>(needed_end), plan->keys});
  plan->keys += needed_end - begin;
}

// Fills a chunk, document by document.
class ChunkPlanner {
 public:
  ChunkPlanner(const RowPlan& plan, int steps, const std::int32_t* positions, const std::uint8_t* mask,
               ChunkPlan* chunk)
      : plan_(plan), steps_(steps), positions_(positions), mask_(mask), chunk_(*chunk) {}

  void run() {
    clear();
    for (const RowPlan::Document& document : plan_.documents) {
      const std::int64_t first = std::max(document.first_key, chunk_.first_key);
      const std::int64_t last =
          std::min(document.first_key + document.needed_end - document.begin, chunk_.first_key + chunk_.keys);
      if (first < last) add_document(document, first, last);
    }
    link_own_steps();
  }

 private:
  void clear() {
    chunk_.rows.clear();
    chunk_.key_positions.clear();
    chunk_.key_spans.clear();
    chunk_.teachers.clear();
    chunk_.steps.resize(static_cast<std::size_t>(steps_));
    for (ChunkPlan::Step& step : chunk_.steps) {
      step.live.clear();
      step.key_of_live.clear();
      step.source_key.clear();
      step.positions.clear();
      step.parent.clear();
      step.spans.clear();
      step.entry_live.clear();
      step.entry_teacher.clear();
      step.entry_counted.clear();
      step.counted = 0;
    }
  }

  // Key numbers [first, last) of all key rows.
  void add_document(const RowPlan::Document& document, std::int64_t first, std::int64_t last) {
    Part part;
    part.document = &document;
    part.begin = document.begin + (first - document.first_key);
    part.end = document.begin + (last - document.first_key);
    part.first_key = static_cast<std::int32_t>(first - chunk_.first_key);
    part.span_begin = static_cast<std::int32_t>(document.first_key - chunk_.first_key);
    part.span_end = static_cast<std::int32_t>(last - chunk_.first_key);
    for (std::int64_t p = part.begin; p < part.end; ++p) {
      chunk_.rows.push_back(static_cast<std::int32_t>(p));
      chunk_.key_positions.push_back(positions_[p]);
    }
    chunk_.key_spans.push_back({part.first_key, part.span_end, part.span_begin, part.span_end});
    part.first_teacher = chunk_.teachers.size();
    add_teachers(part);
    for (int k = 0; k < steps_; ++k) add_step(part, k);
    // Only the last document of a chunk can be cut, so what is added here stays behind all key rows.
    const std::int64_t halo_end = std::min<std::int64_t>(document.needed_end, part.end + steps_ - 1);
    for (std::int64_t p = part.end; p < halo_end; ++p) chunk_.rows.push_back(static_cast<std::int32_t>(p));
  }

  struct Part {
    const RowPlan::Document* document = nullptr;
    std::int64_t begin = 0, end = 0;  // batch rows
    std::int32_t first_key = 0, span_begin = 0, span_end = 0;
    std::size_t first_teacher = 0;
  };

  bool entry(const Part& part, std::int64_t p, int k) const {
    return k <= plan_.last_step[static_cast<std::size_t>(p)] &&
           has_entry(part.document->end, mask_, steps_, p, k);
  }

  void add_teachers(const Part& part) {
    const std::int64_t end = std::min<std::int64_t>(part.document->needed_end, part.end + steps_ - 1);
    for (std::int64_t t = part.begin; t < end; ++t) {
      bool needed = false;
      for (int k = 0; k < steps_ && t - k >= part.begin && !needed; ++k)
        needed = t - k < part.end && entry(part, t - k, k);
      if (needed) chunk_.teachers.push_back(static_cast<std::int32_t>(t));
    }
  }

  void add_step(const Part& part, int k) {
    ChunkPlan::Step& step = chunk_.steps[static_cast<std::size_t>(k)];
    const auto span_begin = static_cast<std::int32_t>(step.live.size());
    std::size_t teacher = part.first_teacher;
    std::size_t parent = k == 0 ? 0 : parents_done_[static_cast<std::size_t>(k)];
    for (std::int64_t p = part.begin; p < part.end; ++p) {
      if (plan_.last_step[static_cast<std::size_t>(p)] < k) continue;
      const auto key = static_cast<std::int32_t>(part.first_key + (p - part.begin));
      step.key_of_live.push_back(key);
      step.source_key.push_back(key + k);
      step.positions.push_back(positions_[p] + k);
      if (k == 0) {
        step.parent.push_back(key);
      } else {
        const std::vector<std::int32_t>& before = chunk_.steps[static_cast<std::size_t>(k) - 1].live;
        while (before[parent] != p) ++parent;
        step.parent.push_back(static_cast<std::int32_t>(parent));
      }
      if (has_entry(part.document->end, mask_, steps_, p, k)) {
        while (chunk_.teachers[teacher] != p + k) ++teacher;
        step.entry_live.push_back(static_cast<std::int32_t>(step.live.size()));
        step.entry_teacher.push_back(static_cast<std::int32_t>(teacher));
        const bool counted = counts(part.document->end, mask_, p, k);
        step.entry_counted.push_back(counted ? 1 : 0);
        step.counted += counted ? 1 : 0;
      }
      step.live.push_back(static_cast<std::int32_t>(p));
    }
    if (k > 0) parents_done_[static_cast<std::size_t>(k)] = parent;
    const auto span_end = static_cast<std::int32_t>(step.live.size());
    if (span_end > span_begin) step.spans.push_back({span_begin, span_end, part.span_begin, part.span_end});
  }

  void link_own_steps() {
    chunk_.own_index.resize(static_cast<std::size_t>(steps_));
    for (int k = 1; k < steps_; ++k) {
      auto& own = chunk_.own_index[static_cast<std::size_t>(k)];
      own.resize(static_cast<std::size_t>(k) + 1);
      const std::size_t n = chunk_.steps[static_cast<std::size_t>(k)].live.size();
      own[static_cast<std::size_t>(k)].resize(n);
      for (std::size_t i = 0; i < n; ++i) own[static_cast<std::size_t>(k)][i] = static_cast<std::int32_t>(i);
      for (int j = k - 1; j >= 1; --j) {
        const std::vector<std::int32_t>& parent = chunk_.steps[static_cast<std::size_t>(j) + 1].parent;
        auto& to = own[static_cast<std::size_t>(j)];
        to.resize(n);
        for (std::size_t i = 0; i < n; ++i)
          to[i] = parent[static_cast<std::size_t>(own[static_cast<std::size_t>(j) + 1][i])];
      }
    }
  }

  const RowPlan& plan_;
  int steps_;
  const std::int32_t* positions_;
  const std::uint8_t* mask_;
  ChunkPlan& chunk_;
  std::array<std::size_t, kMaxTttSteps> parents_done_ = {};
};

}  // namespace

std::int64_t ChunkPlan::live_row_steps() const {
  std::int64_t sum = 0;
  for (const Step& step : steps) sum += static_cast<std::int64_t>(step.live.size());
  return sum;
}

void plan_rows(std::int64_t rows, int ttt_steps, const std::int32_t* document_ids,
               const std::uint8_t* loss_mask, const RowSampling& sampling, RowPlan* plan) {
  plan->documents.clear();
  plan->keys = 0;
  plan->last_step.assign(static_cast<std::size_t>(rows), -1);
  plan->counted.assign(static_cast<std::size_t>(ttt_steps), 0);
  for (std::int64_t begin = 0; begin < rows;) {
    std::int64_t end = begin + 1;
    while (end < rows && document_ids[end] == document_ids[begin]) ++end;
    if (document_ids[begin] >= 0) plan_document(begin, end, ttt_steps, loss_mask, sampling, plan);
    begin = end;
  }
  for (std::int64_t p = 0; p < rows; ++p)
    for (int k = 0; k < ttt_steps && document_ids[p] >= 0; ++k)
      if (p + k < rows && document_ids[p + k] == document_ids[p] && loss_mask[p + k] != 0)
        ++plan->counted[static_cast<std::size_t>(k)];
}

void count_rows(std::int64_t rows, int steps, const std::int32_t* document_ids, const std::uint8_t* loss_mask,
                std::vector<double>* counted) {
  for (std::int64_t p = 0; p < rows; ++p) {
    if (document_ids[p] < 0 || loss_mask[p] == 0) continue;
    // Row p is the teacher of row p-k at step k, when that lies in the same document.
    for (int k = 0; k < steps && k <= p && document_ids[p - k] == document_ids[p]; ++k)
      ++(*counted)[static_cast<std::size_t>(k)];
  }
}

void key_rows(const RowPlan& plan, std::int64_t first_key, std::int64_t keys,
              std::vector<std::int32_t>* rows) {
  rows->clear();
  for (const RowPlan::Document& document : plan.documents) {
    const std::int64_t end_key = document.first_key + document.needed_end - document.begin;
    for (std::int64_t key = std::max(document.first_key, first_key);
         key < std::min(end_key, first_key + keys); ++key)
      rows->push_back(static_cast<std::int32_t>(document.begin + key - document.first_key));
  }
}

void plan_chunk(const RowPlan& plan, int ttt_steps, const std::int32_t* position_ids,
                const std::uint8_t* loss_mask, std::int64_t first_key, std::int64_t keys, ChunkPlan* chunk) {
  chunk->first_key = first_key;
  chunk->keys = keys;
  ChunkPlanner(plan, ttt_steps, position_ids, loss_mask, chunk).run();
}

}  // namespace eaglet
