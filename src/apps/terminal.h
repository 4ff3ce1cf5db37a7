#pragma once

#include <string>

namespace eaglet::apps {

/// True when the stream behind this file descriptor is a terminal that understands cursor codes: stdout and
/// stderr are asked apart, either may be redirected alone. TERM=dumb and CI (set to anything but "", "0",
/// "false") say no.
bool is_live_terminal(int fd);

/// Columns of the terminal behind `fd`: the kernel's answer, then COLUMNS, then 80.
int terminal_columns(int fd);
/// Its rows: the kernel's answer, else 24.
int terminal_rows(int fd);

enum class ColorMode { kAuto, kAlways, kNever };

/// Whether text for `fd` may be coloured. --color always/never wins; then NO_COLOR (set and not empty),
/// CLICOLOR_FORCE / FORCE_COLOR (set, not "0"), TERM=dumb; else a terminal says yes.
bool use_color(ColorMode mode, int fd);

enum class Tone { kGood, kWarn, kBad, kStrong, kDim };
/// `text` in a colour that carries meaning, or as it is. The word itself must say the same without colour.
std::string toned(const std::string& text, Tone tone, bool color);

/// One write(2) call (repeated only after a short write), so that lines of several writers never mix.
void write_whole(int fd, const std::string& text);

}  // namespace eaglet::apps
