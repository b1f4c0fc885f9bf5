#include "engine/eager.h"

#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "engine/pass.h"
#include "engine/steps.h"

namespace pellucid::engine {
namespace {

using hook::Route;
using hook::Site;
using hook::SiteKey;

/// A moment of the trace: a site at a step. Moments compare in the order in which they happen.
struct Moment {
  int step = -1;
  SiteKey key;
  int order = -1;

  bool before(const Moment& other) const {
    return step != other.step ? step < other.step : order < other.order;
  }
  std::string name() const {
    return step == 0 ? hook::site_name(key)
                     : fmt::format("{} at step {}", hook::site_name(key), step);
  }
};

/// Thrown through the model when the caller has all that it wants.
struct Finished {};

/// What the two threads share. One of them waits whenever the other works.
class Session final : public hook::Listener, public std::enable_shared_from_this<Session> {
 public:
  Session(const Context& context, Job hooks) : context_(context) {
    job_.job = std::move(hooks);
    num_layers_ = static_cast<int>(context.model->info().sizes.num_layers);
  }

  // --- caller's side ---

  Result<at::Tensor> read(const Moment& target) {
    std::unique_lock lock(mutex_);
    PELLUCID_TRY(go_to(lock, target));
    return value_;
  }

  Status write(const Moment& target, const at::Tensor& value) {
    std::unique_lock lock(mutex_);
    PELLUCID_TRY(go_to(lock, target));
    if (value.sizes() != value_.sizes()) {
      return error(Code::kShapeMismatch, "a written value has exactly the site's shape",
                   "{} is {}, the new value {}", target.name(), fmt::join(value_.sizes(), "x"),
                   fmt::join(value.sizes(), "x"));
    }
    value_ = value.to(value_.scalar_type()).clone();
    replaced_ = true;
    return ok_status();
  }

  Result<GroupResult> finish() {
    std::unique_lock lock(mutex_);
    if (!ended_) {
      target_.reset();
      ending_ = true;
      hand_over(lock);
    }
    if (!job_.failure.ok()) return job_.failure;
    return std::move(result_);
  }

  void abandon() {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    abandoned_ = true;
    target_.reset();
    ending_ = true;
    hand_over(lock);
  }

  // --- engine's side ---

  void run() {
    {
      std::unique_lock lock(mutex_);
      wait_for_caller(lock);
    }
    try {
      generate();
    } catch (const Finished&) {
    } catch (const PassAbandoned&) {
      job_.failure = error(Code::kCancelled, "", "the trace was cancelled");
    } catch (...) {
      job_.failure = status_of_exception();
    }
    std::unique_lock lock(mutex_);
    ended_ = true;
    // A caller that asked for a site that never came learns so.
    engines_turn_ = false;
    turn_.notify_all();
  }

  at::Tensor packed(SiteKey key, at::Tensor x) override {
    const int64_t seq_now = key.site == Site::kLogits ? logits_seq_ : seq_;
    return stop_at(key, x,
                   [&](const at::Tensor& value) {
                     return value.unflatten(0, {batch_, seq_now});
                   })
        .value_or(std::move(x));
  }

  at::Tensor beside(SiteKey key, int, at::Tensor x) override {
    std::optional<at::Tensor> out = stop_at(key, x, [](const at::Tensor& value) { return value; });
    if (!out) return x;
    // The model asks after the site whether it is written, and takes the explicit path if so.
    step_.taps.watch_beside(key, 0, /*write=*/true);
    return *out;
  }

 private:
  // Runs the model until it stands at `target`. Called with the lock held.
  Status go_to(std::unique_lock<std::mutex>& lock, const Moment& target) {
    if (!job_.failure.ok()) return job_.failure;
    if (at_ && at_->step == target.step && at_->order == target.order) return ok_status();
    if (at_ && target.before(*at_)) {
      return error(Code::kOutOfOrder, "ask for sites in the order of the forward pass",
                   "{} has passed: the pass stands at {}", target.name(), at_->name());
    }
    if (!ended_) {
      target_ = target;
      hand_over(lock);
    }
    if (!job_.failure.ok()) return job_.failure;
    if (ended_ || !at_ || at_->order != target.order || at_->step != target.step) {
      return error(Code::kNotRun, fmt::format("{} passes ran", steps_run_), "{} never came",
                   target.name());
    }
    return ok_status();
  }

