// chat: a conversation in the model's own template.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "apps/cli/chat_text.h"
#include "apps/cli/json.h"
#include "apps/cli/sampling_options.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::string system;
  SamplingOptions sampling = {.sampling = {}, .max_tokens = 512, .stop = {}, .verbose = false};
};

constexpr std::string_view kHelp =
    "/reset  forget the conversation\n"
    "/help   this text\n"
    "Ctrl-C  stop the answer\n"
    "Ctrl-D  end\n";

/// Lines of standard input, without stdio: a Ctrl-C must be able to end a wait without ending
/// input.
class LineReader {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted, kFailed };

  Outcome next(std::string& line) {
    for (;;) {
      if (const size_t at = pending_.find('\n'); at != std::string::npos) {
        line = pending_.substr(0, at);
        pending_.erase(0, at + 1);
        return Outcome::kLine;
      }
      char chunk[4096];
      const ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) {
        pending_.clear();
        return Outcome::kInterrupted;
      }
      if (got < 0) return Outcome::kFailed;
      if (got == 0) {
        if (pending_.empty()) return Outcome::kEnd;
        line = std::move(pending_);
        pending_.clear();
        return Outcome::kLine;
      }
      pending_.append(chunk, static_cast<size_t>(got));
    }
  }

 private:
  std::string pending_;
};

class Conversation {
 public:
  Conversation(const engine::LoadedModel& loaded, const Options& options, bool json)
      : loaded_(loaded), options_(options), json_(json) {
    reset();
  }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  /// One turn: streams the answer and remembers both sides. An error leaves the conversation as it
  /// was.
  Status turn(const std::string& user, InterruptGuard& interrupt) {
    messages_.push_back({"user", user});
    Result<engine::RowResult> row = answer(interrupt);
    if (!row.ok()) {
      messages_.pop_back();
      return std::move(row).status();
    }
    messages_.push_back({"assistant", row->text});
    return ok_status();
  }

 private:
  Result<engine::RowResult> answer(InterruptGuard& interrupt) {
    PELLUCID_ASSIGN(std::vector<int64_t> tokens, encode_chat(loaded_, messages_));
    const auto tokens_read = static_cast<int64_t>(tokens.size());
    engine::Job job;
    wire::Group group = group_of(options_.sampling);
    group.tokens = {std::move(tokens)};
    job.program.groups.push_back(std::move(group));
    job.cancelled = interrupt.flag();
    job.on_token = [&](const engine::TokenEvent& event) {
      if (!json_) put(event.text);
      if (!flush_output().ok()) interrupt.flag()->store(true);
    };
    const Stopwatch time;
    PELLUCID_ASSIGN(engine::JobResult result, loaded_.engine->run(std::move(job)));
    engine::RowResult row = std::move(result.groups.at(0).rows.at(0));
    if (json_) {
      put_json(Json{{"user", messages_.back().content},
                    {"assistant", row.text},
                    {"ended", row.ended},
                    {"tokens", row.tokens},
                    {"prompt_tokens", tokens_read},
                    {"seconds", time.seconds()}});
    } else {
      put("\n");
    }
    if (options_.sampling.verbose) {
      std::fprintf(stderr, "%s\n",
                   timing_text(tokens_read, static_cast<int64_t>(row.tokens.size()), time.seconds(),
                               options_.sampling)
                       .c_str());
    }
    return row;
  }

  const engine::LoadedModel& loaded_;
  const Options& options_;
  bool json_;
  std::vector<text::Message> messages_;
};

/// What a line that begins with "/" asks for. False: it is no command.
bool command(const std::string& line, Conversation& conversation) {
  if (!line.starts_with("/")) return false;
  if (line == "/reset") {
    conversation.reset();
    std::fputs("The conversation is forgotten.\n", stderr);
  } else if (line == "/help") {
    std::fputs(std::string(kHelp).c_str(), stderr);
  } else {
    std::fprintf(stderr, "pellucid: no command '%s' (there are /reset and /help)\n", line.c_str());
  }
  return true;
}

Status chat(const Options& options, const GlobalOptions& global) {
  PELLUCID_ASSIGN(const engine::LoadedModel loaded, load_model(options.model, global));
  // Refuse before the first question what no question can change.
  if (auto tried = encode_chat(loaded, {{"user", "Hello"}}); !tried.ok())
    return std::move(tried).status();
  const bool talking = is_terminal(STDIN_FILENO);
  const std::string mark = styled("> ", "1;36", colours(STDERR_FILENO));
  if (talking) std::fprintf(stderr, "Ctrl-C stops an answer, Ctrl-D ends, /help says more.\n");
  Conversation conversation(loaded, options, global.json);
  InterruptGuard interrupt(SecondInterrupt::kIgnored);
  LineReader reader;
  for (std::string line;;) {
    if (talking) std::fputs(mark.c_str(), stderr);
    switch (reader.next(line)) {
      case LineReader::Outcome::kEnd:
        if (talking) std::fputs("\n", stderr);
        return ok_status();
      case LineReader::Outcome::kFailed:
        return error(Code::kIo, "", "cannot read standard input");
      case LineReader::Outcome::kInterrupted:
        interrupt.reset();
        std::fputs("\n", stderr);
        continue;
      case LineReader::Outcome::kLine:
        break;
    }
    if (line.find_first_not_of(" \t\r") == std::string::npos || command(line, conversation))
      continue;
    Status status = conversation.turn(line, interrupt);
    const bool stopped = interrupt.interrupted();
    interrupt.reset();
    PELLUCID_TRY(flush_output());
    if (status.ok()) continue;
    if (stopped && status.code == Code::kCancelled) {
      put("\n");
      continue;
    }
    if (!talking) return status;
    std::fprintf(stderr, "pellucid: %s\n", status.message().c_str());
  }
}

std::function<Status()> add(CLI::App& app, const GlobalOptions& global) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "A name that `pellucid models` lists, or a path")
      ->required();
  app.add_option("--system", options->system,
                 "A message before the conversation that says how to answer");
  add_sampling_options(app, options->sampling);
  return [options, &global] { return chat(*options, global); };
}

}  // namespace

const Subcommand kChat = {
    "chat", "A conversation, a line a turn; also from a pipe",
    "  pellucid chat smollm2 --system \"You are brief.\"\n"
    "  echo \"What is the capital of France?\" | pellucid chat smollm2 --json\n",
    add};

}  // namespace pellucid::cli
