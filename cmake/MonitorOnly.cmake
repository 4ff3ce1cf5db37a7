# The monitor-only program (EAGLET_MONITOR_ONLY): the rooms base, tensor, runlog and monitor, three readers of formats, and the
# watch family of apps. No maths, no llama.cpp, no curl: header-only libraries and the C library are all it needs, so that one
# file can be sent to any Linux of its machine type. scripts/monitor-program builds it with a cross-compiler.
find_package(Threads REQUIRED)

# The cross-compiler must not see /usr/include as a whole: the headers of this machine's C library are there.
set(headers ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
foreach(file IN ITEMS fmt/format.h nlohmann/json.hpp CLI/CLI.hpp xxhash.h)
  find_path(EAGLET_HEADER_${file} ${file} PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  string(REGEX REPLACE "/.*" "" name ${file})  # the library's folder
  file(CREATE_LINK ${EAGLET_HEADER_${file}}/${name} ${headers}/${name} SYMBOLIC)
endforeach()

set(src ${CMAKE_SOURCE_DIR}/src)
file(GLOB sources CONFIGURE_DEPENDS ${src}/base/*.cc ${src}/tensor/*.cc ${src}/runlog/*.cc ${src}/monitor/*.cc)
list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
set(apps cache_dir completion console doctor_command exit_code help host_link host_session launch_command monitor_main
         orphans_command pager program screen suggest svg_chart terminal usage_error verdict_source wait_command waiting_threads
         watch_command watch_compare watch_frame watch_history watch_options watch_page watch_target without_maths)
list(TRANSFORM apps PREPEND ${src}/apps/)
list(TRANSFORM apps APPEND .cc)

configure_file(${src}/apps/build_facts.h.in ${CMAKE_BINARY_DIR}/generated/apps/build_facts.h @ONLY)
add_executable(eaglet-monitor ${sources} ${src}/formats/json.cc ${src}/formats/npy.cc
               ${src}/formats/safetensors.cc ${apps})
target_include_directories(eaglet-monitor PRIVATE ${src} ${CMAKE_BINARY_DIR})
target_include_directories(eaglet-monitor SYSTEM PRIVATE ${headers})
target_compile_definitions(eaglet-monitor PRIVATE FMT_HEADER_ONLY XXH_INLINE_ALL)
target_compile_options(eaglet-monitor PRIVATE -Wall -Wextra -Os -ffunction-sections -fdata-sections)
target_link_options(eaglet-monitor PRIVATE -Wl,--gc-sections -s)
target_link_libraries(eaglet-monitor PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(eaglet-monitor PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
