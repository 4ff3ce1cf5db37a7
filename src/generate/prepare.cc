#include "generate/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <unordered_map>

#include "base/files.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "formats/conversations.h"
#include "formats/length_limit.h"
#include "formats/row_source.h"
#include "generate/answer_file.h"
#include "generate/side_lines.h"
#include "verifier/talk_renderer.h"
#include "verifier/target_tokens.h"

namespace eaglet {
namespace {

Status left_out(const std::string& why) {
  return Status(StatusCode::kInvalidArgument, why);
}

/// The work of one run: where rows come from, what they become, and what is counted.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, Progress& progress)
      : options_(options), progress_(progress), side_(side_file(options.output_path, "skipped.jsonl")) {}

  Result<PrepareReport> run() {
    const std::string parent = std::filesystem::path(options_.output_path).parent_path().string();
    if (!parent.empty()) EAGLET_RETURN_IF_ERROR(make_directories(parent));
    EAGLET_ASSIGN_OR_RETURN(AtomicFile output, AtomicFile::create(options_.output_path));
    progress_.begin("prepare", 0, "lines");
    for (const std::string& input : options_.inputs) EAGLET_RETURN_IF_ERROR(read(input, &output));
    EAGLET_RETURN_IF_ERROR(side_.commit());
    if (report_.rows == 0) return nothing_left();
    EAGLET_RETURN_IF_ERROR(output.commit());
    progress_.end(fmt::format("{} of {} lines kept", report_.kept, report_.lines));
    if (side_.lines() > 0)
      progress_.note(fmt::format("what was left out or is odd is named in {}", side_.path()));
    return report_;
  }

 private:
  Status read(const std::string& input, AtomicFile* output) {
    EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> rows, RowSource::open(input));
    RowText row;
    for (;;) {
      EAGLET_ASSIGN_OR_RETURN(const bool there, rows->next(&row));
      if (!there) return {};
      ++report_.lines;
      if (row.blank()) {
        ++report_.blank_lines;
        continue;
      }
      const std::string place = fmt::format("{} {} of {}", rows->unit(), row.number, input);
      const Status status = take(row, input, output);
      if (status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kInvalidArgument) {
        EAGLET_RETURN_IF_ERROR(leave_out(status.what(), row, input, place));
      } else {
        EAGLET_RETURN_IF_ERROR(status);
      }
      progress_.update(static_cast<std::uint64_t>(report_.lines));
      if (interrupted())
        return Status(StatusCode::kInterrupted, "stopped by a signal; nothing was written",
                      options_.output_path, "run the same command again");
    }
  }

  Status leave_out(const std::string& why, const RowText& row, const std::string& input,
                   const std::string& place) {
    ++report_.left_out[reason_group(why)];
    side_.add({{"file", input}, {"line", row.number}, {"id", id_}, {"reason", why}});
    if (!options_.strict) return {};
    return Status(StatusCode::kDataLoss, why, place, "mend that row, or leave --strict out to skip it");
  }

  Status take(const RowText& row, const std::string& input, AtomicFile* output) {
    id_.clear();
    Result<AnsweredRow> parsed = parse_answered_row(row.text);
    if (!parsed.ok() && row.unfinished)
      return left_out(parsed.status().what() + "; the last line has no end: its writer was stopped there");
    if (!parsed.ok()) return parsed.status();
    id_ = parsed->id;
    EAGLET_RETURN_IF_ERROR(check_seen(*parsed, row.number));
    std::vector<Conversation> rows;
    if (parsed->has_tokens) {
      rows.push_back(std::move(parsed->tokens));
    } else {
      for (const std::string& warning : parsed->talk.warnings)
        side_.add({{"file", input}, {"line", row.number}, {"id", id_}, {"warning", warning}});
      report_.warnings += parsed->talk.warnings.empty() ? 0 : 1;
      EAGLET_ASSIGN_OR_RETURN(rows, render(parsed->talk));
    }
    return keep(std::move(rows), output);
  }

  /// The first row of an id wins. The same content again is a duplicate; other content is a second row that
  /// nobody could tell from the first.
  Status check_seen(const AnsweredRow& row, std::uint64_t number) {
    const std::string hash =
        row.has_tokens
            ? hex64(xxh64(row.tokens.input_ids.data(), row.tokens.input_ids.size() * sizeof(std::int32_t)))
            : talk_hash(row.talk.messages, row.talk.tools);
    const auto [before, is_new] = seen_.try_emplace(row.id, Seen{number, hash});
    if (is_new) return {};
    if (before->second.hash == hash)
      return left_out(fmt::format("same id and content as line {}", before->second.line));
    return left_out(
        fmt::format("the id was used by an earlier line ({}) for another conversation", before->second.line));
  }

