// count_pass MODEL_FOLDER TOKENS REPEATS
//
// Runs REPEATS forward passes over TOKENS tokens, no program, and prints how many operations one
// pass dispatches. Callgrind counts the instructions of `measured_passes` alone.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/record_function.h>

#include <cstdio>
#include <cstdlib>

#include "model/model.h"

namespace {

using namespace pellucid;

int64_t operations = 0;

model::Step make_step(const model::Model& model, int64_t tokens) {
  model::Step step;
  step.tokens_T = at::arange(tokens, at::kLong);
  step.positions_T = at::arange(tokens, at::kLong);
  step.groups.push_back({.batch = 1, .seq = tokens});
  step.layer_end = static_cast<int>(model.info().sizes.num_layers);
  step.logit_rows = at::arange(tokens, at::kLong);
  return step;
}

}  // namespace

extern "C" __attribute__((noinline)) void measured_passes(const model::Model& model,
                                                          std::vector<model::Step>& steps) {
  for (model::Step& step : steps) model.forward(step);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: count_pass MODEL_FOLDER TOKENS REPEATS\n");
    return 2;
  }
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const auto files = tensor::open_model(argv[1]);
  if (!files.ok()) return std::fprintf(stderr, "%s\n", files.status().message().c_str()), 1;
  const auto model = model::load_model(*files, {});
  if (!model.ok()) return std::fprintf(stderr, "%s\n", model.status().message().c_str()), 1;

  std::vector<model::Step> steps;
  for (int i = 0; i < std::atoi(argv[3]); ++i)
    steps.push_back(make_step(**model, std::atoll(argv[2])));
  model::Step warm_up = make_step(**model, std::atoll(argv[2]));
  (*model)->forward(warm_up);  // probes, allocations, lazy initialisation
  measured_passes(**model, steps);

  at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        ++operations;
        return nullptr;
      }));
  model::Step counted = make_step(**model, std::atoll(argv[2]));
  operations = 0;
  (*model)->forward(counted);
  std::printf("%lld\n", static_cast<long long>(operations));
  return 0;
}
