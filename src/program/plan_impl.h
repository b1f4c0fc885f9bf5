#pragma once
// The plan that the program layer's own files see.
#include <vector>

#include "program/graph.h"
#include "program/plan.h"

namespace pellucid::program {

class PlanImpl final : public Plan {
 public:
  const wire::Program& program() const override { return graph_.program; }
  int num_waves() const override { return graph_.num_waves; }
  int wave_of(int group) const override { return graph_.waves[group]; }
  std::vector<SiteUse> uses(int group, int step) const override;
  int last_step(int group) const override;
  LogitsNeed logits_need(int group, int step) const override;
  int first_written_layer(int group) const override;
  const std::vector<std::string>& warnings() const override { return graph_.warnings; }
  int64_t saved_bytes() const override { return graph_.saved_bytes; }

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  /// Everything that runs can look up quickly.
  void finish();

  /// Tasks that wait for `task`.
  const std::vector<Edge>& dependants(int task) const { return dependants_[task]; }
  int num_uses(int value) const { return num_uses_[value]; }
  /// The value whose tensor a kRead hands on.
  int read_of(const Task& task) const;

 private:
  Graph graph_;
  std::vector<std::vector<Edge>> dependants_;
  std::vector<int> num_uses_;
};

}  // namespace pellucid::program
