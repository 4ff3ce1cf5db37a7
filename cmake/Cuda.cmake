# EAGLET_CUDA: the .cu files of all rooms, compiled by nvcc into the library eaglet_cuda (docs/gpu.md). The CUDA runtime is
# linked statically and finds the driver when it is asked to, so a machine without one runs the same program. nvcc is
# called directly: CMake's CUDA language does not know the layout that the Python index has.
#   src/*/*.cu               -> eaglet_cuda
#   src/*/*_device_test.cc   -> cuda_device_tests, skipped where no device is
# EAGLET_NVCC is looked for in $CUDA_HOME, in PATH, under /usr/local/cuda, and where scripts/cuda-compiler puts it.
find_program(EAGLET_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin ${EAGLET_CACHE_DIR}/cuda-13.0/bin)
if(NOT EAGLET_NVCC)
  message(FATAL_ERROR "EAGLET_CUDA is ON and there is no nvcc. Run scripts/cuda-compiler, which fetches one from the "
                      "Python index, or give -DEAGLET_NVCC=<path of nvcc>, or leave EAGLET_CUDA out.")
endif()
file(REAL_PATH ${EAGLET_NVCC} real_nvcc)
get_filename_component(cuda_root ${real_nvcc} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
find_library(EAGLET_CUDART cudart_static REQUIRED
             HINTS ${cuda_root}/lib64 ${cuda_root}/lib ${cuda_root}/targets/x86_64-linux/lib
                   ${cuda_root}/targets/sbsa-linux/lib)
execute_process(COMMAND ${EAGLET_NVCC} --version OUTPUT_VARIABLE nvcc_text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${nvcc_text}")
set(EAGLET_CUDA_VERSION ${CMAKE_MATCH_1})
if(EAGLET_CUDA_VERSION VERSION_LESS 12.4)
  message(FATAL_ERROR "${EAGLET_NVCC} is of CUDA ${EAGLET_CUDA_VERSION}; 12.4 or newer is needed")
endif()

# Code for these, as far as this nvcc knows them, and PTX of the last for what comes after.
set(EAGLET_CUDA_ARCHITECTURES 80 86 89 90 100 120 CACHE STRING "Compute capabilities to compile for, ascending")
execute_process(COMMAND ${EAGLET_NVCC} --list-gpu-code OUTPUT_VARIABLE known_code COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9]+" known_code "${known_code}")
set(code_flags "")
foreach(arch IN LISTS EAGLET_CUDA_ARCHITECTURES)
  if(arch IN_LIST known_code)
    list(APPEND code_flags -gencode arch=compute_${arch},code=sm_${arch})
    set(last_arch ${arch})
  endif()
endforeach()
if(NOT last_arch)
  message(FATAL_ERROR "EAGLET_CUDA_ARCHITECTURES (${EAGLET_CUDA_ARCHITECTURES}) names nothing that ${EAGLET_NVCC} knows")
endif()
list(APPEND code_flags -gencode arch=compute_${last_arch},code=compute_${last_arch})
message(STATUS "CUDA ${EAGLET_CUDA_VERSION} (${EAGLET_NVCC}): ${code_flags}")

set(nvcc_flags -std=c++20 -O3 -lineinfo -I${CMAKE_SOURCE_DIR}/src -ccbin ${CMAKE_CXX_COMPILER}
               -Xcompiler=-Wall,-Wextra,-fPIC -Xptxas=-warn-spills ${code_flags})
if(EAGLET_WERROR)
  list(APPEND nvcc_flags -Werror all-warnings -Xcompiler=-Werror)
endif()
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/*.cu)
set(cuda_objects "")
foreach(source IN LISTS cuda_sources)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${source})
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  get_filename_component(object_dir ${object} DIRECTORY)
  file(MAKE_DIRECTORY ${object_dir})
  add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "nvcc ${name}"
                     COMMAND ${EAGLET_NVCC} ${nvcc_flags} -MD -MF ${object}.d -c ${source} -o ${object})
  list(APPEND cuda_objects ${object})
endforeach()
add_library(eaglet_cuda STATIC ${cuda_objects})
set_target_properties(eaglet_cuda PROPERTIES LINKER_LANGUAGE CXX)
target_compile_definitions(eaglet_cuda INTERFACE EAGLET_CUDA_VERSION="${EAGLET_CUDA_VERSION}")
target_link_libraries(eaglet_cuda PUBLIC eaglet_ops eaglet_comm ${EAGLET_CUDART} ${CMAKE_DL_LIBS} Threads::Threads rt)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/apps/cuda_backend.cc TARGET_DIRECTORY eaglet_apps
                            PROPERTIES COMPILE_DEFINITIONS EAGLET_CUDA_VERSION="${EAGLET_CUDA_VERSION}")

if(EAGLET_TESTS)
  file(GLOB device_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/*_device_test.cc)
  add_executable(cuda_device_tests ${CMAKE_SOURCE_DIR}/tests/cuda_device_main.cc ${device_tests})
  target_link_libraries(cuda_device_tests PRIVATE eaglet_train eaglet_cuda GTest::gtest GTest::gmock)
  target_compile_definitions(cuda_device_tests PRIVATE EAGLET_TESTDATA="${CMAKE_SOURCE_DIR}/testdata")
  set_target_properties(cuda_device_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  # checks/device.sh runs both.
  add_executable(cuda_device_bench ${CMAKE_SOURCE_DIR}/tests/cuda_device_bench.cc)
  target_link_libraries(cuda_device_bench PRIVATE eaglet_cuda)
  set_target_properties(cuda_device_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  add_test(NAME cuda.ops_on_device COMMAND cuda_device_tests)
  set_tests_properties(cuda.ops_on_device PROPERTIES LABELS cuda TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
