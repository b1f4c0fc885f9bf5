#pragma once
// What subcommands share: loading a model, printing, interruption.
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.h"
#include "base/status.h"
#include "engine/engine.h"
#include "tensor/weight_source.h"

namespace pellucid::cli {

// ---- loading

/// Sets the threads, checks dtype and device, loads, with a progress bar on a terminal.
Result<engine::LoadedModel> load_model(const std::string& name, const GlobalOptions& options);
/// Files and tokenizer only: no weights.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::string& name,
                                                              const GlobalOptions& options);
/// Threads, dtype and device, for commands that load no model. Errors: kUnsupported (the device).
Status apply(const GlobalOptions& options);

/// Encodes a prompt; errors when it is empty.
Result<std::vector<int64_t>> encode_prompt(const engine::LoadedModel& loaded,
                                           std::string_view text);
/// Everything on standard input ("-" as a prompt). Errors: kIo, kOverBudget (more than 64 MiB).
Result<std::string> read_standard_input();

// ---- printing

/// To standard output. Failures are kept: `flush_output` tells.
void put(std::string_view text);
/// Has `put` been called?
bool anything_put();
/// Errors: kIo with the system's reason (a full disk).
Status flush_output();
/// Writes a file beside `path`, then renames it: whole or not at all. Errors: kIo.
Status write_file(const std::filesystem::path& path, std::string_view contents);

bool is_terminal(int descriptor);
/// A terminal that shows colour, and NO_COLOR is not set. `descriptor`: 1 or 2.
bool colours(int descriptor);
/// Columns of the terminal on standard output; $COLUMNS or 100 elsewhere.
int terminal_columns();
/// "\x1b[1m" + text + reset, when `on`.
std::string styled(std::string_view text, std::string_view code, bool on);

/// Columns that the text takes on a terminal.
int columns_of(std::string_view utf8);
/// Cut to at most `columns` with "…", then padded with spaces to exactly that.
std::string fitted(std::string_view utf8, int columns);
/// A token's bytes for people: a leading space as "·", line ends as "↵", other control characters
/// and broken UTF-8 as \xNN.
std::string visible(std::string_view bytes);
/// "98.4 MB".
std::string bytes_text(int64_t bytes);

/// Rows of equal width, the first one a header; columns aligned left.
std::string table(const std::vector<std::vector<std::string>>& rows);

// ---- interruption

enum class SecondInterrupt { kEndsProcess, kIgnored };

/// Without a guard Ctrl-C ends the process at once (130). While one lives, Ctrl-C sets the flag
/// instead. One at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(SecondInterrupt second = SecondInterrupt::kEndsProcess);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  const engine::CancelFlag& flag() const { return flag_; }
  bool interrupted() const { return flag_->load(); }
  /// Forgets an interrupt, for the next turn.
  void reset();

 private:
  engine::CancelFlag flag_;
};
void install_interrupt_handler();
inline constexpr int kInterruptedExit = 130;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace pellucid::cli
