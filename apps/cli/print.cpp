#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "apps/cli/common.h"
#include "text/utf8.h"

namespace pellucid::cli {
namespace {

int output_errno = 0;  // of the first write that failed
bool any_output = false;

Status cannot_write(std::string_view what, int reason) {
  return error(Code::kIo, "free some space or choose another place", "cannot write {}: {}", what,
               std::strerror(reason));
}

}  // namespace

bool anything_put() { return any_output; }

void put(std::string_view text) {
  any_output = any_output || !text.empty();
  if (output_errno != 0) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    output_errno = errno != 0 ? errno : EIO;
  }
}

Status flush_output() {
  if (output_errno == 0) {
    errno = 0;
    if (std::fflush(stdout) != 0) output_errno = errno != 0 ? errno : EIO;
  }
  return output_errno == 0 ? ok_status() : cannot_write("to standard output", output_errno);
}

Status write_file(const std::filesystem::path& path, std::string_view contents) {
  std::error_code problem;
  const bool special =
      std::filesystem::exists(path, problem) && !std::filesystem::is_regular_file(path, problem);
  // A device or a pipe (/dev/stdout) is written to; only a regular file can be replaced.
  const std::filesystem::path target =
      special ? path : std::filesystem::path(fmt::format("{}.{}.part", path.string(), getpid()));
  std::FILE* file = std::fopen(target.c_str(), "wb");
  if (file == nullptr) return cannot_write(path.string(), errno);
  errno = 0;
  const bool written = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const bool flushed = written && std::fflush(file) == 0 && (special || fsync(fileno(file)) == 0);
  int reason = errno;
  if (std::fclose(file) != 0 && flushed) reason = errno;
  if (flushed && reason == 0 && !special) {
    std::filesystem::rename(target, path, problem);
    reason = problem.value();
  }
  if (flushed && reason == 0) return ok_status();
  if (!special) std::filesystem::remove(target, problem);
  return cannot_write(path.string(), reason != 0 ? reason : EIO);
}

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

bool colours(int descriptor) {
  const char* none = std::getenv("NO_COLOR");
  if (none != nullptr && *none != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return is_terminal(descriptor) && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

int terminal_columns() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? given : 100;
}

std::string styled(std::string_view text, std::string_view code, bool on) {
  return on ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

int columns_of(std::string_view utf8) {
  int columns = 0;
  for (size_t at = 0; at < utf8.size();) {
    const text::Utf8Step step = text::utf8_step(utf8.substr(at));
    at += step.size;
    columns += step.valid ? std::max(0, wcwidth(static_cast<wchar_t>(step.code_point))) : 1;
  }
  return columns;
}

std::string fitted(std::string_view utf8, int columns) {
  std::string out(utf8);
  if (columns_of(utf8) > columns) {
    out.clear();
    for (size_t at = 0; at < utf8.size();) {
      const size_t size = text::utf8_step(utf8.substr(at)).size;
      const std::string_view next = utf8.substr(at, size);
      if (columns_of(out) + columns_of(next) > columns - 1) break;
      out += next;
      at += size;
    }
    out += "…";
  }
  out.append(std::max(0, columns - columns_of(out)), ' ');
  return out;
}

std::string visible(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const text::Utf8Step step = text::utf8_step(bytes.substr(at));
    const std::string_view piece = bytes.substr(at, step.size);
    const bool shown = step.valid && wcwidth(static_cast<wchar_t>(step.code_point)) > 0;
    if (piece == " " && at == 0) {
      out += "·";
    } else if (piece == "\n") {
      out += "↵";
    } else if (shown) {
      out += piece;
    } else {
      for (const char byte : piece)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    at += step.size;
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes);
  int unit = -1;
  while (size >= 999.5 && unit < 4) {
    size /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}B", size, size < 9.95 ? 2 : size < 99.5 ? 1 : 0, "kMGTP"[unit]);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += i + 1 == row.size() ? row[i] : fitted(row[i], widths[i]) + "  ";
    }
    out += '\n';
  }
  return out;
}

}  // namespace pellucid::cli
