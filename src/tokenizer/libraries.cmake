set(EAGLET_ROOM_LIBRARIES fmt::fmt nlohmann_json::nlohmann_json onig utf8proc)
