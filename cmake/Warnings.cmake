# Flags every target of ours gets through eaglet_options. Warnings are errors in CI only (EAGLET_WERROR).
add_library(eaglet_options INTERFACE)
target_compile_options(eaglet_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Wimplicit-fallthrough -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on "literal" + std::string (GCC bug 105651).
  target_compile_options(eaglet_options INTERFACE -Wno-restrict -Wno-stringop-overflow
                         -Wno-stringop-overread -Wno-array-bounds)
endif()
if(EAGLET_WERROR)
  # The same false alarms of GCC 12 under two more names, once its headers are precompiled.
  target_compile_options(eaglet_options INTERFACE -Werror -Wno-error=array-bounds -Wno-error=stringop-overflow)
endif()
if(EAGLET_UNITY)
  # Meant for headers: a unit includes the .cc files, so that their local types look like a header's.
  target_compile_options(eaglet_options INTERFACE -Wno-subobject-linkage)
endif()
if(EAGLET_SANITIZE)
  target_compile_options(eaglet_options INTERFACE -fsanitize=${EAGLET_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(eaglet_options INTERFACE -fsanitize=${EAGLET_SANITIZE})
endif()

# One set of flags for all rooms, so that they can share one precompiled header.
target_link_libraries(eaglet_options INTERFACE OpenMP::OpenMP_CXX)

# Half of a file's compile time is these headers. -fpch-preprocess lets a compiler cache work with them.
option(EAGLET_PCH "Precompile the standard and JSON headers" ON)
add_library(eaglet_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(eaglet_pch PRIVATE eaglet_options fmt::fmt nlohmann_json::nlohmann_json)
if(EAGLET_PCH)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(eaglet_options INTERFACE -fpch-preprocess)
  endif()
  target_precompile_headers(eaglet_pch PRIVATE <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional>
                            <string> <string_view> <unordered_map> <unordered_set> <vector> <fmt/format.h>
                            <fmt/ranges.h> <nlohmann/json.hpp>)
endif()
