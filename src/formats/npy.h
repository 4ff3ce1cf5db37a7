#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// A NumPy file (.npy) with one list of whole numbers or truth values. kDataLoss: cut, damaged; kConfig: more
/// dimensions, another number type, pickled objects. Source: numpy.lib.format, versions 1 and 2.
Result<std::vector<std::int64_t>> read_npy_integers(const std::string& path);
Result<std::vector<std::int64_t>> parse_npy_integers(const std::byte* data, std::uint64_t bytes);

Status write_npy_int64(const std::string& path, const std::vector<std::int64_t>& values);
Status write_npy_bool(const std::string& path, const std::vector<std::uint8_t>& values);

}  // namespace eaglet
