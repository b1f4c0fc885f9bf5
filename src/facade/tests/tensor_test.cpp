#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>

#include "pellucid/error.h"
#include "pellucid/tensor.h"
#include "pellucid/torch.h"

namespace pellucid {
namespace {

/// The code and message of what `call` throws.
template <typename F>
std::string thrown(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() + ": " + error.message();
  }
  return "nothing";
}

TEST_CASE("Tensor: holds what it was made from") {
  const Tensor t = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(t.shape() == std::vector<int64_t>{2, 3});
  CHECK(t.dtype() == Dtype::kFloat32);
  CHECK(t.num_bytes() == 24);
  CHECK(static_cast<const float*>(t.data())[4] == 5);
  CHECK(t.at({1, -1}) == 6);
  CHECK(t.to_vector<int64_t>() == std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  CHECK(t.describe() == "float32 [2, 3]");
  CHECK(Tensor::from<int64_t>({7}, {}).item<int64_t>() == 7);
  CHECK(Tensor::from<double>({}).num_elements() == 0);
}

TEST_CASE("Tensor: impossible shapes and indices are refused with both values") {
  CHECK(thrown([] {
          Tensor::from<float>({1, 2}, {3});
        }) == "shape_mismatch: 2 values for the shape [3]");
  CHECK(thrown([] { Tensor::from<float>({1}, {-1}); }) ==
        "invalid_argument: the shape [-1] is impossible");
  CHECK(thrown([] {
          Tensor::from<float>({}, {int64_t{1} << 40, int64_t{1} << 40});
        }) == "invalid_argument: the shape [1099511627776, 1099511627776] is impossible");
  CHECK(thrown([] {
          Tensor::from<float>({1, 2}).at({2});
        }) == "invalid_argument: index 2 of dimension 0 of float32 [2]");
  CHECK(thrown([] {
          Tensor::from<float>({1, 2}).at({0, 0});
        }) == "invalid_argument: 2 indices into float32 [2]");
  CHECK(thrown([] {
          Tensor::from<float>({1, 2}).item<float>();
        }) == "shape_mismatch: item() of float32 [2], which has 2 elements");
  CHECK(thrown([] { Tensor().shape(); }) == "invalid_argument: this Tensor holds nothing");
}

TEST_CASE("Tensor: to and from torch without a copy") {
  const at::Tensor theirs = at::arange(6, at::kDouble).view({2, 3});
  const Tensor ours = from_torch(theirs);
  CHECK(ours.data() == theirs.const_data_ptr());
  CHECK(to_torch(ours).const_data_ptr() == theirs.const_data_ptr());
  CHECK(from_torch(theirs.t()).to_vector<double>() == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK_FALSE(from_torch(at::Tensor()).defined());
  CHECK(thrown([&] { from_torch(theirs.to(at::kComplexDouble)); }) ==
        "unsupported: tensors of dtype ComplexDouble cannot leave a trace");
}

TEST_CASE("Error: what() is the whole sentence") {
  const Error error("not_found", "no site named x", "did you mean y?", "a.cpp:3");
  CHECK(std::string(error.what()) == "no site named x (did you mean y?) [at a.cpp:3]");
}

}  // namespace
}  // namespace pellucid
