#pragma once

namespace eaglet {

/// Waits until `fd` is ready for `events` (POLLIN, POLLOUT), also by an error or its other end's leaving:
/// true. False when `until` (monotonic_seconds) has passed, or a signal asks us to stop (interrupted()),
/// which is seen within 0.2 s: signals end no call of ours early.
bool wait_ready(int fd, short events, double until);

}  // namespace eaglet
