#include "extract/server_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "client/dispatcher.h"
#include "client/server_facts.h"
#include "extract/extract_work.h"
#include "extract/foreign_check.h"
#include "extract/foreign_slots.h"
#include "extract/held_files.h"
#include "extract/left_out.h"
#include "extract/states_folder.h"
#include "extract/states_journal.h"
#include "extract/states_request.h"
#include "extract/states_servers.h"

namespace eaglet {
namespace {

constexpr std::size_t kFirstDocuments = 16;  // after so many it shows whether a run makes sense
constexpr int kAskings = 2;                  // of one document whose states are bad
constexpr double kSecondsToDrain = 30;       // for files that are on their way when the run ends early

/// A file that a server named, until it is whole.
struct NamedStates {
  std::size_t document = 0;
  std::string name;
  double until = 0;
  int askings = 0;
};

class ServerStates {
 public:
  ServerStates(const ExtractOptions& options, Progress& progress) : options_(options), progress_(progress) {}

  Result<ExtractReport> run() {
    EAGLET_RETURN_IF_ERROR(prepare());
    if (work_.documents.empty() && writer_->finished_ids().empty())
      return nothing_to_learn(work_, options_, rows_);
    if (!work_.documents.empty()) {
      EAGLET_RETURN_IF_ERROR(tell_forecast(work_, options_, store_, header_, progress_));
      const double start = monotonic_seconds();
      started_ = start;
      const Status status = ask_all();
      report_.seconds = monotonic_seconds() - start;
      EAGLET_RETURN_IF_ERROR(finish(status));
    }
    if (work_.documents.empty()) EAGLET_RETURN_IF_ERROR(last_look());
    EAGLET_RETURN_IF_ERROR(journal_->end(held_.lines()));
    EAGLET_RETURN_IF_ERROR(writer_->finish());
    EAGLET_RETURN_IF_ERROR(add_totals(options_, &report_));
    if (!work_.documents.empty())
      progress_.end(fmt::format("{} documents, {} tokens, {}", report_.documents, report_.tokens,
                                human_bytes(static_cast<double>(report_.state_bytes))));
    return std::move(report_);
  }

 private:
  // ---- before the first request ----

  Status prepare() {
    EAGLET_ASSIGN_OR_RETURN(ConversationFile file, read_conversations(options_.conversations_path));
    EAGLET_ASSIGN_OR_RETURN(facts_, read_target_facts(options_.model_path));
    EAGLET_ASSIGN_OR_RETURN(slots_, slots_of_server(options_, facts_));
    progress_.note(describe_slots(slots_, facts_.num_layers));
    for (const std::string& note : slots_.notes) progress_.note(note);
    used_slots_ = slots_.aux_slots;
    used_slots_.push_back(slots_.last_slot);
    EAGLET_ASSIGN_OR_RETURN(StatesFolder folder, StatesFolder::open(options_.server.states_dir));
    folder_.emplace(std::move(folder));
    EAGLET_ASSIGN_OR_RETURN(StatesServers servers, connect_states_servers(options_, progress_));
    server_ = servers.server;
    pool_ = std::move(servers.pool);
    dispatcher_.emplace(*pool_, servers.dispatch);
    EAGLET_ASSIGN_OR_RETURN(store_, store_options(options_.store_dtype, options_.drop_unsupervised,
                                                  options_.shard_bytes, options_.writer));
    EAGLET_ASSIGN_OR_RETURN(const WriterShare share, writer_share(options_.writer));
    header_ = header_for(facts_, slots_.aux_places, store_);
    EAGLET_ASSIGN_OR_RETURN(writer_, StoreWriter::open(options_.store_path, header_, store_));
    for (const std::string& note : writer_->recovery_notes()) progress_.note(note);
    report_.broken_lines = static_cast<std::int64_t>(file.broken.size());
    std::erase_if(file.conversations, [&](const Conversation& row) { return !share.has(row.id); });
    rows_ = file.conversations.size();
    // The one token that must be asked for needs a place too.
    const std::int64_t limit = server_.max_context > 0 ? server_.max_context - 1 : 0;
    EAGLET_ASSIGN_OR_RETURN(work_,
                            plan_work(std::move(file.conversations), options_, facts_, writer_.get(), limit));
    tell_work(work_, progress_);
    report_.already_done = work_.already_done;
    report_.skipped_empty = work_.skipped_empty;
    report_.cut_away = work_.cut_away;
    return take_up_files();
  }

