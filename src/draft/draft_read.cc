#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <numeric>
#include <optional>

#include "base/files.h"
#include "draft/draft_gguf.h"
#include "draft/draft_map.h"
#include "draft/draft_weights.h"
#include "draft/tensor_source.h"

namespace eaglet {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "embed_tokens.weight";

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}
bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// speculators' name of a tensor that another tool may have called model.X or midlayer.X.
std::string our_name(std::string name) {
  if (starts_with(name, "model.")) name = name.substr(6);
  if (starts_with(name, "midlayer.")) name = "layers.0." + name.substr(9);
  return name;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Why a tensor that the draft has no place for may be left out; nothing when leaving it out would change the
// arithmetic.
std::optional<std::string> skip_reason(const std::string& name) {
  if (name == "t2d" || name == "d2t") return "the vocabulary map, read as such";
  if (starts_with(name, "verifier_")) return "the target's own; taken from the target model";
  if (ends_with(name, "rotary_emb.inv_freq")) return "computed from the config's rotary settings";
  if (name == "input_norm.weight") return "norm_before_fc is off in the config";
  if (starts_with(name, "fc_norm.")) return "fc_norm is off in the config";
  if (ends_with(name, ".bias") || ends_with(name, "q_norm.weight") || ends_with(name, "k_norm.weight"))
    return std::nullopt;
  return "no tensor of that name in this draft";
}

class Reader {
 public:
  Reader(const TensorSource& source, const ReadDraftOptions& options, LoadReport* report)
      : source_(source), options_(options), report_(report) {}

  Result<DraftWeights> read(const DraftConfig& config) {
    draft_.config = config;
    draft_.table = parameter_table(config, options_.train_head);
    EAGLET_RETURN_IF_ERROR(index_names());
    EAGLET_ASSIGN_OR_RETURN(draft_.vocab, read_draft_map(source_, config, &ascending_));
    EAGLET_RETURN_IF_ERROR(check_tensors());
    EAGLET_RETURN_IF_ERROR(check_leftovers());
    draft_.values.resize(static_cast<std::size_t>(draft_.table.back().offset + draft_.table.back().elements));
    for (const ParameterInfo& info : draft_.table) EAGLET_RETURN_IF_ERROR(load(info));
    EAGLET_RETURN_IF_ERROR(load_embedding());
    report_skipped();
    if (report_ != nullptr)
      report_->notes.insert(report_->notes.end(), source_.notes.begin(), source_.notes.end());
    if (!ascending_) sort_head();
    return std::move(draft_);
  }

 private:
  Status index_names() {
    for (const SourceTensor& entry : source_.tensors) {
      const auto [it, fresh] = entries_.emplace(our_name(entry.name), &entry);
      if (fresh) continue;
      return Status(StatusCode::kDataLoss,
                    fmt::format("{} and {} are one and the same tensor", it->second->name, entry.name));
    }
    return {};
  }

  // Everything is checked before anything large is allocated: the sizes come from the file.
  Status check_tensors() {
    for (const ParameterInfo& info : draft_.table) {
      const auto it = entries_.find(info.name);
      if (it == entries_.end()) {
        EAGLET_RETURN_IF_ERROR(check_missing(info));
      } else if (it->second->shape != info.shape) {
        return Status(StatusCode::kDataLoss,
                      fmt::format("{} has shape {}, but the config needs {}", it->second->name,
                                  shape_text(it->second->shape), shape_text(info.shape)),
                      {},
                      info.name == "fc.weight"
                          ? "the columns are captured layers x target width: check the layer list"
                          : "");
      }
    }
    return {};
  }

  Status check_missing(const ParameterInfo& info) {
    const DraftConfig& c = draft_.config;
    if (info.name != kHead) {
      return Status(StatusCode::kDataLoss,
                    fmt::format("tensor {} {} is missing", info.name, shape_text(info.shape)), {},
                    "a draft cannot run with a random part; take the checkpoint from its source again");
    }
    if (c.draft_vocab < c.vocab) {
      return Status(StatusCode::kDataLoss,
                    fmt::format("{} is missing and the draft vocabulary is reduced", kHead), {},
                    "the head's rows cannot be guessed; take a checkpoint that has them");
    }
    if (options_.target_head == nullptr) {
      return Status(StatusCode::kConfig,
                    fmt::format("{} is missing; it is the target's, which was not given", kHead), {},
                    "eaglet import DIR --model TARGET.gguf writes a complete draft");
    }
    if (static_cast<std::int64_t>(options_.target_head->size()) != info.elements) {
      return Status(StatusCode::kConfig,
                    fmt::format("{} is missing and the target's head has {} numbers, not {}", kHead,
                                options_.target_head->size(), info.elements));
    }
    return {};
  }

  // A tensor that has no place in the draft but would change what it computes.
  Status check_leftovers() const {
    for (const SourceTensor& entry : source_.tensors) {
      const std::string name = our_name(entry.name);
      if (draft_.find(name) != nullptr || name == kEmbedding || skip_reason(name)) continue;
      return Status(StatusCode::kConfig,
                    fmt::format("tensor {} is in the file, but the config does not speak of it", entry.name),
                    {}, "leaving it out would change what the draft computes; such drafts are not supported");
    }
    return {};
  }

  Status load(const ParameterInfo& info) {
    float* values = draft_.values.data() + info.offset;
    const auto it = entries_.find(info.name);
    if (it == entries_.end()) {  // only a full-vocabulary head comes here
      std::copy(options_.target_head->begin(), options_.target_head->end(), values);
      if (report_ != nullptr) report_->missing.push_back({info.name, "taken from the target"});
      return {};
    }
    EAGLET_RETURN_IF_ERROR(convert(*it->second, values));
    if (report_ != nullptr) report_->loaded.push_back(it->second->name);
    return {};
  }

  Status convert(const SourceTensor& entry, float* values) {
    std::int64_t n = 1;
    for (const std::int64_t size : entry.shape) n *= size;
    EAGLET_RETURN_IF_ERROR(entry.read_f32(values));
    for (std::int64_t i = 0; i < n; ++i) {
      if (!std::isfinite(values[i])) {
        return Status(StatusCode::kNumeric,
                      fmt::format("{} holds a value that is not finite (element {})", entry.name, i));
      }
    }
    return {};
  }

  Status load_embedding() {
    const auto it = entries_.find(kEmbedding);
    if (it == entries_.end()) return {};
    const std::vector<std::int64_t> shape = {draft_.config.vocab, draft_.config.hidden};
    if (it->second->shape != shape) {
      return Status(StatusCode::kDataLoss,
                    fmt::format("{} has shape {}, but the config needs {}", it->second->name,
                                shape_text(it->second->shape), shape_text(shape)));
    }
    draft_.embed_tokens.resize(static_cast<std::size_t>(draft_.config.vocab * draft_.config.hidden));
    EAGLET_RETURN_IF_ERROR(convert(*it->second, draft_.embed_tokens.data()));
    if (report_ != nullptr) report_->loaded.push_back(it->second->name);
    return {};
  }

  void report_skipped() {
    if (report_ == nullptr) return;
    for (const auto& [name, entry] : entries_) {
      if (draft_.find(name) != nullptr || name == kEmbedding) continue;
      report_->skipped.push_back({entry->name, skip_reason(name).value_or("")});
    }
  }

  // Some tools store the vocabulary by frequency. Ours ascends; the head's rows go with their ids.
  void sort_head() {
    std::vector<std::size_t> order(draft_.vocab.target_ids.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::vector<std::int32_t> ids = draft_.vocab.target_ids;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
    const auto width = static_cast<std::size_t>(draft_.config.hidden);
    float* head = draft_.data(kHead);
    const std::vector<float> rows(head, head + order.size() * width);
    for (std::size_t i = 0; i < order.size(); ++i) {
      draft_.vocab.target_ids[i] = ids[order[i]];
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(order[i] * width), width, head + i * width);
    }
    if (report_ != nullptr)
      report_->notes.push_back(
          "the draft vocabulary was not stored in ascending order; ids and head rows were sorted");
  }

  const TensorSource& source_;
  const ReadDraftOptions& options_;
  LoadReport* report_;
  DraftWeights draft_;
  std::map<std::string, const SourceTensor*> entries_;
  bool ascending_ = true;
};

Result<DraftConfig> read_config_file(const std::string& path, const ReadDraftOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  auto config = draft_config_from_json(json);
  if (!config.ok()) return config.status().at(path);
  if (!options.aux_layers.empty()) config->aux_layers = options.aux_layers;
  if (config->aux_layers.empty()) {
    return Status(StatusCode::kConfig, "the config does not say which layers of the target the draft reads",
                  path,
                  "name them with --target-layer-ids (id k = the input of layer k), or give --model for the "
                  "usual three");
  }
  if (Status status = check_draft_config(*config); !status.ok()) return status.at(path);
  return config;
}

}  // namespace

Result<DraftWeights> read_draft_from(const TensorSource& source, const DraftConfig& config,
                                     const ReadDraftOptions& options, LoadReport* report) {
  try {
    Reader reader(source, options, report);
    auto draft = reader.read(config);
    if (!draft.ok()) return draft.status().at(source.path);
    return draft;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kNoSpace, "not enough memory for this draft", source.path);
  }
}

Result<DraftWeights> read_draft(const std::string& directory, const ReadDraftOptions& options,
                                LoadReport* report) {
  if (directory.ends_with(".gguf")) return read_draft_gguf(directory, options, report);
  EAGLET_ASSIGN_OR_RETURN(const DraftConfig config, read_config_file(directory + "/config.json", options));
  EAGLET_ASSIGN_OR_RETURN(const TensorSource source, open_tensor_source(directory));
  return read_draft_from(source, config, options, report);
}

Result<DraftWeights> read_draft(const std::string& directory, bool train_head, LoadReport* report) {
  ReadDraftOptions options;
  options.train_head = train_head;
  return read_draft(directory, options, report);
}

}  // namespace eaglet
