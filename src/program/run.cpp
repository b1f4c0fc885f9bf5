#include "program/run.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <chrono>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "program/memory.h"
#include "program/plan_impl.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

using Clock = std::chrono::steady_clock;

class RunImpl final : public Run {
 public:
  RunImpl(std::shared_ptr<const PlanImpl> plan, Environment environment)
      : plan_(std::move(plan)),
        graph_(plan_->graph()),
        environment_(std::move(environment)),
        memory_(graph_.options.limits.temporary_bytes) {
    const size_t tasks = graph_.tasks.size();
    state_.assign(tasks, State::kWaiting);
    missing_.assign(tasks, false);
    pending_.resize(tasks);
    for (size_t t = 0; t < tasks; ++t) pending_[t] = static_cast<int>(graph_.tasks[t].after.size());
    values_.resize(graph_.values.size());
    uses_.resize(graph_.values.size());
    for (size_t v = 0; v < values_.size(); ++v) uses_[v] = plan_->num_uses(static_cast<int>(v));
    PELLUCID_CHECK(environment_.constants.size() == graph_.program.constants.size(),
                   "{} constants for {}", environment_.constants.size(),
                   graph_.program.constants.size());
    for (size_t c = 0; c < environment_.constants.size(); ++c) {
      values_[c] = environment_.constants[c].detach();
      memory_.not_ours(values_[c]);
    }
    last_step_.assign(graph_.program.groups.size(), std::numeric_limits<int>::max());
  }

