#include "tensor/dtype.h"

#include <doctest/doctest.h>

#include "files/safe_dtype.h"

namespace pellucid::tensor {

TEST_CASE("dtype: every spelling of a dtype finds it, and others are refused with the nearest") {
  for (const DtypeInfo& info : dtypes()) {
    CHECK((*parse_dtype(info.name) == info.type));
    CHECK((*parse_dtype(info.file_name) == info.type));
    CHECK(dtype_name(info.type) == info.name);
  }
  CHECK((*parse_dtype("bf16") == at::kBFloat16));
  CHECK((*parse_dtype("torch.float64") == at::kDouble));
  CHECK((*parse_dtype("half") == at::kHalf));
  const auto wrong = parse_dtype("flaot32");
  CHECK(wrong.status().code == Code::kInvalidArgument);
  CHECK(wrong.status().hint.find("float32") != std::string::npos);
}

TEST_CASE("dtype: every dtype of a safetensors file is in the list, with the same width") {
  for (const files::SafeDtypeInfo& safe : files::safe_dtypes()) {
    const auto type = parse_dtype(safe.name);
    REQUIRE(type.ok());
    CHECK(find_dtype(*type)->file_name == safe.name);
    CHECK(c10::elementSize(*type) == static_cast<size_t>(safe.bytes));
  }
}

}  // namespace pellucid::tensor
