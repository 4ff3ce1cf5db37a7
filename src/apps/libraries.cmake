set(EAGLET_ROOM_LIBRARIES CLI11::CLI11 tomlplusplus::tomlplusplus)
set(EAGLET_ROOM_APART host_link.cc host_session.cc program.cc server_probe.cc verdict_source.cc completion.cc measured_peak.cc pager.cc)
# Only in the monitor-only program (cmake/MonitorOnly.cmake), which lacks what this stands for.
list(FILTER sources EXCLUDE REGEX "/without_maths\\.cc$")