  /// Files that an earlier run was told of and did not take: those are taken first, nothing is asked again.
  Status take_up_files() {
    EAGLET_ASSIGN_OR_RETURN(StatesJournal journal, StatesJournal::open(options_.store_path, options_.writer));
    journal_.emplace(std::move(journal));
    for (std::size_t i = 0; i < work_.documents.size(); ++i) by_id_.emplace(work_.documents[i].id, i);
    asked_.resize(work_.documents.size(), false);
    in_store_.resize(work_.documents.size(), false);
    // The newest file of a document counts. One that is not there yet may still be on its way to the disk.
    for (auto line = journal_->left().rbegin(); line != journal_->left().rend(); ++line) {
      const auto& [id, name] = *line;
      const auto real = folder_->resolve(name);
      if (!real.ok() && real.status().code() != StatusCode::kNotFound) continue;
      if (const auto it = by_id_.find(id); it != by_id_.end() && !asked_[it->second]) {
        asked_[it->second] = true;
        ++report_.taken_over;
        named_.push_back({it->second, name, monotonic_seconds() + options_.server.wait_seconds, 0});
      } else if (real.ok()) {
        held_.add(id, name);  // nobody needs it: it goes at the end, when nobody holds it
      }
    }
    if (report_.taken_over > 0)
      progress_.note(
          fmt::format("{} files that an earlier run had asked for are taken first", report_.taken_over));
    return {};
  }

  // ---- the loop ----

  Status ask_all() {
    progress_.begin("extract", rows_ - static_cast<std::uint64_t>(work_.skipped_empty + work_.cut_away),
                    "documents", static_cast<std::uint64_t>(work_.already_done));
    for (std::size_t next = 0; stop_.ok();) {
      // Files that wait to be taken count: so many at most lie in the folder at any time.
      while (!stopping_ && next < work_.documents.size() && has_room()) {
        if (!asked_[next]) ask(next, 0);
        ++next;
      }
      if (dispatcher_->open() == 0 && named_.empty() && (stopping_ || next == work_.documents.size())) break;
      EAGLET_RETURN_IF_ERROR(dispatcher_->poll(named_.empty() ? 0.1 : 0.02));
      take_ready();
      tick();
    }
    if (!stop_.ok() || !stopping_) return stop_;
    return Status(
        StatusCode::kInterrupted,
        fmt::format("stopped by a signal; {} documents are in the store", report_.already_done + taken_),
        options_.store_path, "run the same command again to go on");
  }

  bool has_room() const {
    return dispatcher_->has_room() &&
           dispatcher_->open() + named_.size() < static_cast<std::size_t>(options_.server.concurrency);
  }

  void ask(std::size_t document, int askings) {
    asked_[document] = true;
    ++report_.asked;
    const Conversation& row = work_.documents[document];
    dispatcher_->send(
        kStatesRoute, states_request(server_.model, row.input_ids),
        [this, document, askings](const HttpReply& reply) { take_reply(document, askings, reply); });
  }

  void take_reply(std::size_t document, int askings, const HttpReply& reply) {
    const Conversation& row = work_.documents[document];
    const StatesAnswer answer = read_states_reply(reply, row.input_ids);
    switch (answer.kind) {
      case StatesReply::kFile:
        if (const Status noted = journal_->add(row.id, answer.file); !noted.ok()) stop(noted);
        named_.push_back(
            {document, answer.file, monotonic_seconds() + options_.server.wait_seconds, askings + 1});
        return;
      case StatesReply::kOtherTokens:
        return leave_out(document, answer.file, "other tokens", answer.message);
      case StatesReply::kRefused:
        return leave_out(document, {}, "refused by the server", answer.message);
      case StatesReply::kNoReply:
        return leave_out(document, {}, "no usable reply", answer.message);
      case StatesReply::kPermission:
        return stop(Status(StatusCode::kPermission, "the server refuses the API key: " + answer.message,
                           server_.url, "set " + options_.server.api_key_env + " to a valid key"));
      case StatesReply::kNoConnector:
        return stop(Status(StatusCode::kConfig, answer.message, server_.url,
                           "start it with " + connector_flags(slots_.slot_places)));
    }
  }

  /// Every named file that is whole by now.
  void take_ready() {
    for (auto it = named_.begin(); it != named_.end() && stop_.ok();) {
      const NamedStates named = *it;
      if (look_at(named))
        it = named_.erase(it);
      else
        ++it;
    }
  }

