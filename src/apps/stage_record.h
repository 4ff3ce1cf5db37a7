#pragma once

#include <string>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet::apps {

/// What a run remembers of one stage: runs/NAME/stages/<stage>.json, written before the stage begins and when
/// it is done.
struct StageRecord {
  std::string stage;
  bool done = false;
  Json settings = Json::object();  // key -> value as text: what the result depends on
  Json inputs = Json::object();    // name -> fingerprint of what the stage read
  double seconds = 0;              // spent so far, over all tries
  double finished = 0;             // seconds since 1970
  Json result = Json::object();    // the stage's report

  /// 16 hex digits over settings and inputs: what later stages depend on.
  std::string fingerprint() const;
  /// What differs from the other record's settings and inputs ("epochs was 3, is 4"); empty when nothing
  /// does.
  std::string difference(const StageRecord& now) const;
};

/// kNotFound when the stage was never begun; kDataLoss when the record cannot be read.
Result<StageRecord> read_stage_record(const std::string& path);
Status write_stage_record(const std::string& path, const StageRecord& record);

}  // namespace eaglet::apps
