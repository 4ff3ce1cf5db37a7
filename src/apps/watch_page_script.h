#pragma once

namespace eaglet::apps {

/// JavaScript of the page of a run, of our own. The first part lets a reader choose steps or the clock as the
/// x axis and zoom by dragging; it needs no server. The second one keeps a served page up to date.
extern const char* const kWatchViewScript;
extern const char* const kWatchLiveScript;

}  // namespace eaglet::apps
