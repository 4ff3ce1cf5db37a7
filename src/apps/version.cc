#include "apps/version.h"

#include <curl/curl.h>
#include <fmt/core.h>
#include <hwy/highway.h>
#include <llama.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#define ONIG_ESCAPE_REGEX_T_COLLISION  // its regex_t is not the C library's
#include <oniguruma.h>
#include <toml++/toml.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "apps/cuda_backend.h"
#include "build-info.h"
#include "comm/comm.h"

namespace eaglet::apps {
namespace {

std::string dnnl_text() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string fmt_text() {
  return fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

std::string xxhash_text() {
  const unsigned version = XXH_versionNumber();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

Json version_facts(const BuildFacts& build) {
  return Json{{"schema", 1},
              {"version", build.version},
              {"revision", build.revision},
              {"build_type", build.build_type},
              {"compiler", build.compiler},
              {"cores", std::thread::hardware_concurrency()},
              {"libraries",
               {{"llama.cpp", llama_build_info()},
                {"oneDNN", dnnl_text()},
                {"OpenMP", _OPENMP},
                {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                              NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
                {"fmt", fmt_text()},
                {"CLI11", CLI11_VERSION},
                {"toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)},
                {"xxHash", xxhash_text()},
                {"MPI", mpi_version().empty() ? "built without" : mpi_version()},
                {"CUDA", cuda_version().empty() ? "built without" : cuda_version()},
                {"curl", curl_version_info(CURLVERSION_NOW)->version},
                {"zlib", zlibVersion()},
                {"zstd", ZSTD_versionString()},
                {"Oniguruma", onig_version()},
                {"utf8proc", utf8proc_version()},
                {"Highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)}}}};
}

}  // namespace eaglet::apps
