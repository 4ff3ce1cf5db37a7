#include "extract/states_maker.h"

#include "base/files.h"
#include "formats/json.h"
#include "formats/json_field.h"

namespace eaglet {

namespace {

std::string note_of(const std::string& store_path) {
  return store_path + "/states_maker.json";
}

}  // namespace

std::string native_maker(ComputeType type) {
  return std::string("native, products in ") + compute_type_name(type);
}

std::string maker_of(const std::string& store_path) {
  const Result<Json> noted = read_json_file(note_of(store_path));
  if (!noted.ok()) return {};
  const Json* maker = json_field(*noted, "maker");
  return maker != nullptr && maker->is_string() ? maker->get<std::string>() : std::string();
}

Status agree_on_maker(const std::string& store_path, const std::string& maker) {
  const std::string path = note_of(store_path);
  // Several writers may begin a store together.
  EAGLET_RETURN_IF_ERROR(write_file_once(path, json_line({{"maker", maker}}) + "\n"));
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
