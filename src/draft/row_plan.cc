#include "draft/row_plan.h"

#include <algorithm>

namespace eaglet {
namespace {

struct Document {
  std::int64_t begin, end;
};

class Planner {
 public:
  Planner(std::int64_t rows, int steps, const std::int32_t* positions, const std::uint8_t* mask,
          RowPlan* plan)
      : rows_(rows), steps_(steps), positions_(positions), mask_(mask), plan_(*plan) {}

  void run(const std::int32_t* document_ids) {
    clear();
    for (std::int64_t begin = 0; begin < rows_;) {
      std::int64_t end = begin + 1;
      while (end < rows_ && document_ids[end] == document_ids[begin]) ++end;
      if (document_ids[begin] >= 0) add_document({begin, end});
      begin = end;
    }
    link_own_steps();
  }

 private:
  void clear() {
    plan_.key_rows.clear();
    plan_.key_positions.clear();
    plan_.key_spans.clear();
    plan_.teachers.clear();
    plan_.steps.resize(static_cast<std::size_t>(steps_));
    for (RowPlan::Step& step : plan_.steps) {
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

  bool counts(const Document& document, std::int64_t p, int k) const {
    return p + k < document.end && mask_[p + k] != 0;
  }
  // cond_acc at a later step asks whether this supervised row was right here, even where row p+k itself is
  // not supervised.
  bool metric_only(const Document& document, std::int64_t p, int k) const {
    return k + 1 < steps_ && mask_[p] != 0 && p + k + 1 < document.end && !counts(document, p, k);
  }
  bool has_entry(const Document& document, std::int64_t p, int k) const {
    return counts(document, p, k) || metric_only(document, p, k);
  }
  // Last step at which the row has an entry, -1 when none.
  int last_entry_step(const Document& document, std::int64_t p) const {
    for (int k = steps_ - 1; k >= 0; --k)
      if (has_entry(document, p, k)) return k;
    return -1;
  }

  void add_document(const Document& document) {
    std::int64_t needed_end = document.begin;  // one past the last row needed as key, embedding or teacher
    for (std::int64_t p = document.begin; p < document.end; ++p) {
      const int last = last_entry_step(document, p);
      if (last >= 0) needed_end = std::max(needed_end, p + last + 1);
    }
    if (needed_end == document.begin) return;
    const auto first_key = static_cast<std::int32_t>(plan_.key_rows.size());
    for (std::int64_t p = document.begin; p < needed_end; ++p) {
      plan_.key_rows.push_back(static_cast<std::int32_t>(p));
      plan_.key_positions.push_back(positions_[p]);
    }
    const auto key_end = static_cast<std::int32_t>(plan_.key_rows.size());
    plan_.key_spans.push_back({first_key, key_end, first_key, key_end});
    const std::size_t first_teacher = plan_.teachers.size();
    add_teachers(document, needed_end);
    for (int k = 0; k < steps_; ++k) add_step(document, needed_end, k, first_key, key_end, first_teacher);
  }

  void add_teachers(const Document& document, std::int64_t needed_end) {
    for (std::int64_t t = document.begin; t < needed_end; ++t) {
      bool needed = false;
      for (int k = 0; k < steps_ && t - k >= document.begin; ++k)
        needed = needed || has_entry(document, t - k, k);
      if (needed) plan_.teachers.push_back(static_cast<std::int32_t>(t));
    }
  }

  void add_step(const Document& document, std::int64_t needed_end, int k, std::int32_t first_key,
                std::int32_t key_end, std::size_t first_teacher) {
    RowPlan::Step& step = plan_.steps[static_cast<std::size_t>(k)];
    const auto span_begin = static_cast<std::int32_t>(step.live.size());
    std::size_t teacher = first_teacher;
    std::size_t parent = k == 0 ? 0 : parents_done_[static_cast<std::size_t>(k)];
    for (std::int64_t p = document.begin; p < needed_end; ++p) {
      if (last_entry_step(document, p) < k) continue;
      const auto key = static_cast<std::int32_t>(first_key + (p - document.begin));
      step.key_of_live.push_back(key);
      step.source_key.push_back(key + k);
      step.positions.push_back(positions_[p] + k);
      if (k == 0) {
        step.parent.push_back(key);
      } else {
        const std::vector<std::int32_t>& before = plan_.steps[static_cast<std::size_t>(k) - 1].live;
        while (before[parent] != p) ++parent;
        step.parent.push_back(static_cast<std::int32_t>(parent));
      }
      if (has_entry(document, p, k)) {
        while (plan_.teachers[teacher] != p + k) ++teacher;
        step.entry_live.push_back(static_cast<std::int32_t>(step.live.size()));
        step.entry_teacher.push_back(static_cast<std::int32_t>(teacher));
        const bool counted = counts(document, p, k);
        step.entry_counted.push_back(counted ? 1 : 0);
        step.counted += counted ? 1 : 0;
      }
      step.live.push_back(static_cast<std::int32_t>(p));
    }
    if (k > 0) parents_done_[static_cast<std::size_t>(k)] = parent;
    const auto span_end = static_cast<std::int32_t>(step.live.size());
    if (span_end > span_begin) step.spans.push_back({span_begin, span_end, first_key, key_end});
  }

  void link_own_steps() {
    plan_.own_index.resize(static_cast<std::size_t>(steps_));
    for (int k = 1; k < steps_; ++k) {
      auto& own = plan_.own_index[static_cast<std::size_t>(k)];
      own.resize(static_cast<std::size_t>(k) + 1);
      const std::size_t n = plan_.steps[static_cast<std::size_t>(k)].live.size();
      own[static_cast<std::size_t>(k)].resize(n);
      for (std::size_t i = 0; i < n; ++i) own[static_cast<std::size_t>(k)][i] = static_cast<std::int32_t>(i);
      for (int j = k - 1; j >= 1; --j) {
        const std::vector<std::int32_t>& parent = plan_.steps[static_cast<std::size_t>(j) + 1].parent;
        auto& to = own[static_cast<std::size_t>(j)];
        to.resize(n);
        for (std::size_t i = 0; i < n; ++i)
          to[i] = parent[static_cast<std::size_t>(own[static_cast<std::size_t>(j) + 1][i])];
      }
    }
  }

  std::int64_t rows_;
  int steps_;
  const std::int32_t* positions_;
  const std::uint8_t* mask_;
  RowPlan& plan_;
  std::vector<std::size_t> parents_done_ = std::vector<std::size_t>(static_cast<std::size_t>(steps_), 0);
};

}  // namespace

std::int64_t RowPlan::live_row_steps() const {
  std::int64_t sum = 0;
  for (const Step& step : steps) sum += static_cast<std::int64_t>(step.live.size());
  return sum;
}

void plan_rows(std::int64_t rows, int ttt_steps, const std::int32_t* document_ids,
               const std::int32_t* position_ids, const std::uint8_t* loss_mask, RowPlan* plan) {
  Planner(rows, ttt_steps, position_ids, loss_mask, plan).run(document_ids);
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

}  // namespace eaglet
