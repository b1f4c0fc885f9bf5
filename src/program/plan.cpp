#include "program/plan.h"

#include <algorithm>

#include "program/graph.h"
#include "program/plan_impl.h"

namespace pellucid::program {
namespace {

template <typename T>
void lower(T& limit, T asked) {
  if (asked > 0) limit = std::min(limit, asked);
}

/// The engine's limits, or what the program asks for where that is less.
void apply_budget(Limits& limits, const wire::Budget& budget) {
  lower(limits.saved_bytes, budget.saved_bytes);
  lower(limits.temporary_bytes, budget.temporary_bytes);
  lower(limits.floating_point_operations, budget.floating_point_operations);
  lower(limits.seconds, budget.seconds);
  lower(limits.nodes, budget.nodes);
}

}  // namespace

std::vector<SiteUse> PlanImpl::uses(int group, int step) const {
  std::vector<SiteUse> out;
  const auto first = graph_.site_at.lower_bound({group, step, 0});
  for (auto it = first; it != graph_.site_at.end(); ++it) {
    if (std::get<0>(it->first) != group || std::get<1>(it->first) != step) break;
    const SiteUsed& site = graph_.sites[it->second];
    out.push_back({site.key, site.written});
  }
  return out;
}

int PlanImpl::last_step(int group) const {
  int last = -1;
  for (const Task& task : graph_.tasks) {
    if (task.group == group) last = std::max(last, task.step);
  }
  return last;
}

LogitsNeed PlanImpl::logits_need(int group, int step) const {
  const hook::SiteKey key{hook::Site::kLogits, -1};
  const int order = key.order(static_cast<int>(graph_.options.catalog->sizes.num_layers));
  const auto found = graph_.site_at.find({group, step, order});
  return found == graph_.site_at.end() ? LogitsNeed{} : graph_.logits[found->second];
}

int PlanImpl::first_written_layer(int group) const {
  int first = static_cast<int>(graph_.options.catalog->sizes.num_layers);
  for (const SiteUsed& site : graph_.sites) {
    if (site.group != group || site.step != 0 || !site.written) continue;
    if (site.key.layer >= 0) {
      first = std::min(first, site.key.layer);
    } else if (static_cast<int>(site.key.site) < static_cast<int>(hook::kFirstBlockSite)) {
      first = 0;
    }
  }
  return first;
}

Result<std::shared_ptr<const Plan>> Plan::make(wire::Program program, PlanOptions options) {
  auto plan = std::make_shared<PlanImpl>();
  Graph& graph = plan->graph();
  apply_budget(options.limits, program.budget);
  graph.program = std::move(program);
  graph.options = std::move(options);
  PELLUCID_TRY(check_form(graph));
  PELLUCID_TRY(expand(graph));
  PELLUCID_TRY(find_aliases(graph));
  PELLUCID_TRY(find_order(graph));
  PELLUCID_TRY(schedule(graph));
  PELLUCID_TRY(narrow_logits(graph));
  PELLUCID_TRY(check_budget(graph));
  find_unused(graph);
  plan->finish();
  return std::shared_ptr<const Plan>(std::move(plan));
}

void PlanImpl::finish() {
  graph_.options.constants.clear();  // a plan keeps no data alive
  dependants_.resize(graph_.tasks.size());
  num_uses_.assign(graph_.values.size(), 0);
  for (size_t t = 0; t < graph_.tasks.size(); ++t) {
    for (const Edge& edge : graph_.tasks[t].after) {
      dependants_[edge.task].push_back({static_cast<int32_t>(t), edge.order_only});
    }
    for (const int value : graph_.tasks[t].operands) ++num_uses_[value];
    // A read hands on the site's tensor.
    if (graph_.tasks[t].kind == TaskKind::kRead) ++num_uses_[read_of(graph_.tasks[t])];
  }
  // The pass itself uses what a site has in the end.
  for (const SiteUsed& site : graph_.sites) ++num_uses_[site.current];
}

int PlanImpl::read_of(const Task& task) const { return graph_.values[task.first_value].identity; }

}  // namespace pellucid::program
