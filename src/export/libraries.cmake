set(EAGLET_ROOM_LIBRARIES LlamaCpp::llama)
