#include "tensor/quantised.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"

// Bit for bit against the gguf package: tests/parity/test_files.py. Here: values worked out by
// hand.
namespace pellucid::tensor {
namespace {

using files::GgmlType;

constexpr uint16_t kHalfOne = 0x3c00, kHalfTwo = 0x4000, kHalfMinusHalf = 0xb800;

std::string raw(uint16_t half) { return {reinterpret_cast<const char*>(&half), 2}; }

std::vector<float> numbers(GgmlType type, const std::string& block, int64_t count) {
  std::vector<float> out(count, NAN);
  dequantise(type, std::as_bytes(std::span(block)), count, out.data());
  return out;
}

}  // namespace

TEST_CASE("half: ones, subnormals, infinities and signed zeros become the same floats") {
  CHECK(half_to_float(kHalfOne) == 1.f);
  CHECK(half_to_float(kHalfMinusHalf) == -0.5f);
  CHECK(half_to_float(0x7bff) == 65504.f);
  CHECK(half_to_float(0x0001) == 0x1p-24f);
  CHECK(half_to_float(0x83ff) == -0x1.ff8p-15f);
  CHECK(half_to_float(0x0400) == 0x1p-14f);
  CHECK(half_to_float(0x7c00) == INFINITY);
  CHECK(half_to_float(0xfc00) == -INFINITY);
  CHECK(std::isnan(half_to_float(0x7e01)));
  CHECK(std::bit_cast<uint32_t>(half_to_float(0x8000)) == 0x80000000u);
}

TEST_CASE("dequantise: the low halves of 32-element blocks come first") {
  const std::string nibbles = std::string(1, '\x21') + std::string(15, '\x88');
  auto q4_0 = numbers(GgmlType::kQ4_0, raw(kHalfTwo) + nibbles, 32);
  CHECK(q4_0[0] == 2.f * (1 - 8));
  CHECK(q4_0[16] == 2.f * (2 - 8));
  CHECK(q4_0[1] == 0.f);
  auto q4_1 = numbers(GgmlType::kQ4_1, raw(kHalfTwo) + raw(kHalfMinusHalf) + nibbles, 32);
  CHECK(q4_1[0] == 1.5f);
  CHECK(q4_1[16] == 3.5f);
  CHECK(q4_1[31] == 15.5f);
  const std::string fifth("\x01\x00\x01\x00", 4);  // elements 0 and 16
  auto q5_0 = numbers(GgmlType::kQ5_0, raw(kHalfOne) + fifth + nibbles, 32);
  CHECK(q5_0[0] == 1.f);
  CHECK(q5_0[16] == 2.f);
  CHECK(q5_0[1] == -8.f);
  auto q5_1 = numbers(GgmlType::kQ5_1, raw(kHalfOne) + raw(kHalfTwo) + fifth + nibbles, 32);
  CHECK(q5_1[0] == 19.f);
  CHECK(q5_1[16] == 20.f);
  CHECK(q5_1[1] == 10.f);
  auto q8_0 = numbers(GgmlType::kQ8_0, raw(kHalfMinusHalf) + "\x80" + std::string(31, '\x02'), 32);
  CHECK(q8_0[0] == 64.f);
  CHECK(q8_0[31] == -1.f);
}

TEST_CASE("dequantise: plain numbers become the nearest float") {
  const double value = 0.1;
  CHECK(numbers(GgmlType::kF64, {reinterpret_cast<const char*>(&value), 8}, 1)[0] == 0.1f);
  CHECK(numbers(GgmlType::kI8, "\xff", 1)[0] == -1.f);
  CHECK(numbers(GgmlType::kBF16, std::string("\x80\x3f", 2), 1)[0] == 1.f);
}

TEST_CASE("dequantise: a size that does not fit and a format that is not read are faults") {
  float out[64];
  const std::string bytes(18, '\0');
  const auto run = [&](GgmlType type, int64_t count) {
    dequantise(type, std::as_bytes(std::span(bytes)), count, out);
  };
  CHECK_NOTHROW(run(GgmlType::kQ4_0, 32));
  CHECK_THROWS_AS(run(GgmlType::kQ4_0, 31), InternalError);
  CHECK_THROWS_AS(run(GgmlType::kQ4_0, 64), InternalError);
  CHECK_THROWS_AS(run(GgmlType::kIQ4_NL, 32), InternalError);
  CHECK_FALSE(can_dequantise(GgmlType::kIQ4_NL));
}

}  // namespace pellucid::tensor
