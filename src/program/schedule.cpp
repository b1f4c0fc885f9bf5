// When everything runs. An edit happens as the forward pass goes by its site: what it needs must be
// there. Values of the same group that come later are refused; those of other groups send the group
// to a later wave.
#include <algorithm>

#include "program/graph.h"

namespace pellucid::program {
namespace {

/// The furthest site of each group that a task needs, directly or not: group -> index of the site.
using Sources = std::map<int32_t, int32_t>;

struct Flow {  // `to` edits with a value of `from`
  int weight = 0;
  int edit = -1;    // task
  int source = -1;  // site
};

class Scheduler {
 public:
  explicit Scheduler(Graph& graph) : graph_(graph) {}

  Status run() {
    mark_needed();
    sources_.resize(graph_.tasks.size());
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      if (needed_[t]) gather(static_cast<int>(t));
    }
    for (const SiteUsed& site : graph_.sites) {
      for (const int edit : site.edits) {
        PELLUCID_TRY(check_edit(site, edit).at(graph_.where(graph_.tasks[edit])));
      }
    }
    PELLUCID_TRY(find_waves());
    split_waves();
    mark_kept();
    return ok_status();
  }

 private:
  /// Only what leads to an edit matters here: long sums over many groups mostly do not.
  void mark_needed() {
    needed_.assign(graph_.tasks.size(), false);
    for (const SiteUsed& site : graph_.sites) {
      for (const int edit : site.edits) needed_[edit] = true;
    }
    for (size_t t = graph_.tasks.size(); t-- > 0;) {
      if (!needed_[t]) continue;
      for (const Edge& edge : graph_.tasks[t].after) needed_[edge.task] = true;
    }
  }

  bool further(int a, int b) const {
    const SiteUsed& first = graph_.sites[a];
    const SiteUsed& second = graph_.sites[b];
    return std::pair(first.step, first.order) > std::pair(second.step, second.order);
  }

  void gather(int t) {
    const Task& task = graph_.tasks[t];
    Sources& mine = sources_[t];
    if (task.kind == TaskKind::kArrive) mine[task.group] = task.site;
    for (const Edge& edge : task.after) {
      for (const auto& [group, site] : sources_[edge.task]) {
        const auto [place, fresh] = mine.emplace(group, site);
        if (!fresh && further(site, place->second)) place->second = site;
      }
    }
  }

  /// Has `source` fired, in a pass that both groups share, when `site` does?
  bool in_time(const SiteUsed& source, const SiteUsed& site) const {
    const auto before = std::pair(source.step, source.order);
    if (before > std::pair(site.step, site.order)) return false;
    const bool beside = hook::site_info(source.key.site).route == hook::Route::kBeside &&
                        hook::site_info(site.key.site).route == hook::Route::kBeside;
    const bool same_layer = source.step == site.step && source.key.layer == site.key.layer;
    // Sites beside the fused path fire once for each group, group after group.
    if (beside && same_layer && source.group != site.group) return source.group < site.group;
    return true;
  }

  std::string name(const SiteUsed& site) const {
    std::string text = hook::site_name(site.key);
    if (site.step > 0) text += fmt::format(" at step {}", site.step);
    return text;
  }

  Status check_edit(const SiteUsed& site, int edit) {
    for (const auto& [group, index] : sources_[edit]) {
      const SiteUsed& source = graph_.sites[index];
      const bool fits = in_time(source, site);
      if (group == site.group) {
        if (fits) continue;
        return error(Code::kOutOfOrder, "read the value in another prompt: its pass can run first",
                     "{} is edited{} with a value of {}{}, which comes later in the forward pass",
                     name(site), at_line(graph_.where(graph_.tasks[edit])), name(source),
                     at_line(source.where));
      }
      Flow& flow = flows_[site.group][group];
      if (flow.edit >= 0 && (fits || flow.weight == 1)) continue;
      flow = {fits ? 0 : 1, edit, index};
    }
    return ok_status();
  }

  Status find_waves() {
    const int count = static_cast<int>(graph_.program.groups.size());
    graph_.waves.assign(count, 0);
    for (int round = 0; round <= count; ++round) {
      bool changed = false;
      for (const auto& [to, from_all] : flows_) {
        for (const auto& [from, flow] : from_all) {
          const int wave = graph_.waves[from] + flow.weight;
          if (wave <= graph_.waves[to]) continue;
          if (round == count || wave > count) return cycle(to, from, flow);
          graph_.waves[to] = wave;
          changed = true;
        }
      }
      if (!changed) break;
    }
    count_waves();
    return ok_status();
  }

  void count_waves() {
    graph_.num_waves = 1;
    for (const int wave : graph_.waves) graph_.num_waves = std::max(graph_.num_waves, wave + 1);
  }

  int64_t prompt_tokens(int group) const {
    const auto rows = static_cast<int64_t>(graph_.program.groups[group].tokens.size());
    return rows * graph_.prompt_length(group);
  }

