#pragma once
// What a subcommand is. Each lives in its own file and has one line in main.cpp's list.
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace CLI {
class App;
}

namespace pellucid::cli {

/// Options that every subcommand takes.
struct GlobalOptions {
  bool json = false;
  int threads = 0;  // 0: as many as torch thinks right
  std::string dtype = "float32";
  std::string device = "cpu";
};

struct Subcommand {
  std::string_view name;
  std::string_view summary;
  std::string_view examples;  // whole lines that can be typed as they are
  /// Adds its own options; returns what runs if the user chose it. `options` is filled by then.
  /// A status of Code::kCancelled ends with exit code 130, any other error with 1.
  std::function<Status()> (*add)(CLI::App& app, const GlobalOptions& options);
};

extern const Subcommand kRun, kChat, kInspect, kLens, kTrace, kTokens, kModels, kDoctor;

}  // namespace pellucid::cli
