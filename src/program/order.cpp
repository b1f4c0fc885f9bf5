// What each task waits for. Lines order the uses of one piece of memory; sites order everything
// else.
#include <algorithm>

#include "program/graph.h"

namespace pellucid::program {
namespace {

class Orderer {
 public:
  explicit Orderer(Graph& graph) : graph_(graph), memory_(graph.alias_sets.size()) {
    for (SiteUsed& site : graph_.sites) {
      current_.push_back(graph_.tasks[site.arrive].first_value);
    }
  }

  Status run() {
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      task_ = static_cast<int>(t);
      PELLUCID_TRY(visit(graph_.tasks[t]).at(graph_.where(graph_.tasks[t])));
      tidy(graph_.tasks[t].after);
    }
    mark_clones();
    return ok_status();
  }

 private:
  struct Memory {
    int writer = -1;           // last task that changed it
    std::vector<int> users;    // since then
    int written_to_site = -1;  // kWrite task that copied it into a site
  };
  struct Reached {
    int order = -1;
    int task = -1;  // of the furthest read
  };

  AliasSet& set_of(int value) { return graph_.alias_sets[graph_.values[value].alias_set]; }
  Memory& memory_of(int value) { return memory_[graph_.values[value].alias_set]; }

  void wait(Task& task, int other, bool order_only = false) {
    if (other >= 0 && other != task_) task.after.push_back({other, order_only});
  }

  /// One edge a task; the one that is more than order wins.
  static void tidy(std::vector<Edge>& after) {
    std::sort(after.begin(), after.end(), [](const Edge& a, const Edge& b) {
      return std::pair(a.task, a.order_only) < std::pair(b.task, b.order_only);
    });
    const auto same = [](const Edge& a, const Edge& b) { return a.task == b.task; };
    after.erase(std::unique(after.begin(), after.end(), same), after.end());
  }

  void use(Task& task, int value) {
    wait(task, graph_.values[value].task);
    if (set_of(value).writers.empty()) return;
    Memory& memory = memory_of(value);
    if (memory.writer >= 0) {
      // A loop that ends early has changed the value fewer times: what comes after it still runs.
      const Task& writer = graph_.tasks[memory.writer];
      const bool loop = writer.per_step && !(task.per_step && task.step == writer.step);
      wait(task, memory.writer, loop);
    }
    if (memory.users.empty() || memory.users.back() != task_) memory.users.push_back(task_);
  }

  Status visit(Task& task) {
    if (task.gate >= 0) wait(task, task.gate);
    for (const int operand : task.operands) use(task, operand);
    switch (task.kind) {
      case TaskKind::kArrive:
        break;
      case TaskKind::kRead: {
        const SiteUsed& site = graph_.sites[task.site];
        wait(task, site.arrive);
        use(task, current_[task.site]);
        Reached& reached = reached_[{site.group, site.step}];
        if (site.order > reached.order) reached = {site.order, task_};
        break;
      }
      case TaskKind::kWrite:
        PELLUCID_TRY(write(task));
        break;
      default:
        break;
    }
    for (const int value : task.written) PELLUCID_TRY(change(task, value));
    // What it returns may be used by lines after it like any other use of the memory.
    for (int i = 0; i < task.num_values; ++i) use(task, task.first_value + i);
    return ok_status();
  }

  Status write(Task& task) {
    SiteUsed& site = graph_.sites[task.site];
    wait(task, site.arrive);
    if (task.in_place_write) return ok_status();
    PELLUCID_TRY(upstream(task, site));
    site.written = true;
    site.edits.push_back(task_);
    current_[task.site] = task.first_value;
    memory_of(task.operands[0]).written_to_site = task_;
    return ok_status();
  }

  Status change(Task& task, int value) {
    const AliasSet& set = set_of(value);
    for (const int index : set.sites) {
      SiteUsed& site = graph_.sites[index];
      const std::string name = hook::site_name(site.key);
      if (graph_.values[current_[index]].alias_set != graph_.values[value].alias_set) {
        return error(Code::kOutOfOrder, fmt::format("read {} again after the write", name),
                     "{} changes {} as it was before it was replaced: nothing would happen",
                     graph_.node_of(task).name, name);
      }
      if (task.step > site.step) {
        return error(Code::kOutOfOrder, "clone() the value to change a copy of it",
                     "{} at step {} changes {} of step {}, which has passed",
                     graph_.node_of(task).name, task.step, name, site.step);
      }
      PELLUCID_TRY(upstream(task, site));
      site.written = true;
      site.edits.push_back(task_);
    }
    Memory& memory = memory_of(value);
    if (memory.written_to_site >= 0) {
      const Task& copied = graph_.tasks[memory.written_to_site];
      graph_.warnings.push_back(fmt::format(
          "{}changes a value that was written to {} before{}: the site keeps what was written",
          graph_.where(task).empty() ? "" : graph_.where(task) + ": ",
          hook::site_name(graph_.sites[copied.site].key), at_line(graph_.where(copied))));
    }
    wait(task, memory.writer, memory.writer >= 0 && graph_.tasks[memory.writer].per_step);
    for (const int user : memory.users) wait(task, user, true);
    memory.users.clear();
    memory.writer = task_;
    return ok_status();
  }

  /// Refuses an edit of a site before one that was already read in that row and step.
  Status upstream(const Task& task, const SiteUsed& site) {
    const Reached& reached = reached_[{site.group, site.step}];
    if (site.order >= reached.order) return ok_status();
    const Task& read = graph_.tasks[reached.task];
    return error(Code::kOutOfOrder,
                 "move the edit before the read, or read and edit in two prompts",
                 "{} is edited{} after {} was read{}: the forward pass goes the other way",
                 hook::site_name(site.key), at_line(graph_.where(task)),
                 hook::site_name(graph_.sites[read.site].key), at_line(graph_.where(read)));
  }

  void mark_clones() {
    for (SiteUsed& site : graph_.sites) {
      const int first = graph_.tasks[site.arrive].first_value;
      site.clone = !set_of(first).writers.empty();
    }
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      Task& task = graph_.tasks[t];
      if (task.kind != TaskKind::kSave) continue;
      const AliasSet& set = set_of(task.operands[0]);
      task.copy = set.constant || set.weight || !set.sites.empty() ||
                  (!set.writers.empty() && set.writers.back() > static_cast<int>(t));
    }
  }

  Graph& graph_;
  std::vector<Memory> memory_;                      // by alias set
  std::vector<int> current_;                        // by site: value, as of this line
  std::map<std::pair<int, int>, Reached> reached_;  // by group and step
  int task_ = 0;
};

}  // namespace

Status find_order(Graph& graph) { return Orderer(graph).run(); }

}  // namespace pellucid::program
