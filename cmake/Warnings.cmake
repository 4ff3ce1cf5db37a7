# Flags every target of ours gets through eaglet_options. Warnings are errors in CI only (EAGLET_WERROR).
add_library(eaglet_options INTERFACE)
target_compile_options(eaglet_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Wimplicit-fallthrough -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(eaglet_options INTERFACE -Wno-restrict)  # false alarms on "literal" + std::string (GCC bug 105651)
endif()
if(EAGLET_WERROR)
  target_compile_options(eaglet_options INTERFACE -Werror)
endif()
if(EAGLET_SANITIZE)
  target_compile_options(eaglet_options INTERFACE -fsanitize=${EAGLET_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(eaglet_options INTERFACE -fsanitize=${EAGLET_SANITIZE})
endif()
