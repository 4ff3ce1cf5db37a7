#include "train/counted_rows.h"

#include <algorithm>

#include "base/interrupt.h"
#include "draft/row_plan.h"

namespace eaglet {

Result<CountedRows> CountedRows::make(const StoreReader& store, const std::vector<std::size_t>& documents,
                                      std::int64_t max_seq_len, int ttt_steps) {
  CountedRows counted;
  counted.steps_ = static_cast<std::size_t>(ttt_steps);
  counted.by_document_.assign(store.documents().size() * counted.steps_, 0.0f);
  std::vector<std::int32_t> one_document;
  for (const std::size_t i : documents) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped while counting rows; nothing was begun");
    EAGLET_ASSIGN_OR_RETURN(const DocumentStates document, store.read_tokens(i));
    const auto rows =
        std::min<std::int64_t>(static_cast<std::int64_t>(document.loss_mask.size()), max_seq_len) - 1;
    if (rows < 1) continue;
    one_document.assign(static_cast<std::size_t>(rows), 0);
    std::vector<double> by_step(counted.steps_, 0.0);
    count_rows(rows, ttt_steps, one_document.data(), document.loss_mask.data() + 1, &by_step);
    std::copy(by_step.begin(), by_step.end(),
              counted.by_document_.begin() + static_cast<std::ptrdiff_t>(i * counted.steps_));
  }
  return counted;
}

void CountedRows::add(const std::vector<std::size_t>& documents, std::vector<double>* counted) const {
  for (const std::size_t i : documents)
    for (std::size_t k = 0; k < steps_; ++k)
      (*counted)[k] += static_cast<double>(by_document_[i * steps_ + k]);
}

}  // namespace eaglet
