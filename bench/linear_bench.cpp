// What a matmul costs whose bits do not depend on the number of rows, beside torch's own.
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "kernels/linear.h"

namespace pellucid {
namespace {

// SmolLM2-135M: width 576, ffn 1536.
constexpr int64_t kWidth = 576;
constexpr int64_t kFfn = 1536;

template <typename Function>
void run_rows(benchmark::State& state, Function function) {
  const int64_t rows = state.range(0);
  const at::Tensor x_TD = at::randn({rows, kWidth});
  const at::Tensor weight = at::randn({kFfn, kWidth});
  function(x_TD, weight);  // the probe of a shape at its first use is not what is measured
  for (auto _ : state) benchmark::DoNotOptimize(function(x_TD, weight));
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(rows * kWidth * kFfn),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void bench_linear(benchmark::State& state) {
  run_rows(state, [](const auto& x, const auto& weight) { return kernels::linear(x, weight); });
}
void bench_torch_linear(benchmark::State& state) {
  run_rows(state, [](const auto& x, const auto& weight) { return at::linear(x, weight); });
}
BENCHMARK(bench_linear)->Name("linear/rows")->Arg(1)->Arg(16)->Arg(256);
BENCHMARK(bench_torch_linear)->Name("torch_linear/rows")->Arg(1)->Arg(16)->Arg(256);

}  // namespace
}  // namespace pellucid
