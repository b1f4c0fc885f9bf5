#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pellucid::files {
namespace {

/// Closes the descriptor on every way out; the mapping outlives it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Status cannot_open(const std::filesystem::path& path, int error_number) {
  if (error_number == ENOENT || error_number == ENOTDIR) {
    return error(Code::kNotFound, "check the spelling of the path", "no file {}", path.string());
  }
  return error(Code::kIo, "", "cannot read {}: {}", path.string(), std::strerror(error_number));
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer; fstat refuses it below.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return cannot_open(path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return cannot_open(path, errno);
  if (S_ISDIR(info.st_mode)) {
    return error(Code::kInvalidArgument, "give a file", "{} is a folder", path.string());
  }
  if (!S_ISREG(info.st_mode)) {
    return error(Code::kInvalidArgument, "give a regular file", "{} is not a regular file",
                 path.string());
  }
  if (info.st_size == 0) {
    return error(Code::kCorruptFile, "fetch it again", "{} is empty", path.string());
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (start == MAP_FAILED) return cannot_open(path, errno);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, {static_cast<const std::byte*>(start), size}));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

Result<std::string> read_text_file(const std::filesystem::path& path, size_t bytes_max) {
  PELLUCID_ASSIGN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > bytes_max) {
    return error(Code::kCorruptFile, "is this the right file?",
                 "{} has {} bytes, at most {} are expected", path.string(), bytes.size(),
                 bytes_max);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  if (text.size() > kShown) out += "...";
  return out + "\"";
}

}  // namespace pellucid::files
