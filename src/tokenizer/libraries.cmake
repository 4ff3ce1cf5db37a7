# libonig also defines regcomp() and regexec(), with other structures than the C library's: whoever calls these (MPI, tests) must find
# the C library's, so it stands before.
set(EAGLET_ROOM_LIBRARIES fmt::fmt nlohmann_json::nlohmann_json -Wl,-lc onig utf8proc)
