#pragma once
// The only place where a program meets a model: runs the rows of many jobs in shared forward passes
// and, at each site, whatever part of each row's program has become ready.
//
// One engine = one thread that does all tensor work; every public function may be called from any
// thread and waits its turn.
#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model.h"
#include "program/plan.h"
#include "program/run.h"
#include "text/tokenizer.h"
#include "wire/program.h"

namespace pellucid::engine {

struct EngineOptions {
  /// A wave whose prompts hold more tokens than this runs in several passes.
  int64_t tokens_per_pass_max = 8192;
  /// Prompts longer than this are prefilled piece by piece; 0: whole. A program that uses sites of
  /// step 0 sees whole prompts always, so its groups are never cut.
  int64_t prefill_chunk = 0;
  /// Tokens that end a row.
  std::vector<int64_t> eos_ids;
  /// Rows of the same tokens share the pass below their first write.
  bool share_prefixes = true;
  program::Limits limits;
};

/// One new token of one row, in the order in which they are made.
struct TokenEvent {
  int group = 0;
  int row = 0;
  int64_t token = 0;
  std::string text;   // whole UTF-8 characters only; may be empty
  std::string ended;  // "": goes on; else RowResult::ended
};

/// Set from any thread; the engine stops within a block of the model.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

/// A program and what it needs here. Groups carry their prompts.
struct Job {
  wire::Program program;
  std::vector<at::Tensor> constants;  // by reference; read while the job runs, never written
  /// kCall nodes: called on the engine's thread.
  std::function<at::Tensor(const std::string& key, std::vector<at::Tensor> values)> call;
  std::function<void(const TokenEvent&)> on_token;  // on the engine's thread
  CancelFlag cancelled;
  /// Called about every 50 ms on the thread that waits for the result (Python looks for Ctrl-C
  /// there). Must not throw.
  std::function<void()> while_waiting;
};

struct RowResult {
  std::vector<int64_t> tokens;  // new ones, the one that ended the row included
  std::string text;             // of the new tokens, without a stop string and what follows it
  std::string ended;  // "length", "eos", "stop", "cancelled" or "" (nothing was generated)
};

struct GroupResult {
  std::vector<RowResult> rows;
  int64_t steps_run = 0;  // passes that happened
};

struct JobResult {
  std::vector<program::Saved> saved;
  std::vector<GroupResult> groups;
  std::vector<std::string> warnings;
  double seconds = 0;
};

/// An eager trace: one group whose forward pass waits at each site that the caller asks for, so
/// that values are real and any code may run on them. Other jobs wait until it is finished or
/// destroyed.
class EagerTrace {
 public:
  virtual ~EagerTrace() = default;
  /// Runs on to the site and returns the group's value: the caller's own tensor; what it holds when
  /// the pass goes on is what the pass goes on with. Asking again for the current site returns the
  /// same tensor. Errors: kOutOfOrder (the site has passed: names it and where the pass stands),
  /// kNotFound, kNotRun, and whatever the pass failed with.
  virtual Result<at::Tensor> read(int step, hook::SiteKey key) = 0;
  /// Replaces the value at the site (running on to it). Errors as `read`, and kShapeMismatch.
  virtual Status write(int step, hook::SiteKey key, at::Tensor value) = 0;
  /// A model part on a real tensor: "unembed", "ln_final".
  virtual Result<at::Tensor> part(const std::string& name, const at::Tensor& x) = 0;
  /// Runs to the end (all steps). Nothing may be read after.
  virtual Result<GroupResult> finish() = 0;
};

class Engine {
 public:
  static std::shared_ptr<Engine> make(std::shared_ptr<const model::Model> model,
                                      std::shared_ptr<const text::Tokenizer> tokenizer,
                                      EngineOptions options = {});
  virtual ~Engine() = default;

  /// Checks, runs, waits. Errors: everything that program::Plan::make refuses; kInvalidArgument for
  /// prompts (empty, unequal lengths in a group, id outside the vocabulary, longer than the
  /// context: both numbers); kCancelled; kOutOfMemory; kOverBudget; kNotRun.
  virtual Result<JobResult> run(Job job) = 0;
  /// Several jobs in the same passes: every row's values are bit-equal to those of `run` alone.
  virtual std::vector<Result<JobResult>> run_together(std::vector<Job> jobs) = 0;

  /// `hooks.program` has one group and no nodes; of the rest `on_token`, `cancelled` and
  /// `while_waiting` are used. The pass starts at the first site asked for.
  virtual Result<std::unique_ptr<EagerTrace>> eager(Job hooks) = 0;

  /// A model part outside any trace: "unembed" or "ln_final" of any [..., d_model].
  virtual Result<at::Tensor> part(const std::string& name, const at::Tensor& x) = 0;

  virtual const model::Model& model() const = 0;
  virtual const text::Tokenizer& tokenizer() const = 0;
};

/// What `pellucid.load` does: files, weights, tokenizer, engine.
struct LoadedModel {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::string chat_template;  // "" when the files have none
  std::shared_ptr<Engine> engine;
};
Result<LoadedModel> load(const std::string& name_or_path, const model::LoadOptions& load_options,
                         const EngineOptions& engine_options = {});
/// The tokenizer alone, without weights.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const tensor::ModelFiles& files);

}  // namespace pellucid::engine
