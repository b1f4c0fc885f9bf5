#pragma once
// A trace: reads and edits the inside of a model's forward pass. Lines are written first, checked
// and run together by `run`; then the saved values are there.
//
//     pellucid::Model lm = pellucid::load("smollm2");
//     pellucid::Trace t(lm, "The Eiffel Tower is in");
//     pellucid::Value h = t.read("blocks.12.resid_post");     // [batch, seq, d_model]
//     h.select(1, -1).add_(direction * 4);                    // edits the last position
//     pellucid::Saved top = t.save(t.read("logits").select(1, -1).topk(5));
//     t.run();
//     top.value(0).to_vector<float>();                        // logits; top.value(1): ids
//
// Order: within a site, the order of lines; between sites, the order of the forward pass. One
// thread at a time; `run` waits its turn for the model. Everything throws pellucid::Error.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pellucid/model.h"
#include "pellucid/tensor.h"
#include "pellucid/value.h"

namespace pellucid {

/// The result of `Trace::save`. Copyable; any thread may read it after the run.
class Saved {
 public:
  /// Output `output` of what was saved, as it was at that line. Throws Error "not_run" before
  /// Trace::run, and when the step at which it was saved did not happen.
  Tensor value(int32_t output = 0) const;
  /// How many steps are stacked along the first dimension (saves inside Trace::steps).
  int64_t steps() const;

  struct Impl;
  explicit Saved(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// Rows of equal length that share lines: what `Trace::prompt` opens.
class Prompt {
 public:
  /// The group's value at a site, by canonical name or alias: [batch, seq, ...] of this step.
  Value read(std::string_view site, Where where = Where::current()) const;
  /// Replaces the value at a site; same shape.
  void write(std::string_view site, const Arg& value) const;

  /// Of row 0.
  const std::vector<int64_t>& tokens() const;
  /// Position of the `nth` token of row 0 whose text is exactly this (" France").
  /// "not_found" names the row's tokens.
  int64_t at(std::string_view token_text, int nth = 0) const;
  /// Positions [first, end) of the tokens of row 0 that hold the `nth` occurrence of `text`.
  std::pair<int64_t, int64_t> span(std::string_view text, int nth = 0) const;

  /// After the run: the row's new tokens and their text, and how many passes happened.
  const Generation& generated(int row = 0) const;
  int64_t steps_run() const;

 private:
  friend class Trace;
  Prompt(std::shared_ptr<TraceState> trace, int32_t group)
      : trace_(std::move(trace)), group_(group) {}
  std::shared_ptr<TraceState> trace_;
  int32_t group_;
};

/// While it lives, lines belong to its steps.
class [[nodiscard]] StepScope {
 public:
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  friend class Trace;
  StepScope(std::shared_ptr<TraceState> trace, int32_t first, int32_t end, bool per_step);
  std::shared_ptr<TraceState> trace_;
  int32_t first_, end_;
  bool per_step_;
};

class Trace {
 public:
  /// Without prompts yet: open them with `prompt`.
  explicit Trace(const Model& model);
  /// With one prompt. `options.max_new_tokens` here is 0 unless given: one pass, nothing generated.
  Trace(const Model& model, std::string_view text, Where where = Where::current());
  Trace(const Model& model, std::string_view text, const GenerateOptions& options,
        Where where = Where::current());
  Trace(Trace&&) noexcept = default;
  Trace& operator=(Trace&&) noexcept = default;

  /// Opens a group and makes it the one that `read` and `write` mean. Several texts or rows must
  /// have equal numbers of tokens (both lengths are named; open one prompt each instead: never
  /// padding).
  Prompt prompt(std::string_view text, Where where = Where::current());
  Prompt prompt(std::string_view text, const GenerateOptions& options,
                Where where = Where::current());
  Prompt prompt(const std::vector<std::string>& texts, Where where = Where::current());
  Prompt prompt(std::vector<std::vector<int64_t>> rows, const GenerateOptions& options,
                Where where = Where::current());

  /// The last prompt opened.
  Prompt current() const;
  Value read(std::string_view site, Where where = Where::current());
  void write(std::string_view site, const Arg& value);

  /// Saves the value as it is at this line.
  Saved save(const Value& value, std::string name = "", Where where = Where::current());
  /// Saves every output.
  Saved save(const Outputs& outputs, std::string name = "", Where where = Where::current());

  /// Any operation of PyTorch on Pellucid's list, by schema name and overload:
  /// t.op("aten::topk", {h, 5, -1, true, true})[1]. Throws "not_found" with the nearest names.
  Outputs op(std::string_view name, std::vector<Arg> args,
             std::vector<std::pair<std::string, Arg>> named = {}, Where where = Where::current());
  /// Logits [..., vocab] of any normed value, and the last norm of any residual value.
  Value unembed(const Arg& x);
  Value ln_final(const Arg& x);
  /// ln_final, then unembed: what a residual would say if the model ended there.
  Value lens(const Arg& x);
  /// A weight as a value; canonical name.
  Value weight(std::string_view name, Where where = Where::current());
  /// A tensor as a value. By reference: nothing is copied.
  Value constant(const Tensor& tensor, Where where = Where::current());

  /// Lines while the scope lives belong to pass `step` (0: the prompt's). New tokens n = passes n.
  StepScope step(int step);
  /// Recorded once, run at every pass of [first, end) that happens; saves stack along a new first
  /// dimension.
  StepScope steps(int first, int end);

  /// Checks everything, then runs. Throws Error, with the line: "not_found" (site, operation),
  /// "shape_mismatch", "out_of_order" (an edit upstream of a site already read: both lines),
  /// "over_budget", "not_run", "out_of_memory". Once per trace.
  void run();

  /// After the run: what is worth knowing though it is no error (a computed line that nobody uses).
  const std::vector<std::string>& warnings() const;

  /// The program in the JSON form that `pellucid trace` takes.
  std::string program_json() const;

 private:
  std::shared_ptr<TraceState> state_;
};

}  // namespace pellucid
