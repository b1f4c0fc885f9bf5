#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>

#include "model/model.h"
#include "model/tests/fake_files.h"

using namespace pellucid;
using namespace pellucid::model;
using hook::Site;

namespace {

std::shared_ptr<const Model> tiny(at::ScalarType dtype, const char* config = kTinyLlama) {
  auto model =
      load_model(fake_files(config, tiny_llama_weights()), {.dtype = dtype, .progress = {}});
  REQUIRE(model.ok());
  return *model;
}

// Hands one site to a function.
class Watcher : public hook::Listener {
 public:
  explicit Watcher(std::function<at::Tensor(at::Tensor)> function)
      : function_(std::move(function)) {}
  at::Tensor packed(hook::SiteKey, at::Tensor x) override { return function_(x); }
  at::Tensor beside(hook::SiteKey, int, at::Tensor x) override { return function_(x); }

 private:
  std::function<at::Tensor(at::Tensor)> function_;
};

// Two groups of 2 x 3 and 1 x 4 tokens.
Step ragged() {
  Step step;
  step.groups = {{0, 2, 3, 0, nullptr, 0, -1}, {6, 1, 4, 0, nullptr, 0, -1}};
  const auto longs = at::TensorOptions(at::kLong);
  step.tokens_T = at::tensor(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, longs);
  step.positions_T = at::tensor(std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 3}, longs);
  step.logit_rows = at::arange(10, longs);
  step.layer_end = 2;
  return step;
}

at::Tensor run(const Model& model, Site site, int layer, bool write,
               std::function<at::Tensor(at::Tensor)> function) {
  Step step = ragged();
  Watcher watcher(std::move(function));
  step.taps = hook::Taps(&watcher, 2, 2);
  if (hook::site_info(site).route == hook::Route::kPacked) {
    step.taps.watch({site, layer});
  } else {
    step.taps.watch_beside({site, layer}, 1, write);
  }
  return model.forward(step);
}

double largest(const at::Tensor& x) { return at::max(at::abs(x)).item<double>(); }

}  // namespace

TEST_CASE("forward: gradients of every floating site agree with finite differences") {
  const auto model = tiny(at::kDouble);
  const at::Tensor seed = at::randn({10, 17}, at::TensorOptions(at::kDouble));
  const auto loss = [&](const at::Tensor& logits) { return at::sum(at::mul(logits, seed)); };
  for (const hook::SiteInfo& info : hook::all_sites()) {
    if (info.integer || !model->catalog().has(info.site)) continue;
    const int layer = info.per_block ? 0 : -1;
    CAPTURE(std::string(info.name));
    at::Tensor leaf, direction;
    const at::Tensor logits = run(*model, info.site, layer, true, [&](at::Tensor x) {
      leaf = x.detach().clone().requires_grad_(true);
      direction = at::randn(x.sizes(), x.options());
      return leaf;
    });
    loss(logits).backward();
    REQUIRE(leaf.grad().defined());
    // Masked scores are infinite: their gradient is zero.
    const double analytic = at::sum(at::mul(leaf.grad(), direction)).item<double>();
    CHECK(largest(leaf.grad()) > 1e-8);
    const at::NoGradGuard no_grad;
    const auto shifted = [&](double by) {
      return loss(run(*model, info.site, layer, true,
                      [&](at::Tensor x) { return at::sub(x, direction, -by); }))
          .item<double>();
    };
    const double step = 1e-6;  // softmax bends sharply: 1e-5 is off by 2e-5 in some directions
    const double numeric = (shifted(step) - shifted(-step)) / (2 * step);
    CHECK(numeric == doctest::Approx(analytic).epsilon(1e-5));
  }
}

TEST_CASE("forward: a gradient changes no bit") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto model = tiny(dtype);
    const auto copy = [](at::Tensor x) { return x.clone(); };
    const auto leaf = [](at::Tensor x) { return x.detach().clone().requires_grad_(true); };
    for (const Site site : {Site::kResidPre, Site::kAttnK, Site::kMlpGate}) {
      const at::Tensor plain = run(*model, site, 0, true, copy);
      const at::Tensor with_gradient = run(*model, site, 0, true, leaf);
      CHECK(with_gradient.requires_grad());
      CHECK(at::equal(plain, with_gradient.detach()));
    }
  }
}

TEST_CASE("forward: decoding with a gradient through the cache") {
  const auto model = tiny(at::kFloat);
  const auto longs = at::TensorOptions(at::kLong);
  at::Tensor leaf;
  Watcher watcher([&](at::Tensor x) { return leaf = x.detach().clone().requires_grad_(true); });
  KvCache cache;
  cache.capacity = 8;
  Step step;
  step.layer_end = 2;
  step.groups = {{0, 1, 3, 0, &cache, 0, -1}};
  step.tokens_T = at::tensor(std::vector<int64_t>{1, 2, 3}, longs);
  step.positions_T = at::arange(3, longs);
  step.taps = hook::Taps(&watcher, 2, 1);
  step.taps.watch({Site::kResidPre, 0});
  model->forward(step);
  cache.length = 3;
  Step next;
  next.layer_end = 2;
  next.groups = {{0, 1, 1, 3, &cache, 0, -1}};
  next.tokens_T = at::tensor(std::vector<int64_t>{4}, longs);
  next.positions_T = at::tensor(std::vector<int64_t>{3}, longs);
  next.logit_rows = at::arange(1, longs);
  at::sum(at::mul(model->forward(next), model->forward(next))).backward();
  REQUIRE(leaf.grad().defined());
  CHECK(largest(leaf.grad().to(at::kDouble)) > 1e-6);
}

TEST_CASE("forward: poll abandons the pass at the next block") {
  const auto model = tiny(at::kFloat);
  Step step = ragged();
  int polls = 0;
  step.poll = [&] {
    if (++polls == 2) throw std::runtime_error("stop");
  };
  CHECK_THROWS_WITH(model->forward(step), "stop");
  CHECK(polls == 2);
}

TEST_CASE("forward: tokens that are not in the vocabulary are an error of torch, not a crash") {
  const auto model = tiny(at::kFloat);
  for (const int64_t bad : {int64_t{17}, int64_t{-1}}) {
    Step step = ragged();
    step.tokens_T = at::tensor(std::vector<int64_t>(10, bad), at::TensorOptions(at::kLong));
    CHECK_THROWS(model->forward(step));
  }
}

TEST_CASE("forward: the last norm and the unembedding on their own are the pass's") {
  const auto model = tiny(at::kFloat);
  at::Tensor last;
  const at::Tensor logits =
      run(*model, Site::kResidPost, 1, true, [&](at::Tensor x) { return last = x; });
  const at::Tensor alone = model->unembed(model->final_norm(last.view({2, 5, 12})));
  CHECK(at::equal(alone.view({10, 17}), logits));
}
