#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/row_source.h"

namespace eaglet {

/// The .arrow files of a dataset folder that Hugging Face's datasets saved (save_to_disk), in the order of
/// its state.json; empty when `path` is no such folder.
Result<std::vector<std::string>> arrow_files(const std::string& path);

/// Rows of token ids in Arrow's stream format as JSON lines: `input_ids` and `loss_mask` (lists of whole
/// numbers), with `id`, `uuid`, `conversation_id`, `finish_reason` and `text` where they are texts; other
/// columns are passed over. kConfig naming the columns when the two lists are not among them, and for what is
/// not read (compressed batches, the file format, big-endian). kDataLoss: cut or damaged.
/// docs/formats/arrow.md
Result<std::unique_ptr<RowSource>> open_arrow_rows(const std::vector<std::string>& paths);
/// One whole stream in memory: the JSON lines of its rows. For fuzzing and tests.
Result<std::vector<std::string>> parse_arrow_stream(const std::byte* data, std::uint64_t bytes);

}  // namespace eaglet
