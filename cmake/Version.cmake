# The revision goes into one generated header that only apps/ includes, so a commit does not rebuild the tree.
set(EAGLET_REVISION "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
                  OUTPUT_VARIABLE EAGLET_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
elseif(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/REVISION)  # a release archive carries its revision in this file
  file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/REVISION EAGLET_REVISION LIMIT_COUNT 1)
endif()
