#include "extract/states_journal.h"

#include <algorithm>
#include <sstream>

#include "formats/json.h"
#include "formats/json_field.h"

namespace eaglet {

Result<StatesJournal> StatesJournal::open(const std::string& store_path, const std::string& writer) {
  std::string share = writer.empty() ? "" : "." + writer;
  std::replace(share.begin(), share.end(), '/', '-');
  StatesJournal journal(store_path + "/server_files" + share + ".jsonl");
  if (path_exists(journal.path_)) {
    EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(journal.path_));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto json = parse_json(line);  // a half line of a kill is none
      if (!json.ok()) continue;
      const Json *id = json_field(*json, "id"), *file = json_field(*json, "file");
      if (id != nullptr && id->is_string() && file != nullptr && file->is_string())
        journal.left_.emplace_back(id->get<std::string>(), file->get<std::string>());
    }
  }
  EAGLET_ASSIGN_OR_RETURN(LineAppender appender, LineAppender::open(journal.path_));
  journal.lines_.emplace(std::move(appender));
  return journal;
}

Status StatesJournal::add(const std::string& id, const std::string& name) {
  return lines_->append(json_line({{"id", id}, {"file", name}}));
}

Status StatesJournal::end(const std::vector<std::pair<std::string, std::string>>& left) {
  lines_.reset();
  if (left.empty()) return remove_all(path_);
  std::string text;
  for (const auto& [id, name] : left) text += json_line({{"id", id}, {"file", name}}) + "\n";
  return write_file_atomic(path_, text);
}

}  // namespace eaglet