  void hand_over(std::unique_lock<std::mutex>& lock) {
    engines_turn_ = true;
    turn_.notify_all();
    while (
        !turn_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !engines_turn_; })) {
      if (job_.job.while_waiting) {
        lock.unlock();
        job_.job.while_waiting();
        lock.lock();
      }
    }
  }

  void wait_for_caller(std::unique_lock<std::mutex>& lock) {
    turn_.wait(lock, [this] { return engines_turn_; });
  }

  /// When the caller waits for this site: hands out the value, waits, and returns what the pass
  /// goes on with if the caller changed it.
  template <typename View>
  std::optional<at::Tensor> stop_at(SiteKey key, const at::Tensor& x, View view) {
    const Moment here{step_now_, key, key.order(num_layers_)};
    std::unique_lock lock(mutex_);
    if (!target_ || target_->step != here.step || target_->order != here.order) return std::nullopt;
    at_ = here;
    value_ = view(x).clone();
    replaced_ = false;
    const auto version = value_._version();
    const at::Tensor handed_out = value_;
    engines_turn_ = false;
    turn_.notify_all();
    wait_for_caller(lock);
    const bool changed = replaced_ || handed_out._version() != version;
    const at::Tensor out = value_;
    prepare_next();
    if (!changed) return std::nullopt;
    return out.detach().reshape(x.sizes()).clone();
  }

  /// Makes the site fire for which the caller waits now; called before the pass goes on.
  void prepare_next() {
    if (job_.cancelled() || abandoned_) throw PassAbandoned();
    if (!target_) {
      if (ending_ && !group_->generates()) throw Finished();
      return;
    }
    if (target_->step != step_now_) return;
    const SiteKey key = target_->key;
    if (hook::site_info(key.site).route == Route::kBeside) {
      step_.taps.watch_beside(key, 0, /*write=*/false);
    } else {
      step_.taps.watch(key);
    }
    if (key.site == Site::kLogits && logits_seq_ != seq_) {
      logits_seq_ = seq_;
      std::vector<int64_t> rows(static_cast<size_t>(batch_ * seq_));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
      step_.logit_rows = at::tensor(rows);
    }
  }

  void generate() {
    GroupState group = make_group_state(context_, job_, job_.job.program.groups[0], 0);
    group_ = &group;
    batch_ = group.batch();
    result_.steps_run = 0;
    while (!group.ended) {
      PassGroup pass = next_pass(group);
      run_step(group, pass);
      ++steps_run_;
      finish_step(context_, pass);
      if (ending_ && !group.generates()) break;
    }
    result_ = take_result(group);
  }

