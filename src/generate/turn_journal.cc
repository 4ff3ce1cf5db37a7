#include "generate/turn_journal.h"

#include <fmt/format.h>

#include <exception>

#include "formats/json.h"

namespace eaglet {
namespace {

Json line_of(const std::string& id, const std::string& hash, const ServedAnswer& answer) {
  return {{"id", id},
          {"prompt_hash", hash},
          {"turn", answer.turn},
          {"text", answer.text},
          {"cut", answer.cut},
          {"cut_while_thinking", answer.cut_while_thinking},
          {"ended_by_stop", answer.ended_by_stop},
          {"prompt_ids", answer.prompt_ids},
          {"answer_ids", answer.answer_ids},
          {"answer_tokens", answer.answer_tokens}};
}

Result<ServedAnswer> answer_of(const Json& line) {
  ServedAnswer answer;
  try {
    answer.outcome = Outcome::kAnswer;
    answer.turn = line.at("turn");
    answer.text = line.at("text").get<std::string>();
    answer.cut = line.at("cut").get<bool>();
    answer.cut_while_thinking = line.at("cut_while_thinking").get<bool>();
    answer.ended_by_stop = line.at("ended_by_stop").get<bool>();
    answer.prompt_ids = line.at("prompt_ids").get<std::vector<std::int32_t>>();
    answer.answer_ids = line.at("answer_ids").get<std::vector<std::int32_t>>();
    answer.answer_tokens = line.at("answer_tokens").get<std::int64_t>();
  } catch (const std::exception& error) {
    return Status(StatusCode::kDataLoss, error.what());
  }
  if (!answer.turn.is_object() || !answer.turn.contains("content"))
    return Status(StatusCode::kDataLoss, "the turn has no content");
  return answer;
}

}  // namespace

Result<TurnJournal> TurnJournal::open(const std::string& path) {
  TurnJournal journal(path);
  if (!path_exists(path)) return journal;
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::size_t at = 0, number = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    ++number;
    const auto bad = [&](const std::string& what) {
      return Status(StatusCode::kDataLoss, fmt::format("line {} is not a turn of ours: {}", number, what),
                    path, "remove the file; the talks in it are then asked from their start");
    };
    const auto line = parse_json(std::string_view(text).substr(at, end - at));
    if (!line.ok() || !line->is_object() || !line->contains("id") || !(*line)["id"].is_string() ||
        !line->contains("prompt_hash") || !(*line)["prompt_hash"].is_string())
      return bad(line.ok() ? "no id" : line.status().what());
    Result<ServedAnswer> answer = answer_of(*line);
    if (!answer.ok()) return bad(answer.status().what());
    OpenTalk& talk = journal.talks_[(*line)["id"].get<std::string>()];
    const std::string hash = (*line)["prompt_hash"].get<std::string>();
    if (talk.hash != hash) talk = {hash, {}};
    talk.answers.push_back(std::move(*answer));
  }
  return journal;
}

const std::vector<ServedAnswer>& TurnJournal::answers(const std::string& id, const std::string& hash) const {
  static const std::vector<ServedAnswer> none;
  const auto found = talks_.find(id);
  return found == talks_.end() || found->second.hash != hash ? none : found->second.answers;
}

Status TurnJournal::append(const std::string& id, const std::string& hash, const ServedAnswer& answer) {
  if (lines_.empty()) {
    EAGLET_ASSIGN_OR_RETURN(LineAppender lines, LineAppender::open(path_));
    lines_.push_back(std::move(lines));
  }
  return lines_[0].append(json_line(line_of(id, hash, answer)));
}

Status TurnJournal::remove() {
  lines_.clear();
  return remove_all(path_);
}

}  // namespace eaglet