  Result<std::vector<Conversation>> render(const Talk& talk) {
    if (renderer_ == nullptr) EAGLET_RETURN_IF_ERROR(open_renderer());
    EAGLET_ASSIGN_OR_RETURN(const std::vector<TalkRow> rendered,
                            renderer_->rows(talk.messages, talk.tools, false));
    std::vector<Conversation> rows;
    for (const TalkRow& row : rendered) {
      Conversation one;
      one.id = rendered.size() == 1 ? talk.id : part_id(talk.id, rows.size() + 1, rendered.size());
      one.input_ids = row.input_ids;
      one.loss_mask = row.loss_mask;
      one.finish_reason = row.ends ? "stop" : "length";
      one.messages = Json::array();
      for (std::size_t i = 0; i <= row.turns.back(); ++i) one.messages.push_back(talk.messages[i]);
      one.tools = talk.tools;
      one.text = talk.messages[row.turns.back()]["content"].get<std::string>();
      rows.push_back(std::move(one));
    }
    if (options_.last_turn_only && !rows.empty()) {
      rows.erase(rows.begin(), rows.end() - 1);
      rows.back().id = talk.id;
      unlearn_earlier(&rows.back());
    }
    const auto has = [&](const char* name) {
      return std::any_of(talk.messages.begin(), talk.messages.end(),
                         [name](const Json& turn) { return turn.contains(name); });
    };
    report_.with_thinking += has("reasoning_content");
    report_.with_tools += has("tool_calls");
    return rows;
  }

  /// Only the last run of supervised tokens stays.
  static void unlearn_earlier(Conversation* row) {
    const auto last_run = std::find(row->loss_mask.rbegin(), row->loss_mask.rend(), 0);
    std::fill(last_run, row->loss_mask.rend(), 0);
  }

  Status open_renderer() {
    if (options_.model_path.empty())
      return Status(StatusCode::kUsage, "these conversations are texts, and no tokenizer is given",
                    id_.empty() ? "--model" : "conversation " + id_,
                    "give --model TARGET: its tokenizer and its chat template are used");
    EAGLET_ASSIGN_OR_RETURN(target_, TargetTokens::open(options_.model_path));
    RenderOptions how;
    how.learn_empty_thinking = options_.learn_empty_thinking;
    if (!options_.template_path.empty()) {
      EAGLET_ASSIGN_OR_RETURN(how.template_text, read_file(options_.template_path));
    }
    if (!options_.template_arguments.empty()) {
      auto arguments = parse_json(options_.template_arguments);
      if (!arguments.ok() || !arguments->is_object())
        return Status(StatusCode::kUsage, "--template-arguments is not a JSON object", {},
                      "give for example '{\"enable_thinking\": false}'");
      how.template_arguments = std::move(*arguments);
    }
    EAGLET_ASSIGN_OR_RETURN(renderer_, TalkRenderer::open(*target_, how));
    return {};
  }

  Status keep(std::vector<Conversation> rows, AtomicFile* output) {
    LimitResult worst = LimitResult::kNothingSupervised;
    bool kept = false;
    for (Conversation& row : rows) {
      const std::int64_t needed = least_useful_limit(row);
      const LimitResult result = cut_to_limit(options_.max_seq_len, &row);
      if (result == LimitResult::kNothingLeft) {
        worst = result;
        least_limit_ = least_limit_ == 0 ? needed : std::min(least_limit_, needed);
      }
      if (result == LimitResult::kNothingLeft || result == LimitResult::kNothingSupervised) continue;
      report_.cut += result == LimitResult::kCut;
      EAGLET_RETURN_IF_ERROR(output->write(conversation_line(row) + "\n"));
      ++report_.rows;
      report_.tokens += static_cast<std::int64_t>(row.input_ids.size());
      report_.supervised_tokens += std::count(row.loss_mask.begin() + 1, row.loss_mask.end(), 1);
      kept = true;
    }
    report_.kept += kept;
    if (kept) return {};
    if (worst == LimitResult::kNothingLeft)
      return left_out(
          fmt::format("cut by the length limit of {}: the answer begins behind it", options_.max_seq_len));
    return left_out("nothing supervised: no token of it is marked as the target's own");
  }

  Status nothing_left() const {
    const std::string where = fmt::format("{}", fmt::join(options_.inputs, ", "));
    if (least_limit_ > 0)
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("no supervised token is left under the limit of {} tokens ({})",
                                options_.max_seq_len, reasons_text(report_.left_out)),
                    where, fmt::format("give --max-seq-len {} or more", least_limit_));
    if (report_.lines == 0)
      return Status(StatusCode::kDataLoss, "there are no conversations: the input is empty", where,
                    "give files with one conversation a line, or one JSON list of them");
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("none of the {} lines can be learnt from ({})", report_.lines,
                              reasons_text(report_.left_out)),
                  where, fmt::format("look into {}", side_.path()));
  }

  struct Seen {
    std::uint64_t line;
    std::string hash;
  };
  const PrepareOptions& options_;
  Progress& progress_;
  SideLines side_;
  PrepareReport report_;
  std::string id_;  // of the row at hand, for the side file
  std::unordered_map<std::string, Seen> seen_;
  std::unique_ptr<TargetTokens> target_;
  std::unique_ptr<TalkRenderer> renderer_;
  std::int64_t least_limit_ = 0;
};

}  // namespace

Result<bool> has_token_rows(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> rows, RowSource::open(path));
  RowText row;
  for (;;) {
    EAGLET_ASSIGN_OR_RETURN(const bool there, rows->next(&row));
    if (!there) return true;  // nothing to render: its reader tells what is wrong
    const Result<AnsweredRow> parsed = parse_answered_row(row.text);
    if (parsed.ok()) return parsed->has_tokens;
  }
}

Result<PrepareReport> prepare(const PrepareOptions& options, Progress& progress) {
  if (options.max_seq_len < 0)
    return Status(StatusCode::kUsage, "--max-seq-len is below 0", "eaglet prepare", "0 means no cut");
  return Preparation(options, progress).run();
}

}  // namespace eaglet
