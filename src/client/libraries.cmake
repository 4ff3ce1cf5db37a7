set(EAGLET_ROOM_LIBRARIES CURL::libcurl nlohmann_json::nlohmann_json)