  /// Groups one by one, each after those of its wave whose values it needs; those that wait for
  /// each other within a pass cannot be parted: they are the last unit, together.
  std::vector<std::vector<int>> units() const {
    std::vector<int> waits(graph_.waves.size(), 0);
    std::vector<std::vector<int>> consumers(graph_.waves.size());
    for (const auto& [to, from_all] : flows_) {
      for (const auto& [from, flow] : from_all) {
        if (flow.weight > 0) continue;
        ++waits[to];
        consumers[from].push_back(to);
      }
    }
    std::vector<std::vector<int>> out;
    for (size_t group = 0; group < waits.size(); ++group) {
      if (waits[group] == 0) out.push_back({static_cast<int>(group)});
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const int group = out[i].front();
      for (const int consumer : consumers[group]) {
        if (--waits[consumer] == 0) out.push_back({consumer});
      }
    }
    std::vector<int> rest;
    for (size_t group = 0; group < waits.size(); ++group) {
      if (waits[group] > 0) rest.push_back(static_cast<int>(group));
    }
    if (!rest.empty()) out.push_back(std::move(rest));
    return out;
  }

  /// Moves groups out of waves whose prompts are too long together; whoever needs their values
  /// moves along. Producers are placed first, so a group never moves twice for the same wave.
  void split_waves() {
    const int64_t tokens_max = graph_.options.tokens_per_wave_max;
    if (tokens_max <= 0) return;
    const std::vector<std::vector<int>> all_units = units();
    for (int wave = 0; wave < graph_.num_waves; ++wave) {
      int64_t tokens = 0;
      for (const std::vector<int>& unit : all_units) {
        int64_t more = 0;
        for (const int group : unit) {
          if (graph_.waves[group] == wave) more += prompt_tokens(group);
        }
        if (tokens == 0 || tokens + more <= tokens_max) {
          tokens += more;
          continue;
        }
        for (const int group : unit) {
          if (graph_.waves[group] == wave) graph_.waves[group] = wave + 1;
        }
        for (const int group : unit) move_consumers(group);
      }
      count_waves();
    }
  }

  void move_consumers(int from) {
    std::vector<int> moved{from};
    while (!moved.empty()) {
      const int group = moved.back();
      moved.pop_back();
      for (const auto& [to, from_all] : flows_) {
        const auto flow = from_all.find(group);
        if (flow == from_all.end()) continue;
        const int wave = graph_.waves[group] + flow->second.weight;
        if (wave <= graph_.waves[to]) continue;
        graph_.waves[to] = wave;
        moved.push_back(to);
      }
    }
  }

  /// The way back from `to` to `from`, whose last flow the message names.
  const Flow* way_back(int at, int goal, std::vector<bool>& seen) const {
    seen[at] = true;
    for (const auto& [to, from_all] : flows_) {
      const auto found = from_all.find(at);
      if (found == from_all.end() || seen[to]) continue;
      if (to == goal) return &found->second;
      if (const Flow* flow = way_back(to, goal, seen)) return flow;
    }
    return nullptr;
  }

  Status cycle(int to, int from, const Flow& flow) const {
    std::vector<bool> seen(graph_.waves.size(), false);
    // The relaxation may run over a tail of the cycle first: then name what is known.
    const Flow* back = way_back(to, from, seen);
    const auto line = [&](const Flow& one) {
      const SiteUsed& edited = graph_.sites[edited_site(one.edit)];
      return fmt::format("{} is edited{} with {}{}", name(edited),
                         at_line(graph_.where(graph_.tasks[one.edit])),
                         name(graph_.sites[one.source]), at_line(graph_.sites[one.source].where));
    };
    return error(Code::kOutOfOrder, "a value can only flow one way between two passes",
                 "two prompts wait for each other: {}{}{}", line(flow), back ? "; " : "",
                 back ? line(*back) : "")
        .at(graph_.where(graph_.tasks[flow.edit]));
  }

  int edited_site(int edit) const {
    for (size_t s = 0; s < graph_.sites.size(); ++s) {
      const auto& edits = graph_.sites[s].edits;
      if (std::find(edits.begin(), edits.end(), edit) != edits.end()) return static_cast<int>(s);
    }
    return 0;
  }

  struct Time {
    int wave = -1, step = -1, order = -1;
    auto operator<=>(const Time&) const = default;
  };

  /// A site whose tensor somebody uses later than its pass.
  void mark_kept() {
    std::vector<Time> times(graph_.tasks.size());
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (task.kind == TaskKind::kArrive) {
        times[t] = {graph_.waves[task.group], task.step, graph_.sites[task.site].order};
      }
      for (const Edge& edge : task.after) times[t] = std::max(times[t], times[edge.task]);
    }
    const auto mark = [&](const Task& task, const Time& time, int value) {
      for (const int index : graph_.alias_sets[graph_.values[value].alias_set].sites) {
        SiteUsed& site = graph_.sites[index];
        const Time fired{graph_.waves[site.group], site.step, site.order};
        if (time > fired) site.keep = true;
      }
    };
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      for (const int value : graph_.tasks[t].operands) mark(graph_.tasks[t], times[t], value);
    }
  }

  Graph& graph_;
  std::vector<bool> needed_;
  std::vector<Sources> sources_;                      // by task
  std::map<int32_t, std::map<int32_t, Flow>> flows_;  // edited group -> source group
};

}  // namespace

Status schedule(Graph& graph) { return Scheduler(graph).run(); }

}  // namespace pellucid::program
