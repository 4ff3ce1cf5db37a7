#include "inspect/inspect.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <string_view>

#include "formats/arrow_rows.h"
#include "formats/row_source.h"
#include "formats/safetensors.h"
#include "inspect/inspectors.h"

namespace eaglet {
namespace {

using Inspector = Result<Inspection> (*)(const InspectOptions&, Progress&);

bool starts_with(std::string_view bytes, std::string_view magic) {
  return bytes.substr(0, magic.size()) == magic;
}

/// safetensors has no magic: eight bytes of length, then a JSON object.
bool looks_like_safetensors(std::string_view bytes) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < 9 || bytes[8] != '{') return false;
  std::memcpy(&header_bytes, bytes.data(), 8);
  return header_bytes <= bytes.size();
}

/// Rows, plain or packed: conversations when the first readable one has tokens with an answer, else prompts.
Inspector inspector_of_rows(const std::string& path) {
  const auto rows = RowSource::open(path);
  if (!rows.ok()) return nullptr;
  for (RowText text;;) {
    const auto there = (*rows)->next(&text);
    if (!there.ok() || !*there) return nullptr;
    const auto row = parse_json(text.text);
    if (!row.ok() || !row->is_object()) continue;
    if (row->contains("input_ids") || row->contains("loss_mask") || row->contains("response_ids"))
      return inspect_conversations;
    for (const char* turns : {"messages", "conversations", "prompt_ids"})
      if (row->contains(turns)) return inspect_prompts;
  }
}

bool is_draft_config(std::string_view bytes) {
  constexpr std::size_t kLargestConfig = std::size_t{1} << 24;
  if (bytes.size() > kLargestConfig) return false;
  const auto json = parse_json(bytes);
  return json.ok() && json->is_object() &&
         (json->contains("draft_vocab_size") || json->contains("speculators_model_type"));
}

bool is_our_map(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) return false;
  const auto kind = file->metadata().find("kind");
  return kind != file->metadata().end() && kind->second == "eaglet vocabulary map";
}

/// By what is in the file; by its name only when it is too damaged to tell.
Inspector inspector_of_file(std::string_view bytes, const std::string& path) {
  if (starts_with(bytes, "EGLTSTO\n"))
    return path.ends_with(".tmp") ? inspect_unfinished_shard : inspect_shard;
  if (starts_with(bytes, "GGUF")) return inspect_gguf;
  if (starts_with(bytes, "\x93NUMPY")) return inspect_npy;
  if (starts_with(bytes, "PK\x03\x04") || (starts_with(bytes, "\x1f\x8b") && path.ends_with(".ckpt.gz")))
    return inspect_torch;
  if (looks_like_safetensors(bytes)) return is_our_map(path) ? inspect_vocab_map : inspect_safetensors;
  const std::size_t text = bytes.find_first_not_of(" \t\r\n");
  const bool packed = starts_with(bytes, "\x1f\x8b") || starts_with(bytes, "\x28\xb5\x2f\xfd");
  if (text != bytes.npos && bytes[text] == '{' && is_draft_config(bytes)) return inspect_config;
  if (packed || path.ends_with(".arrow") ||
      (text != bytes.npos && (bytes[text] == '{' || bytes[text] == '[')))
    if (const Inspector rows = inspector_of_rows(path)) return rows;
  if (path.ends_with(".shard")) return inspect_shard;
  if (path.ends_with(".safetensors")) return inspect_safetensors;
  if (path.ends_with(".pt") || path.ends_with(".ckpt") || path.ends_with(".ckpt.gz")) return inspect_torch;
  if (path.ends_with(".npy")) return inspect_npy;
  if (path.ends_with(".gguf")) return inspect_gguf;
  return nullptr;
}

Status unknown(const std::string& path) {
  return Status(StatusCode::kDataLoss, "not of a kind that eaglet knows, or too damaged to tell", path,
                "inspect reads state stores, draft directories, safetensors, GGUF, torch and NumPy files, "
                "vocabulary maps, conversations and prompts (JSON lines or lists, gz, zst, Arrow)");
}

Result<Inspection> inspect_directory(const InspectOptions& options, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(options.path));
  bool has_config = false, has_weights = false;
  std::string worth_a_look;
  for (const std::string& name : names) {
    if (name.ends_with(".shard") || name.ends_with(".shard.tmp")) return inspect_store(options, progress);
    if (name == "d2t.npy") return inspect_vocab_map(options, progress);
    has_config |= name == "config.json";
    has_weights |= name == "model.safetensors";
    for (const char* part :
         {"states", "draft", "checkpoints", "export", "latest", "conversations.jsonl", "prompts.jsonl"})
      if (name == part) worth_a_look += (worth_a_look.empty() ? "" : ", ") + name;
  }
  if (has_config && has_weights) return inspect_checkpoint(options, progress);
  if (has_config || has_weights)
    return Status(StatusCode::kDataLoss,
                  fmt::format("a draft needs config.json and model.safetensors; here is no {}",
                              has_config ? "model.safetensors" : "config.json"),
                  options.path);
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> arrow, arrow_files(options.path));
  if (!arrow.empty()) return inspect_conversations(options, progress);
  EAGLET_ASSIGN_OR_RETURN(const auto states, inspect_foreign_states(options, progress));
  if (states) return *states;
  return Status(StatusCode::kNotFound, "neither states nor a draft nor a dataset lies in this directory",
                options.path,
                worth_a_look.empty() ? "give a file, a store directory or a draft directory"
                                     : "look into one of its parts: " + worth_a_look);
}

Result<Inspection> inspect_any(const InspectOptions& options, Progress& progress) {
  if (is_directory(options.path)) return inspect_directory(options, progress);
  Inspector inspector = nullptr;
  {
    EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(options.path));
    if (file.bytes() == 0) return Status(StatusCode::kDataLoss, "the file is empty", options.path);
    inspector = inspector_of_file({reinterpret_cast<const char*>(file.data()), file.bytes()}, options.path);
  }
  if (inspector == nullptr) return unknown(options.path);
  return inspector(options, progress);
}

}  // namespace

Inspection begin_inspection(const std::string& kind, const std::string& path) {
  Inspection inspection;
  inspection.facts["kind"] = kind;
  inspection.facts["path"] = path;
  return inspection;
}

Result<Inspection> inspect(const InspectOptions& options, Progress& progress) {
  try {
    auto inspection = inspect_any(options, progress);
    if (inspection.ok() && options.verify) inspection->facts["verified"] = inspection->problems.empty();
    return inspection;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kNoSpace, "there is not enough memory to look at this file", options.path);
  }
}

}  // namespace eaglet
