set(EAGLET_ROOM_LIBRARIES fmt::fmt nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS})