  /// False: not whole yet, and there is still time.
  bool look_at(const NamedStates& named) {
    const bool late = monotonic_seconds() >= named.until;
    const auto real = folder_->resolve(named.name);
    if (!real.ok()) {
      if (real.status().code() == StatusCode::kNotFound && !late) return false;
      const bool outside = real.status().code() == StatusCode::kPermission;
      if (outside)
        leave_out(named.document, named.name, "refused path", real.status().what());
      else
        drop(named, "no file", real.status().what());
      return true;
    }
    auto states = open_when_ready(StatesLayout::kVllm, *real, 0);
    if (!states.ok()) {
      const bool locked = states.status().code() == StatusCode::kBusy;
      if (!late && (locked || states.status().code() == StatusCode::kDataLoss)) return false;
      // A writer that still holds its lock may go on writing.
      if (locked) {
        drop(named, "locked", states.status().what());
      } else {
        remove(*real);
        bad(named, "cut/empty/header", states.status().what());
      }
      return true;
    }
    const StatesVerdict verdict = judge(*states, work_.documents[named.document]);
    if (!verdict.good()) {
      remove(*real);
      bad(named, problem_name(verdict.problem), verdict.reason);
      return true;
    }
    keep(named.document, *states, *real);
    return true;
  }

  StatesVerdict judge(const ForeignStates& states, const Conversation& row) const {
    if (states.slots.size() != slots_.slot_places.size() || states.width != facts_.hidden)
      return {StatesProblem::kOtherShape,
              fmt::format("{} slots of width {}, not {} of {}: the server captures other layers than [{}]",
                          states.slots.size(), states.width, slots_.slot_places.size(), facts_.hidden,
                          fmt::join(slots_.slot_places, ", "))};
    return check_foreign(states, &row, 0, used_slots_);
  }

  void keep(std::size_t document, const ForeignStates& states, const std::string& real) {
    if (in_store_[document]) return remove(real);  // an earlier file came late, after all
    const Conversation& row = work_.documents[document];
    DocumentStates taken;
    taken.id = row.id;
    taken.input_ids = row.input_ids;
    taken.loss_mask = row.loss_mask;
    taken.states = gather_states(states, slots_, {}, states.rows);
    Status status = writer_->append(taken);
    // The server's file goes only when its numbers are safe on the disk.
    if (status.ok()) status = writer_->flush();
    if (!status.ok()) return stop(status);
    remove(real);
    ++taken_;
    failed_in_a_row_ = 0;
    tokens_ += static_cast<std::int64_t>(row.input_ids.size());
    in_store_[document] = true;
  }

  /// Not to be waited for any longer, but not to be deleted either: it is looked at again at the end.
  void drop(const NamedStates& named, const std::string& problem, const std::string& reason) {
    held_.add(work_.documents[named.document].id, named.name);
    bad(named, problem, reason);
    if (held_.lines().size() < enough_failures()) return;
    if (const Status status = settle_held(0); !status.ok()) return stop(status);
    if (held_.lines().size() >= enough_failures())
      stop(Status(StatusCode::kUnavailable,
                  fmt::format("{} files of states stay locked", held_.lines().size()), folder_->root(),
                  "look at the server's log; then run the same command again to go on"));
  }

  std::size_t enough_failures() const {
    return std::max<std::size_t>(kFirstDocuments, 2 * static_cast<std::size_t>(options_.server.concurrency));
  }

  void remove(const std::string& real) {
    if (const Status status = folder_->remove(real); !status.ok()) stop(status);
  }

  void bad(const NamedStates& named, const std::string& problem, const std::string& reason) {
    if (in_store_[named.document]) return;
    if (named.askings < kAskings && !stopping_ && (taken_ > 0 || named.askings == 0))
      return ask(named.document, named.askings);
    leave_out(named.document, named.name, problem, reason);
  }

  void leave_out(std::size_t document, const std::string& file, const std::string& problem,
                 const std::string& reason) {
    if (in_store_[document]) return;  // an earlier file came late, after all
    const std::string& id = work_.documents[document].id;
    left_out_.add(document, id, file, problem, reason);
    progress_.note(fmt::format("document {} left out: {}", id, reason));
    const std::size_t enough = std::min(kFirstDocuments, work_.documents.size());
    if (taken_ == 0 && left_out_.size() >= enough)
      stop(Status(StatusCode::kConfig,
                  fmt::format("none of the first {} documents brought usable states; the last: {}",
                              left_out_.size(), reason),
                  server_.url, "mend what the reason names; then run the same command again"));
    else if (++failed_in_a_row_ >= enough_failures())
      stop(Status(StatusCode::kUnavailable,
                  fmt::format("{} documents in a row brought no usable states; the last: {}",
                              failed_in_a_row_, reason),
                  server_.url, "look at the server's log; then run the same command again to go on"));
  }

  void stop(const Status& why) {
    if (stop_.ok()) stop_ = why;
  }

