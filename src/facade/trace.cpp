#include "pellucid/trace.h"

#include "facade/trace_state.h"

namespace pellucid {

using facade::raise;

Tensor Saved::value(int32_t output) const {
  if (output < 0 || static_cast<size_t>(output) >= impl_->names.size()) {
    raise(error(Code::kInvalidArgument, "count from 0", "output {} of a save of {}", output,
                impl_->names.size()));
  }
  if (!impl_->ran) {
    raise(error(Code::kNotRun, "call Trace::run first", "'{}' has no value yet",
                impl_->names[output]));
  }
  if (impl_->missing[output]) {
    raise(error(Code::kNotRun, "Prompt::steps_run() says how many passes there were",
                "'{}' was never saved: its step did not happen", impl_->names[output]));
  }
  return impl_->values[output];
}

int64_t Saved::steps() const { return impl_->steps; }

StepScope::StepScope(std::shared_ptr<TraceState> trace, int32_t first, int32_t end, bool per_step)
    : trace_(std::move(trace)), first_(first), end_(end), per_step_(per_step) {
  trace_->steps.push_back({first_, end_, per_step_});
}
StepScope::~StepScope() { trace_->steps.pop_back(); }

Trace::Trace(const Model& model) : state_(std::make_shared<TraceState>(model)) {}
Trace::Trace(const Model& model, std::string_view text, Where where) : Trace(model) {
  prompt(text, where);
}
Trace::Trace(const Model& model, std::string_view text, const GenerateOptions& options, Where where)
    : Trace(model) {
  prompt(text, options, where);
}

Prompt Trace::prompt(std::string_view text, Where where) {
  return prompt(std::vector<std::string>{std::string(text)}, where);
}
Prompt Trace::prompt(std::string_view text, const GenerateOptions& options, Where where) {
  return prompt(std::vector<std::vector<int64_t>>{state_->model.encode(text)}, options, where);
}
Prompt Trace::prompt(const std::vector<std::string>& texts, Where where) {
  std::vector<std::vector<int64_t>> rows;
  for (const std::string& text : texts) rows.push_back(state_->model.encode(text));
  GenerateOptions options;
  options.max_new_tokens = 0;
  return prompt(std::move(rows), options, where);
}
Prompt Trace::prompt(std::vector<std::vector<int64_t>> rows, const GenerateOptions& options,
                     Where where) {
  return Prompt(state_, state_->open(std::move(rows), options, where));
}

Prompt Trace::current() const {
  if (state_->groups.empty()) {
    raise(error(Code::kInvalidArgument, "open one: t.prompt(\"...\")", "the trace has no prompt"));
  }
  return Prompt(state_, static_cast<int32_t>(state_->groups.size()) - 1);
}
Value Trace::read(std::string_view site, Where where) { return current().read(site, where); }
void Trace::write(std::string_view site, const Arg& value) { current().write(site, value); }

Saved Trace::save(const Value& value, std::string name, Where where) {
  return state_->save({state_->to_wire(value)}, std::move(name), where);
}
Saved Trace::save(const Outputs& outputs, std::string name, Where where) {
  if (outputs.count_ == facade::kList) {
    raise(error(Code::kInvalidArgument, "save its items: outputs[0], outputs[1], ...",
                "{} returns a list of a length not known yet", outputs.operation_));
  }
  std::vector<wire::Arg> values;
  for (int32_t i = 0; i < std::max(1, outputs.count_); ++i) {
    values.push_back(state_->to_wire(state_->value(outputs.node_, i)));
  }
  return state_->save(values, std::move(name), where);
}

Outputs Trace::op(std::string_view name, std::vector<Arg> args,
                  std::vector<std::pair<std::string, Arg>> named, Where where) {
  return state_->op(std::string(name), args, named, where);
}
Value Trace::unembed(const Arg& x) {
  return state_->value(
      state_->add(wire::NodeKind::kPart, "unembed", {state_->to_wire(x)}, -1, x.where()));
}
Value Trace::ln_final(const Arg& x) {
  return state_->value(
      state_->add(wire::NodeKind::kPart, "ln_final", {state_->to_wire(x)}, -1, x.where()));
}
Value Trace::lens(const Arg& x) { return unembed(Arg(ln_final(x), x.where())); }
Value Trace::weight(std::string_view name, Where where) {
  return state_->value(state_->add(wire::NodeKind::kWeight, std::string(name), {}, -1, where));
}
Value Trace::constant(const Tensor& tensor, Where where) { return state_->constant(tensor, where); }

StepScope Trace::step(int step) {
  if (step < 0)
    raise(error(Code::kInvalidArgument, "step 0 is the prompt's pass", "step {}", step));
  return StepScope(state_, step, step + 1, false);
}
StepScope Trace::steps(int first, int end) {
  if (first < 0 || end <= first) {
    raise(error(Code::kInvalidArgument, "ranges are half-open: steps(1, 4) is 1, 2, 3",
                "steps from {} to {}", first, end));
  }
  return StepScope(state_, first, end, true);
}

void Trace::run() { state_->run(); }
const std::vector<std::string>& Trace::warnings() const { return state_->warnings; }
std::string Trace::program_json() const { return facade::unwrap(wire::to_json(state_->program)); }

}  // namespace pellucid
