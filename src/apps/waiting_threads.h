#pragma once

namespace eaglet::apps {

/// Makes OpenMP threads sleep while they wait for each other, after spinning for some microseconds, by
/// starting the program again with GOMP_SPINCOUNT (the OpenMP runtime reads it once, before main). Does
/// nothing when the user has set a policy. Call it before any thread is started; it takes about as long as
/// the start-up did. Spinning loses badly on a shared machine: SmolLM2-135M states on 2 cores with a load of
/// 8 to 13, 29 November 2026: 39 tokens/s spinning, 99 sleeping. Never spinning costs a training step about 2
/// % on a free machine: its products are short.
void let_waiting_threads_sleep(char** argv);

}  // namespace eaglet::apps
