set(EAGLET_ROOM_LIBRARIES CLI11::CLI11 tomlplusplus::tomlplusplus)
set(EAGLET_ROOM_APART host_link.cc host_session.cc program.cc server_probe.cc verdict_source.cc completion.cc measured_peak.cc pager.cc without_cuda.cc cuda_backend.cc)
# CUDA is optional (EAGLET_CUDA): one of the two files that define open_cuda_backend() is left out.
if(EAGLET_CUDA)
  list(FILTER sources EXCLUDE REGEX "/without_cuda\\.cc$")
  list(APPEND EAGLET_ROOM_LIBRARIES eaglet_cuda)
else()
  list(FILTER sources EXCLUDE REGEX "/cuda_backend\\.cc$")
endif()
# Only in the monitor-only program (cmake/MonitorOnly.cmake), which lacks what this stands for.
list(FILTER sources EXCLUDE REGEX "/without_maths\\.cc$")
