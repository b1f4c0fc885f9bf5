#include "apps/cli/common.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/nearest.h"
#include "tensor/dtype.h"

namespace pellucid::cli {
namespace {

constexpr size_t kStandardInputBytesMax = size_t{64} << 20;

/// A bar on standard error, redrawn at most once a percent, gone when the model is there.
class ProgressBar {
 public:
  explicit ProgressBar(std::string name)
      : name_(std::move(name)), on_(is_terminal(STDERR_FILENO)) {}
  ~ProgressBar() {
    if (drawn_ >= 0) std::fputs("\r\x1b[K", stderr);
  }
  void update(int64_t done, int64_t total) {
    const int percent = total > 0 ? static_cast<int>(100.0 * done / total) : 100;
    if (!on_ || percent == drawn_) return;
    drawn_ = percent;
    std::string bar;
    for (int i = 0; i < 20; ++i) bar += i < percent / 5 ? "█" : "░";
    const std::string line = fmt::format("\rLoading {} {} {:3} %  {} of {}\x1b[K", name_, bar,
                                         percent, bytes_text(done), bytes_text(total));
    std::fputs(line.c_str(), stderr);
  }

 private:
  std::string name_;
  bool on_;
  int drawn_ = -1;
};

}  // namespace

Status apply(const GlobalOptions& options) {
  if (options.device != "cpu") {
    return error(Code::kUnsupported, "leave --device out, or say --device cpu",
                 "no device '{}': this build computes on the CPU only", options.device);
  }
  if (options.threads > 0) at::set_num_threads(options.threads);
  return ok_status();
}

Result<engine::LoadedModel> load_model(const std::string& name, const GlobalOptions& options) {
  PELLUCID_TRY(apply(options));
  model::LoadOptions load_options;
  PELLUCID_ASSIGN(load_options.dtype, tensor::parse_dtype(options.dtype));
  ProgressBar bar(std::filesystem::path(name).filename().string());
  load_options.progress = [&](int64_t done, int64_t total) { bar.update(done, total); };
  return engine::load(name, load_options);
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::string& name,
                                                              const GlobalOptions& options) {
  PELLUCID_TRY(apply(options));
  PELLUCID_ASSIGN(const tensor::ModelFiles files, tensor::open_model(name));
  return engine::load_tokenizer(files);
}

Result<std::vector<int64_t>> encode_prompt(const engine::LoadedModel& loaded,
                                           std::string_view text) {
  PELLUCID_ASSIGN(text::Encoding encoding, loaded.tokenizer->encode(text));
  if (encoding.ids.empty()) {
    return error(Code::kInvalidArgument, "give it some text", "the prompt is empty");
  }
  return std::move(encoding.ids);
}

Result<std::string> read_standard_input() {
  std::string text;
  std::vector<char> chunk(1 << 16);
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, chunk.data(), chunk.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return error(Code::kIo, "", "cannot read standard input: {}", std::strerror(errno));
    }
    text.append(chunk.data(), static_cast<size_t>(got));
    if (text.size() > kStandardInputBytesMax) {
      return error(Code::kOverBudget, "give a shorter text", "standard input holds more than {}",
                   bytes_text(kStandardInputBytesMax));
    }
  }
}

}  // namespace pellucid::cli
