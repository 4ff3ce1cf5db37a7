# eaglet_rooms(): reads src/ROOMS and makes one static library per room, linked to exactly its arrows.
#   src/<room>/*.cc              -> library eaglet_<room>   (not *_test.cc, *_bench.cc)
#   src/<room>/*_test.cc         -> one test program <room>_tests, discovered by ctest
#   src/<room>/*_device_test.cc  -> tests of ops on a device: tests/cuda_emulation, and cmake/Cuda.cmake for a real one
#   src/<room>/*_bench.cc        -> one program <room>_bench (Google Benchmark), when EAGLET_BENCH is on
# A room's own third-party libraries stand in src/<room>/libraries.cmake (a list EAGLET_ROOM_LIBRARIES), and so do the
# files that a unity build compiles apart (EAGLET_ROOM_APART).
function(eaglet_rooms)
  file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/ROOMS lines REGEX "^[a-z]+:")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ROOMS)
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([a-z]+):(.*)$" _ "${line}")
    set(room ${CMAKE_MATCH_1})
    string(STRIP "${CMAKE_MATCH_2}" arrows)
    string(REPLACE " " ";" arrows "${arrows}")
    eaglet_room(${room} "${arrows}")
  endforeach()
endfunction()

function(eaglet_room room arrows)
  set(dir ${CMAKE_CURRENT_SOURCE_DIR}/${room})
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  set(benches ${sources})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER tests EXCLUDE REGEX "_device_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_bench|_main)\\.cc$")
  set(EAGLET_ROOM_LIBRARIES "")
  set(EAGLET_ROOM_APART "")
  if(EXISTS ${dir}/libraries.cmake)
    include(${dir}/libraries.cmake)
  endif()
  if(sources)
    add_library(eaglet_${room} STATIC ${sources})
    set(scope PUBLIC)
    # Local names may meet in one unit: a file that keeps such a name for itself stands in EAGLET_ROOM_APART.
    set_target_properties(eaglet_${room} PROPERTIES UNITY_BUILD ${EAGLET_UNITY} UNITY_BUILD_BATCH_SIZE 6)
    foreach(file IN LISTS EAGLET_ROOM_APART)
      set_source_files_properties(${dir}/${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endforeach()
    eaglet_share_headers(eaglet_${room})
  else()
    add_library(eaglet_${room} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(eaglet_${room} ${scope} ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(eaglet_${room} ${scope} eaglet_options ${EAGLET_ROOM_LIBRARIES})
  foreach(arrow IN LISTS arrows)
    target_link_libraries(eaglet_${room} ${scope} eaglet_${arrow})
  endforeach()
  if(EAGLET_TESTS AND tests)
    add_executable(${room}_tests ${tests})
    target_link_libraries(${room}_tests PRIVATE eaglet_${room} GTest::gtest GTest::gmock GTest::gtest_main)
    eaglet_share_headers(${room}_tests)
    target_compile_definitions(${room}_tests PRIVATE EAGLET_TESTDATA="${CMAKE_SOURCE_DIR}/testdata"
                               EAGLET_SAMPLE_MODEL="${EAGLET_SAMPLE_MODEL}")
    gtest_discover_tests(${room}_tests TEST_PREFIX ${room}. DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS ${room} TIMEOUT 600 
                                    ENVIRONMENT "EAGLET_MODEL=${EAGLET_SAMPLE_MODEL}"
                                    # A property of its own: of a list in ENVIRONMENT only the first would arrive. Two tests at
                                    # a time whose threads spin at barriers wait for each other, up to thirty times as long.
                                    ENVIRONMENT_MODIFICATION "OMP_WAIT_POLICY=set:passive")
  endif()
  if(EAGLET_BENCH AND benches)
    add_executable(${room}_bench ${benches})
    target_link_libraries(${room}_bench PRIVATE eaglet_${room} benchmark::benchmark benchmark::benchmark_main)
  endif()
endfunction()

function(eaglet_share_headers target)
  if(EAGLET_PCH)
    target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${target} REUSE_FROM eaglet_pch)
  endif()
endfunction()
