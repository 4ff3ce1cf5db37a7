set(EAGLET_ROOM_LIBRARIES nlohmann_json::nlohmann_json LlamaCpp::llama ZLIB::ZLIB zstd::libzstd_shared)
