#pragma once
// A file's bytes, mapped read-only. Nobody may write through them: the pages are shared with the
// file and protected, so a write faults.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace pellucid::files {

/// Unmapped when the last owner goes. Immutable, so safe from any thread. A file that another
/// process truncates while it is mapped ends this one with SIGBUS: replace model files by rename.
class MappedFile {
 public:
  /// Errors: kNotFound (no such file), kInvalidArgument (a folder, a device), kCorruptFile (empty),
  /// kIo (permissions and the like, in the system's words).
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// The whole of a small text file such as config.json. Errors as `MappedFile::open`, and
/// kCorruptFile when it is larger than `bytes_max`.
Result<std::string> read_text_file(const std::filesystem::path& path, size_t bytes_max);

/// `text` as it may be shown on a terminal: in quotes, control characters escaped, cut after 80
/// bytes. For names that come out of a file.
std::string printable(std::string_view text);

}  // namespace pellucid::files
