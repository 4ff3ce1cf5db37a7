# Finds libllama with its common library (chat templates, the speculative loop): target LlamaCpp::llama.
# Looked for in EAGLET_LLAMA_PREFIX, the usual prefixes, and the cache that scripts/setup fills
# (EAGLET_CACHE_DIR, or $XDG_CACHE_HOME/eaglet, or ~/.cache/eaglet). LLAMA_COMMON headers are those of the same revision,
# in <prefix>/include/llama-common.
set(EAGLET_LLAMA_BUILD 0c1e570.2) # as in scripts/lib.sh
if(NOT EAGLET_CACHE_DIR)
  if(DEFINED ENV{EAGLET_CACHE_DIR})
    set(EAGLET_CACHE_DIR $ENV{EAGLET_CACHE_DIR})
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(EAGLET_CACHE_DIR $ENV{XDG_CACHE_HOME}/eaglet)
  else()
    set(EAGLET_CACHE_DIR $ENV{HOME}/.cache/eaglet)
  endif()
endif()
set(EAGLET_CACHE_DIR ${EAGLET_CACHE_DIR} CACHE PATH "Where downloads and the built llama.cpp are kept")
set(EAGLET_SAMPLE_MODEL ${EAGLET_CACHE_DIR}/smollm2-135m-instruct-q4_1.gguf
    CACHE FILEPATH "The sample target model, for the tests that need a real one")

set(_hints ${EAGLET_LLAMA_PREFIX} $ENV{EAGLET_LLAMA_PREFIX} ${EAGLET_CACHE_DIR}/llama.cpp-${EAGLET_LLAMA_BUILD})
find_path(LLAMA_INCLUDE_DIR llama.h HINTS ${_hints} PATH_SUFFIXES include)
find_path(LLAMA_COMMON_INCLUDE_DIR speculative.h HINTS ${_hints} PATH_SUFFIXES include/llama-common)
set(_needed LLAMA_INCLUDE_DIR LLAMA_COMMON_INCLUDE_DIR)
foreach(name llama-common llama-common-base llama vendor-hash ggml ggml-cpu ggml-base)
  find_library(LLAMA_LIB_${name} ${name} HINTS ${_hints} PATH_SUFFIXES lib lib64)
endforeach()
list(APPEND _needed LLAMA_LIB_llama-common LLAMA_LIB_llama LLAMA_LIB_ggml LLAMA_LIB_ggml-base)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LlamaCpp REQUIRED_VARS ${_needed}
  REASON_FAILURE_MESSAGE "run scripts/setup first, or give -DEAGLET_LLAMA_PREFIX=<where libllama is installed>")
if(LlamaCpp_FOUND AND NOT TARGET LlamaCpp::llama)
  add_library(LlamaCpp::llama INTERFACE IMPORTED)
  target_include_directories(LlamaCpp::llama SYSTEM INTERFACE ${LLAMA_INCLUDE_DIR} ${LLAMA_COMMON_INCLUDE_DIR})
  foreach(name llama-common llama-common-base llama vendor-hash ggml ggml-cpu ggml-base)
    if(LLAMA_LIB_${name})  # a shared installation has ggml-cpu inside or as a plug-in
      target_link_libraries(LlamaCpp::llama INTERFACE ${LLAMA_LIB_${name}})
    endif()
  endforeach()
  # By name, not by target: CMake puts a shared library given by path once, and perhaps before the archives that need it.
  target_link_libraries(LlamaCpp::llama INTERFACE -lgomp -lpthread ${CMAKE_DL_LIBS} m)
endif()
