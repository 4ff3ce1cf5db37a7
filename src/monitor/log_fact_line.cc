#include <algorithm>

#include "monitor/log_reader.h"
#include "monitor/other_host.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

/// The first whole number after `start` in `text`, over anything that is no digit.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view start) {
  const std::size_t at = text.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t from = text.find_first_of("0123456789", at + start.size());
  if (from == std::string_view::npos) return std::nullopt;
  std::size_t end = from;
  while (end < text.size() &&
         ((text[end] >= '0' && text[end] <= '9') ||
          (text[end] == ',' && end + 1 < text.size() && text[end + 1] >= '0' && text[end + 1] <= '9')))
    ++end;
  return whole_number(text.substr(from, end - from));
}

/// "Saving checkpoint to P", "Checkpoint saved to P": P.
std::string path_after(std::string_view text, std::string_view words_before) {
  const std::size_t at = text.find(words_before);
  if (at == std::string_view::npos) return {};
  std::string_view path = trim(text.substr(at + words_before.size()));
  path = path.substr(0, path.find(' '));
  while (!path.empty() && (path.front() == '\'' || path.front() == '"')) path.remove_prefix(1);
  while (!path.empty() && (path.back() == '\'' || path.back() == '"' || path.back() == '.'))
    path.remove_suffix(1);
  return std::string(path);
}

/// "max_seq_len: 8192", "max-seq-len = 8192", "--max-seq-len 8192": names that settings are compared by.
constexpr std::size_t kMostHosts = 64;
constexpr const char* kSettingNames[] = {"max_seq_len", "ttt_steps",     "draft_vocab_size", "epochs",
                                         "batch_size",  "warmup_steps",  "total_steps",      "num_workers",
                                         "world_size",  "train_samples", "real_tokens"};

std::string underscored(std::string_view text) {
  std::string out = lower(text);
  for (char& c : out)
    if (c == '-') c = '_';
  return out;
}

}  // namespace

bool LogReader::fact_line(std::string_view text) {
  const std::string low = lower(text);
  bool known = true;
  const auto read = [&](const char* start, std::optional<std::int64_t>* value) {
    if (const auto found = number_after(low, start))
      *value = found;
    else
      return false;
    return true;
  };
  bool fact = read("total training", &facts_.total_training_steps);
  fact = read("train batches", &facts_.train_batches) || fact;
  fact = read("val batches", &facts_.val_batches) || fact;
  if (read("trainable params", &facts_.trainable_params)) {
    fact = true;
    const std::size_t slash = low.find('/', low.find("trainable params"));
    if (slash != std::string::npos)
      facts_.total_params = number_after(std::string_view(low).substr(slash), "/");
  }
  if (contains(low, " loaded") && contains(low, " skipped")) {
    const auto before = [&](const char* word) {
      const std::string_view front = trim(std::string_view(low).substr(0, low.find(word)));
      const auto parts = words(front);
      return parts.empty() ? std::optional<std::int64_t>() : whole_number(parts.back());
    };
    facts_.tensors_loaded = before(" loaded");
    facts_.tensors_skipped = before(" skipped");
    fact = true;
  }
  for (const char* name : kSettingNames) {
    const std::string spaced = underscored(text);
    const std::size_t at = spaced.find(name);
    if (at == std::string::npos || (at > 0 && std::isalnum(static_cast<unsigned char>(spaced[at - 1])) != 0))
      continue;
    std::string_view rest = std::string_view(text).substr(at + std::string_view(name).size());
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == ':' || rest.front() == '=' ||
                             rest.front() == '"' || rest.front() == '\''))
      rest.remove_prefix(1);
    std::size_t end = 0;
    while (end < rest.size() && rest[end] != ' ' && rest[end] != ',' && rest[end] != '}') ++end;
    if (!number(rest.substr(0, end))) continue;
    facts_.settings[name] = std::string(rest.substr(0, end));
    fact = true;
  }
  if (const std::string host = host_of_line(text); !host.empty()) {
    auto& hosts = facts_.hosts;
    const bool listed = std::find(hosts.begin(), hosts.end(), host) != hosts.end();
    if (!listed && hosts.size() < kMostHosts) hosts.push_back(host);
    fact = true;
  }
  if (contains_any(low, {"training finished", "training complete", "training is complete",
                         "finished training", "`trainer.fit` stopped", "training done"}) ||
      starts_with(low, "trained ")) {
    facts_.finished = true;
    facts_.finished_line = std::string(text.substr(0, 200));
    set_phase(LogPhase::kFinished);
  } else if (contains_any(
                 low, {"resuming", "fast-skipping", "starting fresh", "no previous training checkpoint"})) {
    facts_.resumed = facts_.resumed || contains(low, "resuming");
    facts_.finished = false;
    restarted_ = true;
    set_phase(LogPhase::kLoad);
  } else if (contains_any(low, {"saving checkpoint", "saving final", "saving model", "checkpoint saved",
                                "saved checkpoint"})) {
    set_phase(LogPhase::kSave);
    for (const char* start : {"saved to", "checkpoint to"}) {
      const std::string path = path_after(text, start);
      if (path.empty()) continue;
      facts_.checkpoints.push_back(path);
      if (facts_.checkpoints.size() > 64) facts_.checkpoints.erase(facts_.checkpoints.begin());
      break;
    }
  } else if (contains(low, "validation epoch") && contains(low, "started")) {
    set_phase(LogPhase::kValidate);
  } else if (contains(low, "training epoch") && contains(low, "started")) {
    set_phase(LogPhase::kTrain);
  } else if (contains_any(low, {"compiling", "torch.compile", "torchinductor"})) {
    set_phase(LogPhase::kCompile);
  } else if (starts_with(low, "loading") ||
             contains_any(low, {"loading shard", "loading weights", "loading model"})) {
    set_phase(LogPhase::kLoad);
  } else {
    known = fact;
  }
  return known;
}

}  // namespace eaglet::monitor
