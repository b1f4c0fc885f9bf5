#include "wire/constant_hash.h"

#include <doctest/doctest.h>

#include <array>

namespace pellucid::wire {
namespace {

TEST_CASE("constant_hash: is what hashlib says of dtype, shape and bytes") {
  const std::array<float, 3> values = {1.0F, 2.0F, 3.0F};
  const std::array<int64_t, 1> shape = {3};
  // python: hashlib.sha256(b"float32 [3]\n" + numpy.float32([1, 2, 3]).tobytes()).hexdigest()
  CHECK(constant_hash("float32", shape, std::as_bytes(std::span(values))) ==
        "c4b4d0665608156e62652e11a20d062e8929785a6672238aeb6fa60766e5b1a6");
}

TEST_CASE("constant_hash: the same bytes of another shape or dtype are another constant") {
  const std::array<float, 2> values = {1.0F, 2.0F};
  const auto bytes = std::as_bytes(std::span(values));
  const std::string flat = constant_hash("float32", std::array<int64_t, 1>{2}, bytes);
  CHECK(flat != constant_hash("float32", std::array<int64_t, 2>{1, 2}, bytes));
  CHECK(flat != constant_hash("int32", std::array<int64_t, 1>{2}, bytes));
}

}  // namespace
}  // namespace pellucid::wire
