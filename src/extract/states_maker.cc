#include "extract/states_maker.h"

#include "base/files.h"
#include "formats/json.h"
#include "formats/json_field.h"

namespace eaglet {

Status agree_on_maker(const std::string& store_path, const std::string& maker) {
  const std::string path = store_path + "/states_maker.json";
  if (!path_exists(path)) return write_file_atomic(path, json_line({{"maker", maker}}) + "\n");
  EAGLET_ASSIGN_OR_RETURN(const Json noted, read_json_file(path));
  const Json* before = json_field(noted, "maker");
  if (before != nullptr && *before == maker) return {};
  return Status(StatusCode::kConfig,
                "the states in the store were made by " +
                    (before != nullptr ? json_shown(*before) : std::string("something unknown")) +
                    ", now by \"" + maker + "\"",
                path, "give the same --engine, --compute-type and --weights, or another --output-dir");
}

}  // namespace eaglet
