set(EAGLET_ROOM_LIBRARIES fmt::fmt nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS})
# Where tests/CMakeLists.txt puts the made-up NVIDIA libraries.
set_source_files_properties(${dir}/nvml_test.cc PROPERTIES COMPILE_DEFINITIONS
  "EAGLET_FAKE_NVML=\"${CMAKE_BINARY_DIR}/tests/fake_nvml.so\";EAGLET_FAKE_NVML_OLD=\"${CMAKE_BINARY_DIR}/tests/fake_nvml_old.so\"")
set(EAGLET_ROOM_APART data_look.cc kernel_log.cc package_energy.cc slow_signals.cc verdict_wire.cc
    desync.cc idle_power.cc listening.cc metric_tables.cc nvml_gpm.cc own_devices.cc port_look.cc shm_leftovers.cc
    device_share.cc open_data.cc run_end.cc sqlite_file.cc trackio_tail.cc verdict_plain.cc trackio_machine.cc judge_tracked.cc
    http_get.cc server_activity.cc server_metrics.cc judge_server.cc file_leftovers.cc wake.cc)
