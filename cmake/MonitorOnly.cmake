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
set(apps cache_dir completion console device_time_text doctor_command exit_code help history_file host_link host_session launch_command
         orphans_command pager program screen source_hash suggest svg_chart terminal usage_error verdict_source wait_command waiting_threads
         watch_command watch_compare watch_frame watch_history watch_options watch_page watch_page_script watch_target without_maths)
configure_file(${src}/apps/build_facts.h.in ${CMAKE_BINARY_DIR}/generated/apps/build_facts.h @ONLY)
add_library(monitor_options INTERFACE)
target_include_directories(monitor_options INTERFACE ${src} ${CMAKE_BINARY_DIR})
target_include_directories(monitor_options SYSTEM INTERFACE ${headers})
target_compile_definitions(monitor_options INTERFACE FMT_HEADER_ONLY XXH_INLINE_ALL)
target_compile_options(monitor_options INTERFACE -Wall -Wextra -Os -ffunction-sections -fdata-sections)
target_link_libraries(monitor_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

add_executable(eaglet-monitor ${src}/apps/monitor_main.cc)
# As in Rooms.cmake: several files of a room as one unit, which is a third of the work, but for those that must stay apart.
function(monitor_room room)
  set(EAGLET_ROOM_APART "")
  include(${src}/${room}/libraries.cmake OPTIONAL)
  add_library(monitor_${room} OBJECT ${ARGN})
  set_target_properties(monitor_${room} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  foreach(file IN LISTS EAGLET_ROOM_APART)
    set_source_files_properties(${src}/${room}/${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  target_link_libraries(monitor_${room} PRIVATE monitor_options)
  target_link_libraries(eaglet-monitor PRIVATE monitor_${room})
endfunction()
foreach(room IN ITEMS base tensor runlog monitor)
  file(GLOB sources CONFIGURE_DEPENDS ${src}/${room}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  monitor_room(${room} ${sources})
endforeach()
monitor_room(formats ${src}/formats/json.cc ${src}/formats/npy.cc ${src}/formats/safetensors.cc)
list(TRANSFORM apps PREPEND ${src}/apps/)
list(TRANSFORM apps APPEND .cc)
monitor_room(apps ${apps})

target_link_libraries(eaglet-monitor PRIVATE monitor_options)
target_link_options(eaglet-monitor PRIVATE -Wl,--gc-sections -s)
set_target_properties(eaglet-monitor PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
