#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace eaglet::monitor {

/// Small readers for foreign text. None of them throws, allocates without bound, or needs valid UTF-8.

bool is_digit(char c);
std::string_view trim(std::string_view text);
bool starts_with(std::string_view text, std::string_view start);
bool contains(std::string_view text, std::string_view part);
bool contains_any(std::string_view text, std::initializer_list<const char*> parts);
/// ASCII only.
std::string lower(std::string_view text);
/// Parts between blanks; empty parts are left out.
std::vector<std::string_view> words(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);

/// "1.2e-05", "7.", "nan", "-inf", "+3", "1,190,920,192"; the whole text must be the number. Quotes around it
/// are fine.
std::optional<double> number(std::string_view text);
/// The longest number at the start; *rest is what follows it.
std::optional<double> leading_number(std::string_view text, std::string_view* rest);
/// A whole number with thousands commas; nullopt when it does not fit.
std::optional<std::int64_t> whole_number(std::string_view text);

/// Without colour codes and other terminal controls (CSI, OSC, single escapes) and without NUL bytes.
std::string without_controls(std::string_view text);
/// Characters, counting a UTF-8 sequence once.
std::size_t columns(std::string_view text);

/// "2026-03-04T11:01:30", with a blank for the T, with fraction, Z or +01:00. Without a zone it is taken as
/// UTC: only differences are used. nullopt when the text does not begin so; *rest is what follows.
std::optional<double> iso_time(std::string_view text, std::string_view* rest = nullptr);
/// "01:02:10", "1-01:02:10" (ps), "02:11", "61.5": seconds.
std::optional<double> clock_duration(std::string_view text);
/// "71212 MiB", "94.97 GiB", "600 kB": bytes. A bare number is MiB, as nvidia-smi's nounits has it.
std::optional<double> mebibytes_text(std::string_view text);

}  // namespace eaglet::monitor
