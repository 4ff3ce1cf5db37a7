set(EAGLET_ROOM_LIBRARIES fmt::fmt Threads::Threads xxhash)
