#include <doctest/doctest.h>

#include "toy.h"

namespace toy {
namespace {

/// Four prompts of four tokens; the last takes its residual at block 1 from the first.
Script patched_sweep() {
  Script s;
  s.prompt({{1, 2, 3, 4}});
  const int source = s.read("blocks.1.resid_pre");
  for (int i = 0; i < 3; ++i) {
    s.prompt({{4, 3, 2, 1}});
    if (i == 2) s.write("blocks.1.resid_pre", source);
    s.save("out" + std::to_string(i), s.read("blocks.2.resid_post"));
  }
  return s;
}

std::vector<int> waves(const Script& script, int64_t tokens_max) {
  program::PlanOptions options = script.options();
  options.tokens_per_wave_max = tokens_max;
  auto plan = program::Plan::make(script.program, options);
  REQUIRE_MESSAGE(plan.ok(), plan.status().message());
  std::vector<int> out;
  for (size_t g = 0; g < script.program.groups.size(); ++g) out.push_back((*plan)->wave_of(g));
  return out;
}

}  // namespace

TEST_CASE("waves: without a limit all prompts whose values flow forward share one wave") {
  CHECK(waves(patched_sweep(), 0) == std::vector<int>{0, 0, 0, 0});
}

TEST_CASE("waves: prompts that are too long together move to later waves") {
  CHECK(waves(patched_sweep(), 16) == std::vector<int>{0, 0, 0, 0});
  CHECK(waves(patched_sweep(), 8) == std::vector<int>{0, 0, 1, 1});
  CHECK(waves(patched_sweep(), 3) == std::vector<int>{0, 1, 2, 3});  // each alone exceeds it
}

TEST_CASE("waves: whoever needs another's values is placed after it") {
  Script s;
  s.prompt({{1, 2}});
  s.prompt({{1, 2, 3, 4}});
  const int late = s.read("blocks.2.resid_pre");
  s.group = 0;
  s.write("blocks.2.resid_pre", s.op("slice.Tensor", {v(late), i(1), i(0), i(2)}));
  s.save("out", s.read("logits"));
  CHECK(waves(s, 6) == std::vector<int>{0, 0});
  CHECK(waves(s, 5) == std::vector<int>{1, 0});
}

TEST_CASE("waves: prompts that wait for each other within a pass stay together, however long") {
  Script s;
  s.prompt({{1, 2}});
  s.prompt({{1, 2}});
  const int early = s.read("blocks.0.resid_pre");
  s.group = 0;
  s.write("blocks.1.resid_pre", early);
  const int late = s.read("blocks.2.resid_pre");
  s.group = 1;
  s.write("blocks.2.resid_post", late);
  s.save("out", s.read("logits"));
  CHECK(waves(s, 0) == std::vector<int>{0, 0});
  CHECK(waves(s, 2) == std::vector<int>{0, 0});
}

}  // namespace toy