  void run_step(GroupState& group, PassGroup& pass) {
    step_now_ = group.next_step;
    seq_ = pass.seq;
    logits_seq_ = 0;
    step_ = model::Step{};
    step_.tokens_T = at::tensor(pass.tokens);
    std::vector<int64_t> positions;
    for (int64_t row = 0; row < batch_; ++row) {
      for (int64_t i = 0; i < seq_; ++i) positions.push_back(group.past + i);
    }
    step_.positions_T = at::tensor(positions);
    step_.groups.push_back(
        {.batch = batch_, .seq = seq_, .past = group.past, .cache = group.cache.get()});
    step_.layer_end = num_layers_;
    step_.taps = hook::Taps(this, num_layers_, 1);
    step_.poll = [this] {
      if (job_.cancelled()) throw PassAbandoned();
    };
    if (group.generates()) {
      logits_seq_ = 1;
      std::vector<int64_t> rows;
      for (int64_t row = 0; row < batch_; ++row) rows.push_back((row + 1) * seq_ - 1);
      step_.logit_rows = at::tensor(rows);
    }
    {
      const std::lock_guard lock(mutex_);
      prepare_next();
    }
    const at::Tensor logits = context_.model->forward(step_);
    if (group.generates()) {
      pass.last_logits_BV = logits.unflatten(0, {batch_, logits_seq_}).select(1, logits_seq_ - 1);
    }
    // The caller may wait for a site of this step that never fired: say so, and go on when asked.
    std::unique_lock lock(mutex_);
    while (target_ && target_->step <= step_now_ &&
           !(at_ && at_->step == target_->step && at_->order == target_->order)) {
      engines_turn_ = false;
      turn_.notify_all();
      wait_for_caller(lock);
      if (abandoned_) throw PassAbandoned();
    }
  }

  const Context& context_;
  JobState job_;
  int num_layers_ = 0;

  // engine's thread only
  model::Step step_;
  GroupState* group_ = nullptr;
  int step_now_ = 0;
  int64_t batch_ = 0, seq_ = 0, logits_seq_ = 0;

  // shared
  std::mutex mutex_;
  std::condition_variable turn_;
  bool engines_turn_ = false;
  std::optional<Moment> target_;  // the caller waits for this
  std::optional<Moment> at_;      // where the pass stands, or last stood
  at::Tensor value_;
  bool replaced_ = false;
  bool ending_ = false, abandoned_ = false, ended_ = false;
  int64_t steps_run_ = 0;
  GroupResult result_;
};

class EagerTraceImpl final : public EagerTrace {
 public:
  EagerTraceImpl(std::shared_ptr<Engine> engine, const Context& context,
                 std::shared_ptr<Session> session)
      : engine_(std::move(engine)), context_(context), session_(std::move(session)) {}
  ~EagerTraceImpl() override { session_->abandon(); }

  Result<at::Tensor> read(int step, SiteKey key) override {
    PELLUCID_ASSIGN(const Moment target, moment(step, key));
    return session_->read(target);
  }
  Status write(int step, SiteKey key, at::Tensor value) override {
    PELLUCID_ASSIGN(const Moment target, moment(step, key));
    return session_->write(target, value);
  }
  Result<at::Tensor> part(const std::string& name, const at::Tensor& x) override {
    return apply_part(*context_.model, name, x);
  }
  Result<GroupResult> finish() override { return session_->finish(); }

 private:
  Result<Moment> moment(int step, SiteKey key) const {
    if (!context_.model->catalog().has(key.site)) {
      return error(Code::kNotFound, "see `pellucid inspect MODEL --sites`", "{} has no site {}",
                   context_.model->info().family, hook::site_name(key));
    }
    const int num_layers = static_cast<int>(context_.model->info().sizes.num_layers);
    return Moment{step, key, key.order(num_layers)};
  }

  std::shared_ptr<Engine> engine_;  // owns the context; goes last
  const Context& context_;
  std::shared_ptr<Session> session_;
};

}  // namespace

Result<std::unique_ptr<EagerTrace>> open_eager(std::shared_ptr<Engine> engine,
                                               const Context& context, Worker& worker, Job hooks) {
  if (hooks.program.groups.size() != 1 || !hooks.program.nodes.empty()) {
    return error(Code::kInvalidArgument, "open one eager trace for each prompt",
                 "an eager trace runs one group and no recorded nodes; got {} groups, {} nodes",
                 hooks.program.groups.size(), hooks.program.nodes.size());
  }
  PELLUCID_TRY(check_group(context, hooks.program.groups[0]));
  auto session = std::make_shared<Session>(context, std::move(hooks));
  worker.post([session] { session->run(); });
  return std::unique_ptr<EagerTrace>(new EagerTraceImpl(std::move(engine), context, session));
}

}  // namespace pellucid::engine
