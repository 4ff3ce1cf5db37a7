#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "inspect/inspectors.h"
#include "store/shard_format.h"
#include "store/store.h"
#include "store/store_files.h"

namespace eaglet {
namespace {

void add_header(const StoreHeader& header, Json* facts) {
  (*facts)["target"] = header.target_name;
  (*facts)["target_identity"] = header.target_identity;
  (*facts)["target_layers"] = header.target_layers;
  (*facts)["hidden"] = header.hidden;
  (*facts)["aux_layers"] = header.aux_layers;
  (*facts)["layer_convention"] = "id k is the residual stream after k layers (vLLM, llama.cpp)";
  (*facts)["last_state"] = header.last_state_is_pre_norm ? "before the final norm" : "after the final norm";
  (*facts)["dtype"] = std::string(dtype_name(header.dtype));
}

void add_documents(const StoreReader& store, Json* facts) {
  std::int64_t tokens = 0, supervised = 0;
  std::vector<std::int64_t> lengths;
  for (const StoredDocument& document : store.documents()) {
    tokens += document.tokens;
    supervised += document.supervised_tokens;
    lengths.push_back(document.tokens);
  }
  (*facts)["bytes"] = store.bytes();
  (*facts)["documents"] = store.documents().size();
  (*facts)["tokens"] = tokens;
  (*facts)["supervised_tokens"] = supervised;
  if (!lengths.empty()) (*facts)["document_tokens"] = length_facts(std::move(lengths));
}

/// A document whose checksums fit may still hold what no one meant.
Status check_content(const StoreReader& store, std::size_t i, const InspectOptions& options,
                     Inspection* inspection) {
  EAGLET_ASSIGN_OR_RETURN(const DocumentStates document, store.read(i));
  const std::string name = "document '" + document.id + "'";
  const auto largest = *std::max_element(document.input_ids.begin(), document.input_ids.end());
  if (options.vocab_size > 0 && largest >= options.vocab_size)
    inspection->problems.push_back(
        fmt::format("{}: token id {} is outside the vocabulary of {}", name, largest, options.vocab_size));
  const std::int64_t slots = store.header().slots(), hidden = store.header().hidden;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    bool zero = true;
    for (std::size_t token = 0; token < document.input_ids.size() && zero; ++token) {
      const auto* row = document.states.data() + (static_cast<std::int64_t>(token) * slots + slot) * hidden;
      zero = std::all_of(row, row + hidden, [](std::uint16_t v) { return (v & 0x7fffu) == 0; });
    }
    if (zero)
      inspection->doubts.push_back(
          fmt::format("{}: slot {} of {} is zero for every token: nobody wrote it", name, slot, slots));
  }
  return {};
}

Status verify_store(const StoreReader& store, const InspectOptions& options, Progress& progress,
                    Inspection* inspection) {
  progress.begin("verify", store.documents().size(), "documents");
  for (std::size_t i = 0; i < store.documents().size(); ++i) {
    if (interrupted())
      return Status(StatusCode::kInterrupted, "stopped by a signal before every document was checked",
                    options.path);
    Status checked = store.verify_document(i);
    if (checked.ok()) checked = check_content(store, i, options, inspection);
    if (!checked.ok()) inspection->problems.push_back(checked.where() + ": " + checked.what());
    progress.update(i + 1);
  }
  progress.end(fmt::format("{} documents checked", store.documents().size()));
  return {};
}

/// One line per shard; damaged ones become problems. Returns whether all could be opened.
bool add_shards(const std::string& directory, const StoreFiles& files, Inspection* inspection) {
  Json table = Json::array();
  bool all = true;
  for (const std::uint64_t number : files.finished) {
    const std::string path = shard_path(directory, number);
    const auto shard = StoreReader::open_shard(path);
    if (shard.ok()) {
      table.push_back({{"shard", fmt::format("{:06}", number)},
                       {"documents", (*shard)->documents().size()},
                       {"bytes", (*shard)->bytes()}});
    } else {
      all = false;
      inspection->problems.push_back(shard.status().where() + ": " + shard.status().what());
    }
  }
  inspection->facts["shards"] = std::move(table);
  return all;
}

}  // namespace

Result<Inspection> inspect_store(const InspectOptions& options, Progress& progress) {
  Inspection inspection = begin_inspection("state store", options.path);
  EAGLET_ASSIGN_OR_RETURN(const StoreFiles files, list_store(options.path));
  for (const std::uint64_t number : files.unfinished)
    inspection.doubts.push_back(
        shard_path(options.path, number) +
        ".tmp is unfinished: it is being written, or the same extract command will go on with it");
  Inspection shards;
  const bool all = add_shards(options.path, files, &shards);
  inspection.problems = std::move(shards.problems);
  const auto store = StoreReader::open(options.path);
  if (store.ok()) {
    add_header((*store)->header(), &inspection.facts);
    add_documents(**store, &inspection.facts);
    inspection.facts.update(shards.facts);
    if (options.verify) EAGLET_RETURN_IF_ERROR(verify_store(**store, options, progress, &inspection));
    return inspection;
  }
  if (files.finished.empty()) return store.status();
  inspection.facts.update(shards.facts);
  if (all) inspection.problems.push_back(store.status().where() + ": " + store.status().what());
  return inspection;
}

Result<Inspection> inspect_shard(const InspectOptions& options, Progress& progress) {
  Inspection inspection = begin_inspection("shard of a state store", options.path);
  EAGLET_ASSIGN_OR_RETURN(const auto store, StoreReader::open_shard(options.path));
  add_header(store->header(), &inspection.facts);
  add_documents(*store, &inspection.facts);
  if (options.verify) EAGLET_RETURN_IF_ERROR(verify_store(*store, options, progress, &inspection));
  return inspection;
}

Result<Inspection> inspect_unfinished_shard(const InspectOptions& options, Progress&) {
  Inspection inspection = begin_inspection("unfinished shard of a state store", options.path);
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(options.path));
  std::uint64_t at = 0;
  const auto header = decode_shard_header(file.data(), file.bytes(), &at);
  if (!header.ok())
    return header.status().at(options.path).advise("the same extract command will begin it anew");
  std::int64_t documents = 0, tokens = 0;
  while (at < file.bytes()) {
    const std::byte* record = file.data() + at;
    const auto head = decode_record_head(*header, record, file.bytes() - at);
    DocumentStates document;
    if (!head.ok() || !decode_record_meta(*head, record, &document).ok() ||
        !check_record_states(*head, record).ok())
      break;
    ++documents;
    tokens += head->tokens;
    at += head->record_bytes;
  }
  add_header(*header, &inspection.facts);
  inspection.facts["bytes"] = file.bytes();
  inspection.facts["whole_documents"] = documents;
  inspection.facts["tokens"] = tokens;
  inspection.facts["bytes_after_them"] = file.bytes() - at;
  inspection.doubts.push_back(
      "it is being written, or the same extract command will go on behind the whole documents");
  return inspection;
}

}  // namespace eaglet
