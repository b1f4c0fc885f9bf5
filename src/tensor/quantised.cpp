// Compiled with -ffp-contract=off: `d * q + m` must round twice, as the reference does.
#include "tensor/quantised.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace pellucid::tensor {
namespace {

using files::GgmlType;
using Bytes = const uint8_t*;

constexpr int kBlock = 32;        // elements of a Q4_0 ... Q8_0 block
constexpr int kSuperBlock = 256;  // elements of a K block

template <typename T>
T read(Bytes at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float half_at(Bytes at) { return half_to_float(read<uint16_t>(at)); }

template <typename T>
void plain(Bytes in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(read<T>(in + i * sizeof(T)));
}

void from_half(Bytes in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = half_at(in + 2 * i);
}

void from_bfloat16(Bytes in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(read<uint16_t>(in + 2 * i)) << 16);
  }
}

// The formats below: one function turns one block into its elements. In the 32-element formats the
// low halves of 16 bytes are elements 0 to 15, the high halves 16 to 31.

/// half d, 16 bytes of 4 bits: d * (q - 8)
void q4_0(Bytes in, float* out) {
  const float d = half_at(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((in[2 + i] >> 4) - 8);
  }
}

/// half d, half m, 16 bytes of 4 bits: d * q + m
void q4_1(Bytes in, float* out) {
  const float d = half_at(in), m = half_at(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(in[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(in[4 + i] >> 4) + m;
  }
}

/// half d, 32 fifth bits, 16 bytes of 4 bits: d * (q - 16)
void q5_0(Bytes in, float* out) {
  const float d = half_at(in);
  const auto high = read<uint32_t>(in + 2);
  for (int i = 0; i < 16; ++i) {
    const int low_q = (in[6 + i] & 15) | (high >> i & 1) << 4;
    const int high_q = (in[6 + i] >> 4) | (high >> (i + 16) & 1) << 4;
    out[i] = d * static_cast<float>(low_q - 16);
    out[i + 16] = d * static_cast<float>(high_q - 16);
  }
}

/// half d, half m, 32 fifth bits, 16 bytes of 4 bits: d * q + m
void q5_1(Bytes in, float* out) {
  const float d = half_at(in), m = half_at(in + 2);
  const auto high = read<uint32_t>(in + 4);
  for (int i = 0; i < 16; ++i) {
    const int low_q = (in[8 + i] & 15) | (high >> i & 1) << 4;
    const int high_q = (in[8 + i] >> 4) | (high >> (i + 16) & 1) << 4;
    out[i] = d * static_cast<float>(low_q) + m;
    out[i + 16] = d * static_cast<float>(high_q) + m;
  }
}

/// half d, 32 signed bytes: q * d
void q8_0(Bytes in, float* out) {
  const float d = half_at(in);
  for (int i = 0; i < kBlock; ++i) out[i] = static_cast<float>(static_cast<int8_t>(in[2 + i])) * d;
}

/// 16 bytes of (scale, min) in 4 bits each, 64 bytes of 2 bits, half d, half dmin.
/// Sub-blocks of 16: d*scale * q - dmin*min.
void q2_k(Bytes in, float* out) {
  const Bytes scales = in, q = in + 16;
  const float d = half_at(in + 80), dmin = half_at(in + 82);
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(scales[sub] & 15);
    const float min = dmin * static_cast<float>(scales[sub] >> 4);
    // 128 elements share 32 bytes: two bits for each run of 32.
    const Bytes bytes = q + 32 * (sub / 8) + 16 * (sub % 2);
    const int shift = 2 * (sub % 8 / 2);
    for (int i = 0; i < 16; ++i) {
      out[16 * sub + i] = scale * static_cast<float>(bytes[i] >> shift & 3) - min;
    }
  }
}

/// 32 bytes of third bits, 64 bytes of 2 bits, 12 bytes of 16 six-bit scales, half d.
/// Sub-blocks of 16: d*(scale - 32) * (q - 4 where the third bit is 0).
void q3_k(Bytes in, float* out) {
  const Bytes third = in, q = in + 32, packed = in + 96;
  const float d = half_at(in + 108);
  for (int sub = 0; sub < 16; ++sub) {
    const int low = packed[sub % 8] >> (sub < 8 ? 0 : 4) & 15;
    const int high = packed[8 + sub % 4] >> (2 * (sub / 4)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const Bytes bytes = q + 32 * (sub / 8) + 16 * (sub % 2);
    const Bytes third_bytes = third + 16 * (sub % 2);
    const int shift = 2 * (sub % 8 / 2), third_shift = sub / 2;
    for (int i = 0; i < 16; ++i) {
      const int offset = (third_bytes[i] >> third_shift & 1) == 1 ? 0 : 4;
      out[16 * sub + i] = scale * static_cast<float>((bytes[i] >> shift & 3) - offset);
    }
  }
}

/// The 6-bit scale and minimum of sub-block `sub` of 8, out of the 12 bytes of Q4_K and Q5_K.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(Bytes packed, int sub) {
  if (sub < 4) return {packed[sub] & 63, packed[sub + 4] & 63};
  return {(packed[sub + 4] & 15) | (packed[sub - 4] >> 2 & 48),
          (packed[sub + 4] >> 4) | (packed[sub] >> 2 & 48)};
}

/// half d, half dmin, 12 bytes of scales, 128 bytes of 4 bits.
/// Sub-blocks of 32: d*scale * q - dmin*min.
void q4_k(Bytes in, float* out) {
  const float d = half_at(in), dmin = half_at(in + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleMin packed = scale_min(in + 4, sub);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    const Bytes bytes = in + 16 + 32 * (sub / 2);
    const int shift = 4 * (sub % 2);
    for (int i = 0; i < 32; ++i) {
      out[32 * sub + i] = scale * static_cast<float>(bytes[i] >> shift & 15) - min;
    }
  }
}

/// As Q4_K with 32 bytes of fifth bits before the 4-bit ones.
void q5_k(Bytes in, float* out) {
  const float d = half_at(in), dmin = half_at(in + 2);
  const Bytes fifth = in + 16;
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleMin packed = scale_min(in + 4, sub);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    const Bytes bytes = in + 48 + 32 * (sub / 2);
    const int shift = 4 * (sub % 2);
    for (int i = 0; i < 32; ++i) {
      const int q = (bytes[i] >> shift & 15) | (fifth[i] >> sub & 1) << 4;
      out[32 * sub + i] = scale * static_cast<float>(q) - min;
    }
  }
}

