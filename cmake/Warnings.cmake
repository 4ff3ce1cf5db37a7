# Flags every target of ours gets through eaglet_options. Warnings are errors in CI only (EAGLET_WERROR).
add_library(eaglet_options INTERFACE)
target_compile_options(eaglet_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Wimplicit-fallthrough -fno-math-errno)
# GCC 12 warns about std::string operator+ inside the standard library (GCC bug 105329).
target_compile_options(eaglet_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(EAGLET_WERROR)
  target_compile_options(eaglet_options INTERFACE -Werror)
endif()
if(EAGLET_SANITIZE)
  target_compile_options(eaglet_options INTERFACE -fsanitize=${EAGLET_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(eaglet_options INTERFACE -fsanitize=${EAGLET_SANITIZE})
endif()
