set(EAGLET_ROOM_LIBRARIES CLI11::CLI11 tomlplusplus::tomlplusplus)
