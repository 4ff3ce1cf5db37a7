#include "tensor_core.h"

#include <bit>
#include <cstring>
#include <string>

#include "block.h"
#include "emulation.h"

namespace emulation {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

std::uint64_t address(const void* at) {
  return reinterpret_cast<std::uint64_t>(at);
}
template <class T>
T* as(std::uint64_t at) {
  return reinterpret_cast<T*>(at);
}

float low(std::uint32_t both) {
  return std::bit_cast<float>(both << 16);
}
float high(std::uint32_t both) {
  return std::bit_cast<float>(both & 0xffff0000u);
}

// What a lane brings to multiply_tile().
struct Share {
  const std::uint32_t* a;
  std::uint32_t b[2];
  float* c;
};

struct Operands {
  double a[16][16], b[16][8];
};

void gather(const std::uint64_t* all, Operands* of) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Share& share = *as<const Share>(all[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned part = 0; part < 4; ++part) {
      const unsigned row = g + 8 * (part % 2), column = 2 * t + 8 * (part / 2);
      of->a[row][column] = low(share.a[part]);
      of->a[row][column + 1] = high(share.a[part]);
    }
    for (unsigned part = 0; part < 2; ++part) {
      of->b[2 * t + 8 * part][g] = low(share.b[part]);
      of->b[2 * t + 8 * part + 1][g] = high(share.b[part]);
    }
  }
}

// By the lane that comes last, for all.
void multiply_all(const std::uint64_t* all) {
  Operands of;
  gather(all, &of);
  double sums[16][8] = {};
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) sums[i][j] += of.a[i][k] * of.b[k][j];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Share& share = *as<const Share>(all[lane]);
    for (unsigned part = 0; part < 4; ++part) {
      const double sum = sums[lane / 4 + 8 * (part / 2)][2 * (lane % 4) + part % 2];
      share.c[part] = static_cast<float>(share.c[part] + sum);
    }
  }
}

struct LoadShare {
  const void* row;
  std::uint32_t* r;
  bool turned;
};

void load_all(const std::uint64_t* all) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const LoadShare& share = *as<const LoadShare>(all[lane]);
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t two[2];
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned row = share.turned ? 2 * (lane % 4) + i : lane / 4;
        const unsigned column = share.turned ? lane / 4 : 2 * (lane % 4) + i;
        two[i] = as<const std::uint16_t>(address(as<const LoadShare>(all[8 * matrix + row])->row))[column];
      }
      share.r[matrix] = static_cast<std::uint32_t>(two[0]) | static_cast<std::uint32_t>(two[1]) << 16;
    }
  }
}

void want_alignment(const void* at, const char* what) {
  if (address(at) % 16 != 0) fault(std::string(what) + " of an address that is not aligned to 16 bytes");
}

}  // namespace

void multiply_tile(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float (&c)[4]) {
  const Share share{a, {b0, b1}, c};
  warp_exchange(kAllLanes, "mma", address(&share), &multiply_all);
}

void load_matrices(const void* row, std::uint32_t (&r)[4], bool turned) {
  want_alignment(row, "ldmatrix");
  const LoadShare share{row, r, turned};
  warp_exchange(kAllLanes, turned ? "ldmatrix.trans" : "ldmatrix", address(&share), &load_all);
}

void copy_async(void* to, const void* from, std::size_t bytes, bool wanted) {
  want_alignment(to, "cp.async");
  if (wanted) want_alignment(from, "cp.async");
  const auto copy = [=] {
    if (wanted)
      std::memcpy(to, from, bytes);
    else
      std::memset(to, 0, bytes);
  };
  if (copies_come_late())
    add_pending_copy(copy);
  else
    copy();
}
void wait_for_copies() {
  run_pending_copies();
}

std::uint32_t pack_bf16(float low, float high) {
  const auto rounded = [](float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
}
float bits_as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

}  // namespace emulation