  void begin() override {
    const at::NoGradGuard no_grad;
    started_ = Clock::now();
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      if (pending_[t] == 0 && graph_.tasks[t].kind != TaskKind::kArrive) ready(static_cast<int>(t));
    }
    drain();
  }

  void visit(int wave, int step, hook::SiteKey key, std::vector<GroupValue>& groups) override {
    const at::NoGradGuard no_grad;
    const int order = key.order(static_cast<int>(graph_.options.catalog->sizes.num_layers));
    std::vector<std::pair<GroupValue*, int>> here;
    for (GroupValue& group : groups) {
      group.written = false;
      const auto found = graph_.site_at.find({group.group, step, order});
      if (found == graph_.site_at.end()) continue;
      arrive(graph_.sites[found->second], group.value);
      here.emplace_back(&group, found->second);
    }
    drain();
    for (const auto& [group, site] : here) leave(graph_.sites[site], *group);
  }

  void group_ended(int group, int last_step) override {
    const at::NoGradGuard no_grad;
    last_step_[group] = std::min(last_step_[group], last_step);
    for (const SiteUsed& site : graph_.sites) {
      if (site.group != group || site.step <= last_step) continue;
      if (state_[site.arrive] != State::kWaiting) continue;
      missing_[site.arrive] = true;
      finish_task(site.arrive);
    }
    drain();
  }

  Result<std::vector<Saved>> finish() override;

 private:
  enum class State : uint8_t { kWaiting, kReady, kDone };

  void ready(int t) {
    state_[t] = State::kReady;
    queue_.push(t);
  }

  /// Runs everything that can run, in the order of lines.
  void drain() {
    while (!queue_.empty()) {
      const int t = queue_.top();
      queue_.pop();
      if (!missing_[t]) execute(t);
      finish_task(t);
    }
  }

  void finish_task(int t) {
    const Task& task = graph_.tasks[t];
    state_[t] = State::kDone;
    for (const int value : task.operands) release(value);
    if (task.kind == TaskKind::kRead) release(plan_->read_of(task));
    for (int i = 0; i < task.num_values; ++i) {
      if (uses_[task.first_value + i] == 0) drop(task.first_value + i);
    }
    for (const Edge& edge : plan_->dependants(t)) {
      if (missing_[t] && !edge.order_only) missing_[edge.task] = true;
      if (--pending_[edge.task] > 0) continue;
      if (graph_.tasks[edge.task].kind != TaskKind::kArrive) ready(edge.task);
    }
  }

  void release(int value) {
    if (--uses_[value] == 0) drop(value);
  }
  void drop(int value) {
    if (graph_.values[value].task < 0 || !values_[value].defined()) return;
    memory_.remove(values_[value]);
    values_[value].reset();
  }
  void set(int value, at::Tensor tensor) {
    memory_.add(tensor);
    values_[value] = std::move(tensor);
  }

  void arrive(const SiteUsed& site, const at::Tensor& given) {
    const at::Tensor& meta = graph_.values[graph_.tasks[site.arrive].first_value].meta;
    PELLUCID_CHECK(state_[site.arrive] == State::kWaiting, "{} of group {} fired twice at step {}",
                   hook::site_name(site.key), site.group, site.step);
    PELLUCID_CHECK(given.sizes() == meta.sizes() && given.scalar_type() == meta.scalar_type(),
                   "{} of group {} at step {} is {}, the plan says {}", hook::site_name(site.key),
                   site.group, site.step, describe(given), describe(meta));
    at::Tensor value = given.detach();
    // A private copy of what the program changes; a compact one of what outlives the pass.
    const bool pins = site.keep && storage_bytes(value) > static_cast<int64_t>(value.nbytes());
    if (site.clone || pins || !value.is_contiguous()) {
      value = value.clone(at::MemoryFormat::Contiguous);
    } else {
      memory_.not_ours(value);
    }
    set(graph_.tasks[site.arrive].first_value, std::move(value));
    finish_task(site.arrive);
  }

  /// The pass goes on: with the site's new tensor, if the program made one.
  void leave(const SiteUsed& site, GroupValue& group) {
    bool applied = site.written;
    for (const int edit : site.edits) {
      if (state_[edit] == State::kDone && !missing_[edit]) continue;
      applied = false;
      lost_edits_.push_back(edit);
    }
    if (applied) {
      group.value = site.keep ? values_[site.current].clone() : values_[site.current];
      group.written = true;
    }
    release(site.current);
  }

  void execute(int t) {
    const Task& task = graph_.tasks[t];
    try {
      check_time();
      memory_.reserve(task.output_bytes + task.scratch_bytes);
      switch (task.kind) {
        case TaskKind::kArrive:
          break;
        case TaskKind::kOp:
          operation(task);
          break;
        case TaskKind::kRead:
          set(task.first_value, values_[plan_->read_of(task)]);
          break;
        case TaskKind::kWrite:
          write(task);
          break;
        case TaskKind::kSave:
          save(t, task);
          break;
        case TaskKind::kPart:
          part(task);
          break;
        case TaskKind::kWeight:
          weight(task);
          break;
        case TaskKind::kCall:
          call(task);
          break;
      }
    } catch (const RunError& e) {
      Status status = e.status();
      throw RunError(std::move(status).at(graph_.where(task)));
    } catch (const InternalError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw RunError(error(Code::kOutOfMemory, "ask for less at a time", "{}: out of memory",
                           graph_.node_of(task).name)
                         .at(graph_.where(task)));
    } catch (const std::exception& e) {  // torch also throws std::runtime_error, for numbers
      throw RunError(
          error(Code::kInvalidArgument, "", "{}: {}", graph_.node_of(task).name, sentence_of(e))
              .at(graph_.where(task)));
    }
  }

  void check_time() const {
    const double limit = graph_.options.limits.seconds;
    const double spent = std::chrono::duration<double>(Clock::now() - started_).count();
    if (spent <= limit) return;
    throw RunError(error(Code::kOverBudget, "ask for less, or raise the budget",
                         "seconds: {:.3f}, at most {:.3f} are allowed", spent, limit));
  }

  std::vector<at::Tensor> operands(const Task& task) const {
    std::vector<at::Tensor> out;
    for (const int value : task.operands) out.push_back(values_[value]);
    return out;
  }

  void operation(const Task& task) {
    const std::vector<at::Tensor> in = operands(task);
    std::vector<c10::IValue> stack = task.call->stack(in, environment_.device);
    task.call->operation->handle->callBoxed(&stack);
    std::vector<at::Tensor> out = tensors_of(std::move(stack));
    PELLUCID_CHECK(static_cast<int>(out.size()) == task.num_values,
                   "{} returned {} tensors, not {}", task.call->operation->name, out.size(),
                   task.num_values);
    for (int i = 0; i < task.num_values; ++i) {
      const Value& value = graph_.values[task.first_value + i];
      PELLUCID_CHECK(value.bounded || (out[i].sizes() == value.meta.sizes() &&
                                       out[i].scalar_type() == value.meta.scalar_type()),
                     "{} returned {}, the plan says {}", task.call->operation->name,
                     describe(out[i]), describe(value.meta));
      set(task.first_value + i, own(task, i, std::move(out[i]), in));
    }
  }

  /// The plan counts on what shares memory and what does not.
  at::Tensor own(const Task& task, int output, at::Tensor tensor,
                 const std::vector<at::Tensor>& in) {
    const int set = graph_.values[task.first_value + output].alias_set;
    for (size_t i = 0; i < in.size(); ++i) {
      if (graph_.values[task.operands[i]].alias_set == set) continue;
      if (tensor.storage().unsafeGetStorageImpl() == in[i].storage().unsafeGetStorageImpl()) {
        return tensor.clone();
      }
    }
    return tensor;
  }

  void write(const Task& task) {
    at::Tensor value = values_[task.operands[0]];
    if (!task.in_place_write) {
      const at::ScalarType dtype = graph_.values[task.first_value].meta.scalar_type();
      value = value.to(value.options().dtype(dtype), false, true, at::MemoryFormat::Contiguous);
    }
    set(task.first_value, std::move(value));
  }

  void save(int t, const Task& task) {
    at::Tensor value = values_[task.operands[0]];
    const bool compact =
        value.is_contiguous() && storage_bytes(value) == static_cast<int64_t>(value.nbytes());
    const bool taken = saved_storages_.contains(value.storage().unsafeGetStorageImpl());
    if (task.copy || !compact || taken) value = value.clone(at::MemoryFormat::Contiguous);
    saved_storages_.insert(value.storage().unsafeGetStorageImpl());
    saved_[t] = value.detach();
  }

  void part(const Task& task) {
    const at::Tensor& x = values_[task.operands[0]];
    const at::Tensor& meta = graph_.values[task.first_value].meta;
    const std::string& name = graph_.node_of(task).name;
    at::Tensor out = environment_.part(name, x.to(meta.scalar_type()));
    PELLUCID_CHECK(out.dim() == meta.dim() && out.scalar_type() == meta.scalar_type() &&
                       out.size(-1) == meta.size(-1),
                   "{} returned {}, the plan says {}", name, describe(out), describe(meta));
    set(task.first_value, own(task, 0, std::move(out), {x}));
  }

  void weight(const Task& task) {
    Result<at::Tensor> weight = environment_.weight(graph_.node_of(task).name);
    if (!weight.ok()) throw RunError(weight.status());
    memory_.not_ours(*weight);
    set(task.first_value, weight->detach());
  }

  void call(const Task& task) {
    // Copies: a function may change what it gets, and that is the model's weights, somebody's
    // constant or the pass's own buffer.
    std::vector<at::Tensor> in = operands(task);
    for (at::Tensor& operand : in) operand = operand.clone();
    at::Tensor out = environment_.call(graph_.node_of(task).name, in);
    if (task.num_values == 0) return;
    const at::Tensor& meta = graph_.values[task.first_value].meta;
    if (!out.defined() || out.sizes() != meta.sizes() || out.scalar_type() != meta.scalar_type()) {
      throw RunError(error(Code::kShapeMismatch, "make like= what the function returns",
                           "the function returned {}, not {}",
                           out.defined() ? describe(out) : "nothing", describe(meta)));
    }
    set(task.first_value, own(task, 0, out.detach(), in));
  }

  std::shared_ptr<const PlanImpl> plan_;
  const Graph& graph_;
  Environment environment_;
  LiveMemory memory_;
  Clock::time_point started_ = Clock::now();

  std::vector<State> state_;   // by task
  std::vector<bool> missing_;  // by task: its step did not happen
  std::vector<int> pending_;   // by task: others that it waits for
  std::vector<at::Tensor> values_;
  std::vector<int> uses_;  // by value: tasks that still want it
  std::priority_queue<int, std::vector<int>, std::greater<>> queue_;
  std::vector<int> last_step_;  // by group
  std::vector<int> lost_edits_;
  std::unordered_map<int, at::Tensor> saved_;  // by task
  std::unordered_set<const void*> saved_storages_;
};

