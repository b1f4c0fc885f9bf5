// run: continue one prompt or several, streaming.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>

#include "apps/cli/chat_text.h"
#include "apps/cli/json.h"
#include "apps/cli/sampling_options.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::vector<std::string> prompts;
  bool chat = false;
  std::string system;
  SamplingOptions sampling;
};

/// Prints rows in the order of their prompts while they grow side by side: the first unfinished one
/// streams, later ones wait. On the engine's thread while the job runs.
class Stream {
 public:
  Stream(const Options& options, bool json, engine::CancelFlag cancel)
      : options_(options),
        json_(json),
        cancel_(std::move(cancel)),
        waiting_(options.prompts.size()),
        ended_(options.prompts.size(), false) {}

  void start() { heading(0); }

  void on_token(const engine::TokenEvent& event) {
    if (json_) {
      put_json(Json{{"prompt", event.group}, {"token", event.token}, {"text", event.text}});
    } else {
      waiting_[event.group] += event.text;
      ended_[event.group] = !event.ended.empty();
      drain();
    }
    // Nobody can read the rest: a full disk, a closed pipe.
    if (!flush_output().ok()) cancel_->store(true);
  }

 private:
  void heading(size_t index) {
    if (json_ || index >= options_.prompts.size()) return;
    if (options_.prompts.size() > 1) {
      put(fmt::format("{}{}\n", index == 0 ? "" : "\n",
                      styled(fmt::format("[{}] {}", index + 1, options_.prompts[index]), "1",
                             colours(STDOUT_FILENO))));
    } else if (is_terminal(STDOUT_FILENO) && !options_.chat) {
      put(styled(options_.prompts[index], "2", colours(STDOUT_FILENO)));
    }
  }
  void drain() {
    while (current_ < waiting_.size()) {
      put(waiting_[current_]);
      waiting_[current_].clear();
      if (!ended_[current_]) return;
      put("\n");
      heading(++current_);
    }
  }

  const Options& options_;
  bool json_;
  engine::CancelFlag cancel_;
  std::vector<std::string> waiting_;
  std::vector<bool> ended_;
  size_t current_ = 0;
};

/// The ids of each prompt, template applied where asked.
Result<std::vector<std::vector<int64_t>>> encode_all(const engine::LoadedModel& loaded,
                                                     Options& options) {
  std::vector<std::vector<int64_t>> encoded;
  for (std::string& prompt : options.prompts) {
    if (prompt == "-") {
      PELLUCID_ASSIGN(prompt, read_standard_input());
    }
    if (options.chat) {
      std::vector<text::Message> messages;
      if (!options.system.empty()) messages.push_back({"system", options.system});
      messages.push_back({"user", prompt});
      PELLUCID_ASSIGN(auto ids, encode_chat(loaded, messages));
      encoded.push_back(std::move(ids));
    } else {
      PELLUCID_ASSIGN(auto ids, encode_prompt(loaded, prompt));
      encoded.push_back(std::move(ids));
    }
  }
  return encoded;
}

void put_results(const std::vector<std::vector<int64_t>>& prompts,
                 const engine::JobResult& result) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const engine::RowResult& row = result.groups[i].rows[0];
    put_json(Json{{"prompt", i},
                  {"ended", row.ended},
                  {"text", row.text},
                  {"tokens", row.tokens},
                  {"prompt_tokens", prompts[i].size()},
                  {"seconds", result.seconds}});
  }
}

Status run(Options& options, const GlobalOptions& global) {
  const Stopwatch load_time;
  PELLUCID_ASSIGN(const engine::LoadedModel loaded, load_model(options.model, global));
  const double load_seconds = load_time.seconds();
  PELLUCID_ASSIGN(const auto prompts, encode_all(loaded, options));

  const InterruptGuard interrupt;
  Stream stream(options, global.json, interrupt.flag());
  engine::Job job;
  int64_t tokens_read = 0;
  for (const std::vector<int64_t>& tokens : prompts) {
    wire::Group group = group_of(options.sampling);
    group.tokens = {tokens};
    tokens_read += static_cast<int64_t>(tokens.size());
    job.program.groups.push_back(std::move(group));
  }
  job.cancelled = interrupt.flag();
  job.on_token = [&](const engine::TokenEvent& event) { stream.on_token(event); };

  stream.start();
  const Stopwatch time;
  const Result<engine::JobResult> result = loaded.engine->run(std::move(job));
  const double seconds = time.seconds();
  PELLUCID_TRY(flush_output());
  if (interrupt.interrupted()) {
    if (!global.json) put("\n");
    return error(Code::kCancelled, "", "interrupted");
  }
  if (!result.ok()) return result.status();
  if (global.json) put_results(prompts, *result);
  if (options.sampling.verbose) {
    int64_t made = 0;
    for (const engine::GroupResult& group : result->groups)
      made += static_cast<int64_t>(group.rows[0].tokens.size());
    std::fprintf(stderr, "%s; loaded in %.2f s\n",
                 timing_text(tokens_read, made, seconds, options.sampling).c_str(), load_seconds);
  }
  return ok_status();
}

std::function<Status()> add(CLI::App& app, const GlobalOptions& global) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "A name that `pellucid models` lists, or a path")
      ->required();
  app.add_option("PROMPT", options->prompts,
                 "Text to continue, or - for standard input; several run together")
      ->required();
  app.add_flag("--chat", options->chat,
               "Give the prompt as a user's message in the model's template");
  app.add_option("--system", options->system, "System message, with --chat");
  add_sampling_options(app, options->sampling);
  return [options, &global] { return run(*options, global); };
}

}  // namespace

const Subcommand kRun = {
    "run", "Continue a text",
    "  pellucid run smollm2 \"The Eiffel Tower is in the city of\" --max-tokens 40\n"
    "  pellucid run smollm2 --chat \"Name three rivers\" --temperature 0.7 --seed 1\n"
    "  echo \"Once upon a time\" | pellucid run smollm2 - --json\n",
    add};

}  // namespace pellucid::cli
