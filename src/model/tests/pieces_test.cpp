#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <cmath>

#include "model/cache.h"
#include "model/config.h"
#include "model/groups.h"
#include "model/norm.h"
#include "model/rope.h"
#include "model/weights.h"

using namespace pellucid;
using namespace pellucid::model;

namespace {

RopeConfig rope(RopeConfig::Kind kind) {
  RopeConfig config;
  config.kind = kind;
  config.head_width = 8;
  return config;
}

at::Tensor doubles(std::vector<int64_t> shape) {
  return at::randn(shape, at::TensorOptions(at::kDouble));
}

}  // namespace

TEST_CASE("rotary: frequencies by the written-out formulas") {
  using Kind = RopeConfig::Kind;
  CHECK(inverse_frequencies(rope(Kind::kDefault), 100)[3] == doctest::Approx(1e-3));
  RopeConfig linear = rope(Kind::kLinear);
  linear.factor = 4;
  CHECK(inverse_frequencies(linear, 100)[1] == doctest::Approx(0.1 / 4));

  RopeConfig dynamic = rope(Kind::kDynamic);
  dynamic.factor = 2;
  dynamic.max_positions = 10;
  CHECK(inverse_frequencies(dynamic, 10)[1] == doctest::Approx(0.1));
  const double theta = 1e4 * std::pow(2.0 * 15 / 10 - 1, 8.0 / 6);
  CHECK(inverse_frequencies(dynamic, 15)[1] == doctest::Approx(std::pow(theta, -0.25)));

  RopeConfig llama3 = rope(Kind::kLlama3);
  llama3.factor = 8;
  llama3.original_max_positions = 200;
  const auto scaled = inverse_frequencies(llama3, 1);
  CHECK(scaled[0] == doctest::Approx(1.0));  // wavelength 6.3 < 200 / 4: kept
  // Wavelength 62.8, between 50 and 200.
  const double smooth = (200 / (2 * M_PI / 0.1) - 1) / 3;
  CHECK(scaled[1] == doctest::Approx((1 - smooth) * 0.1 / 8 + smooth * 0.1));
  CHECK(scaled[2] == doctest::Approx(0.01 / 8));  // wavelength 628 > 200: stretched

  RopeConfig yarn = rope(Kind::kYarn);
  yarn.factor = 4;
  yarn.original_max_positions = 64;
  const auto ramped = inverse_frequencies(yarn, 1);
  // Dimensions that turn 32 times and once over 64 positions: -0.5 and 1.008, rounded to 0 and 2.
  CHECK(ramped[0] == doctest::Approx(1.0));
  CHECK(ramped[1] == doctest::Approx(0.1 / 4 * 0.5 + 0.1 * 0.5));
  CHECK(ramped[2] == doctest::Approx(0.01 / 4));
  CHECK(yarn_attention_factor(4, 1) == doctest::Approx(1.1386294));
  CHECK(yarn_attention_factor(0.5, 1) == 1.0);
}

TEST_CASE("rotary: a rotation by its formula, and positions far out") {
  Step step;
  step.groups = {{0, 1, 3, 0, nullptr, 0, -1}};
  step.positions_T = at::tensor(std::vector<int64_t>{0, 5, 100000}, at::TensorOptions(at::kLong));
  const RotaryTable table = rotary_table(rope(RopeConfig::Kind::kDefault), step, at::kDouble);
  const at::Tensor x = doubles({3, 2, 8});
  const at::Tensor y = rotate(x, table);
  CHECK(at::equal(y[0], x[0]));
  const double angle = 100000 * 0.1;  // the second frequency
  const double first = x[2][1][1].item<double>(), second = x[2][1][5].item<double>();
  CHECK(y[2][1][1].item<double>() ==
        doctest::Approx(first * std::cos(angle) - second * std::sin(angle)));
  CHECK(y[2][1][5].item<double>() ==
        doctest::Approx(second * std::cos(angle) + first * std::sin(angle)));
}

TEST_CASE("norms: values, and a row's bits alone") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto kind : {Norm::Kind::kRms, Norm::Kind::kLayer}) {
      for (const int64_t width : {1, 7, 36, 577}) {
        Norm norm{kind, doubles({width}).to(type), {}, 1e-5};
        if (kind == Norm::Kind::kLayer) norm.bias_D = doubles({width}).to(type);
        const at::Tensor x = doubles({70, width}).to(type);
        const at::Tensor all = apply_norm(norm, x);
        CHECK((all.scalar_type() == type));
        for (const int64_t row : {0, 1, 33, 69}) {
          CHECK(at::equal(apply_norm(norm, x.narrow(0, row, 1)), all.narrow(0, row, 1)));
        }
      }
    }
  }
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor x = at::tensor(std::vector<double>{3, 4}, options);
  const at::Tensor weight = at::tensor(std::vector<double>{2, 10}, options);
  const at::Tensor bias = at::tensor(std::vector<double>{1, 1}, options);
  const at::Tensor rms = apply_norm({Norm::Kind::kRms, weight, {}, 0.5}, x);
  CHECK(rms[1].item<double>() == doctest::Approx(10 * 4 / std::sqrt(13.0)));
  const at::Tensor layer = apply_norm({Norm::Kind::kLayer, weight, bias, 0.75}, x);
  CHECK(layer[0].item<double>() == doctest::Approx(1 + 2 * -0.5 / 1.0));
}