Result<std::vector<Saved>> RunImpl::finish() {
  const at::NoGradGuard no_grad;
  drain();
  for (const SiteUsed& site : graph_.sites) {
    if (state_[site.arrive] == State::kDone) continue;
    return error(Code::kNotRun, "this model may not compute it on this path; please report this",
                 "{} at step {} was asked for and never came", hook::site_name(site.key), site.step)
        .at(site.where);
  }
  if (!lost_edits_.empty()) {
    const Task& edit = graph_.tasks[lost_edits_[0]];
    return error(Code::kNotRun, "use values of steps that are sure to happen",
                 "an edit at step {} needs a value of a step that did not happen", edit.step)
        .at(graph_.where(edit));
  }
  std::vector<Saved> out;
  for (size_t n = 0; n < graph_.task_of.size(); ++n) {
    const wire::Node& node = graph_.program.nodes[n];
    if (node.kind != wire::NodeKind::kSave) continue;
    Saved saved;
    saved.name = node.name;
    saved.where = node.where;
    std::vector<at::Tensor> steps;
    for (const auto& [step, t] : graph_.task_of[n]) {
      PELLUCID_CHECK(state_[t] == State::kDone, "save '{}' still waits", node.name);
      if (!missing_[t]) steps.push_back(std::move(saved_.at(t)));
    }
    saved.missing = steps.empty();
    saved.steps = node.per_step ? static_cast<int64_t>(steps.size()) : 0;
    if (!steps.empty()) saved.value = node.per_step ? at::stack(steps) : steps[0];
    out.push_back(std::move(saved));
  }
  return out;
}

}  // namespace

RunError::RunError(Status status) : c10::Error(status.message()), status_(std::move(status)) {}

std::unique_ptr<Run> Run::make(std::shared_ptr<const Plan> plan, Environment environment) {
  auto impl = std::dynamic_pointer_cast<const PlanImpl>(std::move(plan));
  PELLUCID_CHECK(impl != nullptr, "a plan that Plan::make did not make");
  return std::make_unique<RunImpl>(std::move(impl), std::move(environment));
}

}  // namespace pellucid::program
