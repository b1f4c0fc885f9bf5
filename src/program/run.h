#pragma once
// Executes the nodes of one plan as the forward pass reaches their sites.
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "program/plan.h"

namespace pellucid::program {

/// A fault while the program runs: a c10::Error whose message is `status.message()`, user's line
/// included; `status` has the code (kOverBudget, kShapeMismatch, ...).
class RunError : public c10::Error {
 public:
  explicit RunError(Status status);
  const Status& status() const { return status_; }

 private:
  Status status_;
};

/// What the nodes may call. Owned by the engine; functions run on the engine's thread.
struct Environment {
  at::Device device = at::kCPU;  // of the model: where zeros, arange, ... are made
  std::vector<at::Tensor> constants;
  std::function<at::Tensor(const std::string& part, const at::Tensor& x)> part;     // kPart
  std::function<Result<at::Tensor>(const std::string& name)> weight;                // kWeight
  std::function<at::Tensor(const std::string& key, std::vector<at::Tensor>)> call;  // kCall
};

/// The value of a group at a site.
struct GroupValue {
  int group = 0;
  at::Tensor value;  // in: [batch, seq, ...], a view of the pass; never changed. out: see `written`
  bool written = false;  // out: `value` is a fresh tensor that takes the old one's place
};

struct Saved {
  std::string name;
  at::Tensor value;      // owned, compact, detached; undefined when `missing`
  bool missing = false;  // its step did not happen
  int64_t steps = 0;     // per_step saves: how many are stacked
  std::string where;
};

class Run {
 public:
  static std::unique_ptr<Run> make(std::shared_ptr<const Plan> plan, Environment environment);
  virtual ~Run() = default;

  /// Nodes that need no site. Call once, first.
  virtual void begin() = 0;
  /// Nodes due at this site in this wave and step, in line order, over all groups given. Packed
  /// sites: called once with all groups of the wave that use it; beside sites: once for each group.
  /// A site that the plan does not use is left alone. Throws RunError, with the user's line, when
  /// an operation fails or a budget is hit; the run is over then.
  virtual void visit(int wave, int step, hook::SiteKey key, std::vector<GroupValue>& groups) = 0;
  /// The rows of `group` ended: no step after `last_step` happens.
  virtual void group_ended(int group, int last_step) = 0;
  /// Nodes outside of groups that have become ready, saves stacked. Errors: kNotRun for a site that
  /// was asked for and never fired though its step happened (names site and line).
  virtual Result<std::vector<Saved>> finish() = 0;
};

}  // namespace pellucid::program
