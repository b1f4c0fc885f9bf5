// pellucid: one binary, a file a subcommand. Adding one is a file and a line in kSubcommands.
//
// This is the seam where exceptions become a Status; see docs/use/cli.md for the exit codes.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <clocale>
#include <cstdio>
#include <exception>
#include <new>

#include "apps/cli/json.h"
#include "apps/cli/version.h"
#include "base/nearest.h"
#include "tensor/dtype.h"

namespace pellucid::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kErrorExit = 1;
constexpr int kUsageExit = 2;

const std::array<const Subcommand*, 8> kSubcommands = {
    &kRun, &kChat, &kInspect, &kLens, &kTrace, &kTokens, &kModels, &kDoctor,
};

/// The dtypes that models compute in.
std::string check_dtype(std::string& name) {
  static const std::vector<std::string> kNames = {"float32", "float64", "bfloat16"};
  for (const std::string& known : kNames) {
    if (name == known) return "";
  }
  return fmt::format("no dtype '{}' ({})", name,
                     did_you_mean(name, kNames, "there are float32, float64 and bfloat16"));
}

void add_global_options(CLI::App& app, GlobalOptions& options) {
  app.add_flag("--json", options.json, "Print JSON instead of text, for scripts");
  app.add_option("--threads", options.threads,
                 "Threads to compute with (default: as torch decides)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--dtype", options.dtype, "float32 (default), float64 or bfloat16")
      ->check(CLI::Validator(check_dtype, ""));
  app.add_option("--device", options.device, "Where to compute: cpu");
}

int fail_usage(const std::string& message) {
  std::fprintf(stderr, "pellucid: %s\n", message.c_str());
  return kUsageExit;
}

int fail(const Status& status, bool json) {
  if (status.code == Code::kCancelled) {
    flush_output().ok();
    return kInterruptedExit;
  }
  std::fprintf(stderr, "pellucid: %s\n", status.message().c_str());
  if (json && !anything_put()) {  // one document: never a second one behind half of the first
    put_json(Json{
        {"error",
         {{"code", code_info(status.code).name}, {"what", status.what}, {"hint", status.hint}}}});
    flush_output().ok();
  }
  return kErrorExit;
}

/// "run" and "rnu --json": the nearest names.
std::string unknown_subcommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Subcommand* command : kSubcommands) names.emplace_back(command->name);
  return fmt::format("no command '{}' ({})", name,
                     did_you_mean(name, names, "pellucid --help lists them"));
}

bool is_subcommand(const std::string& name) {
  return std::any_of(kSubcommands.begin(), kSubcommands.end(),
                     [&](const Subcommand* command) { return command->name == name; });
}

/// What CLI11 says, as one sentence of ours: unknown options with the nearest ones.
std::string usage_message(const CLI::ParseError& problem, const CLI::App& app,
                          const std::vector<std::string>& words) {
  const auto chosen = app.get_subcommands();
  const CLI::App& where = chosen.empty() ? app : *chosen.front();
  if (dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr) {
    std::vector<std::string> known;
    for (const CLI::Option* option : where.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (!name.starts_with("--")) continue;
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      return fmt::format(
          "no option '{}' ({})", name,
          did_you_mean(name, known,
                       fmt::format("pellucid {} --help lists them", where.get_name())));
    }
  }
  std::string text = problem.what();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  if (text.ends_with(')')) return text;
  const std::string name = chosen.empty() ? "" : where.get_name() + " ";
  return fmt::format("{} (pellucid {}--help shows the options)", text, name);
}

int parse_and_run(int argc, char** argv) {
  GlobalOptions options;
  CLI::App app("Runs open language models, looks inside them and edits what they compute.",
               "pellucid");
  app.option_defaults()->always_capture_default(false);
  bool show_version = false;
  app.add_flag("--version", show_version, "Versions, processor features, kernels chosen, threads");
  add_global_options(app, options);
  app.require_subcommand(0, 1);

  std::function<Status()> action;
  std::string all_examples = "Examples:\n";
  for (const Subcommand* command : kSubcommands) {
    CLI::App* sub = app.add_subcommand(std::string(command->name), std::string(command->summary));
    std::function<Status()> run = command->add(*sub, options);
    add_global_options(*sub, options);
    sub->footer(fmt::format("Examples:\n{}", command->examples));
    sub->callback([&action, run = std::move(run)] { action = run; });
    all_examples += command->examples;
  }
  app.footer(all_examples + "\nEvery command has its own --help.");

  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && !words[0].starts_with("-") && !is_subcommand(words[0])) {
    return fail_usage(unknown_subcommand(words[0]));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    put(chosen.empty() ? app.help() : chosen.front()->help(app.get_name()));
    const Status written = flush_output();
    return written.ok() ? 0 : fail(written, false);
  } catch (const CLI::ParseError& problem) {
    return fail_usage(usage_message(problem, app, words));
  }
  if (show_version) {
    Status ready = apply(options);
    if (ready.ok()) {
      put(version_text(options.json));
      ready = flush_output();
    }
    return ready.ok() ? 0 : fail(ready, options.json);
  }
  if (!action) {
    std::fputs(app.help().c_str(), stderr);
    return kUsageExit;
  }
  Status status = action();
  if (status.ok()) status = flush_output();
  return status.ok() ? 0 : fail(status, options.json);
}

int guarded_main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "C.UTF-8");  // widths of characters
  install_interrupt_handler();
  try {
    return parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail(error(Code::kOutOfMemory, "close other programs, or use a smaller model or dtype",
                      "out of memory"),
                false);
  } catch (const std::exception& problem) {
    return fail(error(Code::kInternal, "please report this", "{}", problem.what()), false);
  }
}

}  // namespace
}  // namespace pellucid::cli

int main(int argc, char** argv) { return pellucid::cli::guarded_main(argc, argv); }