/// 128 bytes of 4 bits, 64 bytes of 2 more bits, 16 signed scales, half d.
/// Sub-blocks of 16: d*scale * (q - 32).
void q6_k(Bytes in, float* out) {
  const Bytes low = in, high = in + 128, scales = in + 192;
  const float d = half_at(in + 208);
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[sub]));
    const int half = sub / 8, run = sub % 8 / 2, part = 16 * (sub % 2);  // run: of 32 elements
    const Bytes low_bytes = low + 64 * half + 32 * (run % 2) + part;
    const Bytes high_bytes = high + 32 * half + part;
    const int low_shift = 4 * (run / 2), high_shift = 2 * run;
    for (int i = 0; i < 16; ++i) {
      const int q = (low_bytes[i] >> low_shift & 15) | (high_bytes[i] >> high_shift & 3) << 4;
      out[16 * sub + i] = scale * static_cast<float>(q - 32);
    }
  }
}

template <int kElements, int kBytes, void (*kOne)(Bytes, float*)>
void blocks(Bytes in, int64_t count, float* out) {
  for (int64_t block = 0; block < count / kElements; ++block) {
    kOne(in + block * kBytes, out + block * kElements);
  }
}

struct Format {
  GgmlType type;
  void (*run)(Bytes in, int64_t count, float* out);
};
constexpr Format kFormats[] = {
    {GgmlType::kF32, plain<float>},
    {GgmlType::kF64, plain<double>},
    {GgmlType::kF16, from_half},
    {GgmlType::kBF16, from_bfloat16},
    {GgmlType::kI8, plain<int8_t>},
    {GgmlType::kI16, plain<int16_t>},
    {GgmlType::kI32, plain<int32_t>},
    {GgmlType::kI64, plain<int64_t>},
    {GgmlType::kQ4_0, blocks<kBlock, 18, q4_0>},
    {GgmlType::kQ4_1, blocks<kBlock, 20, q4_1>},
    {GgmlType::kQ5_0, blocks<kBlock, 22, q5_0>},
    {GgmlType::kQ5_1, blocks<kBlock, 24, q5_1>},
    {GgmlType::kQ8_0, blocks<kBlock, 34, q8_0>},
    {GgmlType::kQ2_K, blocks<kSuperBlock, 84, q2_k>},
    {GgmlType::kQ3_K, blocks<kSuperBlock, 110, q3_k>},
    {GgmlType::kQ4_K, blocks<kSuperBlock, 144, q4_k>},
    {GgmlType::kQ5_K, blocks<kSuperBlock, 176, q5_k>},
    {GgmlType::kQ6_K, blocks<kSuperBlock, 210, q6_k>},
};

const Format* find_format(GgmlType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

}  // namespace

float half_to_float(uint16_t bits) {
  // Works on bits and normal numbers only: a thread that flushes denormals gets the same result.
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t mantissa = bits & 0x03ff;
  const uint32_t exponent = bits >> 10 & 31;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t float_exponent = exponent == 31 ? 255 : exponent + 127 - 15;
  return std::bit_cast<float>(sign | float_exponent << 23 | mantissa << 13);
}

bool can_dequantise(GgmlType type) { return find_format(type) != nullptr; }

void dequantise(GgmlType type, std::span<const std::byte> bytes, int64_t count, float* out) {
  const Format* format = find_format(type);
  const files::GgmlTypeInfo& info = files::ggml_type_info(type);
  PELLUCID_CHECK(format != nullptr, "{} cannot be dequantised", info.name);
  PELLUCID_CHECK(
      count >= 0 && count % info.block_elements == 0 &&
          bytes.size() == static_cast<uint64_t>(count / info.block_elements) * info.block_bytes,
      "{} elements of {} in {} bytes", count, info.name, bytes.size());
  format->run(reinterpret_cast<Bytes>(bytes.data()), count, out);
}

}  // namespace pellucid::tensor
