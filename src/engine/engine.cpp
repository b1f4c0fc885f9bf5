#include "engine/engine.h"

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "engine/batch.h"
#include "engine/eager.h"
#include "engine/pass.h"
#include "engine/worker.h"

namespace pellucid::engine {
namespace {

Status inside_callback() {
  return error(Code::kInvalidArgument, "run it before the trace, or from another thread",
               "the model was called from inside a callback of its own run");
}

class EngineImpl final : public Engine, public std::enable_shared_from_this<EngineImpl> {
 public:
  explicit EngineImpl(Context context) : context_(std::move(context)) {}

  Result<JobResult> run(Job job) override {
    std::vector<Job> jobs;
    jobs.push_back(std::move(job));
    return std::move(run_together(std::move(jobs)).front());
  }

  std::vector<Result<JobResult>> run_together(std::vector<Job> jobs) override {
    if (worker_.is_here()) return {jobs.size(), inside_callback()};
    if (jobs.empty()) return {};
    const std::function<void()> while_waiting = jobs.front().while_waiting;
    return worker_.call([&] { return run_batch(context_, std::move(jobs)); }, while_waiting);
  }

  Result<std::unique_ptr<EagerTrace>> eager(Job hooks) override {
    if (worker_.is_here()) return inside_callback();
    return open_eager(shared_from_this(), context_, worker_, std::move(hooks));
  }

  Result<at::Tensor> part(const std::string& name, const at::Tensor& x) override {
    const auto apply = [&] { return apply_part(*context_.model, name, x); };
    // A callback may use parts: it is on the engine's thread already.
    return worker_.is_here() ? apply() : worker_.call(apply);
  }

  const model::Model& model() const override { return *context_.model; }
  const text::Tokenizer& tokenizer() const override { return *context_.tokenizer; }

 private:
  Context context_;
  Worker worker_;
};

}  // namespace

Result<at::Tensor> apply_part(const model::Model& model, const std::string& name,
                              const at::Tensor& x) {
  if (name != "unembed" && name != "ln_final") {
    return error(Code::kNotFound, "there are unembed and ln_final", "no model part named {}", name);
  }
  const int64_t width = model.info().sizes.d_model;
  if (x.dim() == 0 || x.size(-1) != width) {
    return error(Code::kShapeMismatch, fmt::format("the last dimension is d_model = {}", width),
                 "{} of a tensor of shape {}", name, fmt::join(x.sizes(), "x"));
  }
  try {
    const c10::AutoGradMode no_grad(false);
    const at::Tensor typed = x.to(model.info().dtype);
    return name == "unembed" ? model.unembed(typed) : model.final_norm(typed);
  } catch (...) {
    return status_of_exception();
  }
}

std::shared_ptr<Engine> Engine::make(std::shared_ptr<const model::Model> model,
                                     std::shared_ptr<const text::Tokenizer> tokenizer,
                                     EngineOptions options) {
  return std::make_shared<EngineImpl>(
      Context{std::move(model), std::move(tokenizer), std::move(options)});
}

}  // namespace pellucid::engine