  void tick() {
    const double now = monotonic_seconds();
    report_.tokens_per_second = static_cast<double>(tokens_) / std::max(now - started_, 1e-9);
    progress_.update(
        static_cast<std::uint64_t>(work_.already_done) + taken_ + left_out_.size(),
        fmt::format("{} asked, {} files to take, {} left out, {:.0f} tokens/s", dispatcher_->open(),
                    named_.size(), left_out_.size(), report_.tokens_per_second));
    if (interrupted() && !stopping_) {
      stopping_ = true;
      stop_by_ = now + kSecondsToDrain;
      progress_.note(fmt::format("stopping: waiting up to {:.0f} s for {} files that are on their way",
                                 kSecondsToDrain, dispatcher_->open() + named_.size()));
    }
    if (stopping_ && now > stop_by_)
      stop(Status(StatusCode::kInterrupted,
                  fmt::format("stopped by a signal; {} documents are in the store",
                              report_.already_done + static_cast<std::int64_t>(taken_)),
                  options_.store_path, "run the same command again to go on"));
  }

  // ---- at the end ----

  Status finish(const Status& status) {
    // Names of files that are on their way are wanted even now: the next run takes or deletes those files.
    const double until = monotonic_seconds() + (interrupted() ? 1 : kSecondsToDrain);
    while (dispatcher_->open() > 0 && monotonic_seconds() < until)
      if (!dispatcher_->poll(0.1).ok()) break;
    const Status looked = status.ok() ? last_look() : Status();
    report_.left_out = left_out_.counts();
    EAGLET_RETURN_IF_ERROR(write_file_atomic(options_.store_path + "/left_out.jsonl", left_out_.lines()));
    EAGLET_RETURN_IF_ERROR(looked);
    if (!status.ok()) {
      if (!named_.empty() || !held_.empty())
        progress_.note(
            fmt::format("{} files of states were not taken; {} names them, and the same command "
                        "takes or removes them",
                        named_.size() + held_.lines().size(), journal_->path()));
      EAGLET_RETURN_IF_ERROR(writer_->flush());
      return status;
    }
    if (left_out_.size() > 0)
      progress_.note(
          fmt::format("{} documents left out, named in {}/left_out.jsonl; the same command asks them again",
                      left_out_.size(), options_.store_path));
    return {};
  }

  /// Files that could not be taken are looked at once more, as long as one file is waited for.
  Status last_look() {
    const double until = monotonic_seconds() + options_.server.wait_seconds;
    if (!held_.empty())
      progress_.note(fmt::format("{} files of states are looked at once more", held_.lines().size()));
    EAGLET_RETURN_IF_ERROR(settle_held(until));
    EAGLET_RETURN_IF_ERROR(stop_);
    if (held_.empty()) return {};
    report_.left_behind = held_.lines();
    progress_.note(fmt::format(
        "{} files of states stay in {}: their server still holds the lock ({}{}); {} names them, and the "
        "same command takes or removes them once the lock is free",
        held_.lines().size(), folder_->root(), held_.lines().front().second,
        held_.lines().size() > 1 ? ", ..." : "", journal_->path()));
    return {};
  }

  Status settle_held(double until) {
    return held_.settle(*folder_, until, [this](const std::string& id, const std::string& real) {
      return take_late(id, real);
    });
  }

  /// A file whose lock is free at last: taken when its document still lacks states. It goes either way.
  Status take_late(const std::string& id, const std::string& real) {
    const auto it = by_id_.find(id);
    if (it != by_id_.end() && !in_store_[it->second]) {
      const auto states = open_when_ready(StatesLayout::kVllm, real, 0);
      if (states.ok() && judge(*states, work_.documents[it->second]).good()) {
        keep(it->second, *states, real);
        if (in_store_[it->second]) left_out_.take_back(it->second);
        return stop_;
      }
    }
    return folder_->remove(real);
  }

  const ExtractOptions& options_;
  Progress& progress_;
  TargetFacts facts_;
  SlotChoice slots_;
  std::vector<std::size_t> used_slots_;
  std::optional<StatesFolder> folder_;
  ServerFacts server_;
  std::unique_ptr<HttpPool> pool_;
  std::optional<Dispatcher> dispatcher_;  // after the pool: its requests are dropped with the pool
  StoreWriterOptions store_;
  StoreHeader header_;
  std::unique_ptr<StoreWriter> writer_;
  std::optional<StatesJournal> journal_;
  ExtractWork work_;
  std::unordered_map<std::string, std::size_t> by_id_;  // of work_.documents
  std::vector<bool> asked_, in_store_;
  std::list<NamedStates> named_;
  HeldFiles held_;
  ExtractReport report_;
  LeftOut left_out_;
  std::uint64_t rows_ = 0;
  std::size_t taken_ = 0, failed_in_a_row_ = 0;
  std::int64_t tokens_ = 0;
  Status stop_;  // set by what ends the run
  bool stopping_ = false;
  double started_ = 0, stop_by_ = 0;
};

}  // namespace

Result<ExtractReport> extract_from_servers(const ExtractOptions& options, Progress& progress) {
  return ServerStates(options, progress).run();
}

}  // namespace eaglet