TEST_CASE("cache: keeps, grows and never loses what it holds") {
  KvCache cache;
  cache.capacity = 5;
  GroupSpan group{0, 2, 3, 0, &cache, 0, -1};
  std::vector<at::Tensor> ks, vs;
  const void* first_data = nullptr;
  for (int pass = 0; pass < 12; ++pass) {
    group.past = cache.length;
    group.seq = pass == 0 ? 3 : 1 + pass % 2;
    const at::Tensor k = doubles({2, group.seq, 3, 4}), v = doubles({2, group.seq, 3, 4});
    ks.push_back(k);
    vs.push_back(v);
    const KeysValues all = append(group, 1, k, v);
    CHECK(at::equal(all.k_BPKH, at::cat(ks, 1)));
    CHECK(at::equal(all.v_BPKH, at::cat(vs, 1)));
    cache.length += group.seq;
    const void* data = cache.layers[1].k_BPKH.const_data_ptr();
    if (pass == 0) {
      first_data = data;
      CHECK(cache.layers[1].k_BPKH.size(1) == 5);
    }
    // Within its capacity it does not move.
    if (cache.length <= 5) CHECK((data == first_data));
  }
  CHECK_FALSE(cache.layers[0].k_BPKH.defined());
}

TEST_CASE("cache: a past that is not there is a fault, without a cache or without its block") {
  GroupSpan group{0, 1, 1, 4, nullptr, 0, -1};
  CHECK_THROWS(append(group, 0, doubles({1, 1, 1, 2}), doubles({1, 1, 1, 2})));
  KvCache cache;
  group.cache = &cache;
  CHECK_THROWS(append(group, 0, doubles({1, 1, 1, 2}), doubles({1, 1, 1, 2})));
}

TEST_CASE("cache: with gradients the past is concatenated and keeps its graph") {
  KvCache cache;
  GroupSpan group{0, 1, 2, 0, &cache, 0, -1};
  const at::Tensor first = doubles({1, 2, 1, 2}).requires_grad_(true);
  append(group, 0, first, first);
  group.past = 2;
  group.seq = 1;
  const KeysValues all = append(group, 0, doubles({1, 1, 1, 2}), doubles({1, 1, 1, 2}));
  CHECK(all.k_BPKH.requires_grad());
  CHECK(all.k_BPKH.size(1) == 3);
}

TEST_CASE("groups: chains of leaders, and rows that are replaced") {
  Step step;
  step.groups = {{0, 2, 2, 0, nullptr, 0, -1},
                 {4, 1, 3, 0, nullptr, 0, -1},
                 {7, 2, 2, 0, nullptr, 2, 0},
                 {11, 2, 2, 0, nullptr, 2, 2},
                 {15, 1, 3, 0, nullptr, 5, 1}};
  CHECK(num_active(step, 0) == 2);
  CHECK(num_active(step, 2) == 4);
  CHECK(num_active(step, 5) == 5);
  CHECK(stand_in(step, 3, 1) == 0);
  CHECK(stand_in(step, 3, 2) == 3);
  const at::Tensor x = doubles({7, 3});
  CHECK(enter(step, 1, x).is_same(x));
  const at::Tensor more = enter(step, 2, x);
  CHECK(at::equal(more, at::cat({x, x.narrow(0, 0, 4), x.narrow(0, 0, 4)})));
  CHECK(enter(step, 5, more).size(0) == 18);
  CHECK(group_rows(more, step.groups[2]).sizes() == at::IntArrayRef({2, 2, 3}));
  const at::Tensor rows = doubles({1, 3, 3});
  const at::Tensor changed = replace_rows(step, x, {{1, rows}});
  CHECK(at::equal(changed, at::cat({x.narrow(0, 0, 4), rows[0]})));
  CHECK(replace_rows(step, x, {}).is_same(x));
}

TEST_CASE("GGUF's interleaved rows come back as halves") {
  // Rows of a head of width 6: file order 0, 3, 1, 4, 2, 5 of Hugging Face's.
  const at::Tensor file = at::arange(12, at::TensorOptions(at::kLong)).view({12, 1});
  const at::Tensor rows = deinterleave(file, 2).view({12});
  const auto want = at::tensor(std::vector<int64_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11},
                               at::TensorOptions(at::kLong));
  CHECK(at::equal(rows, want));
}
