#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "files/safetensors.h"

namespace pellucid::files {
namespace {

/// A file beside `target` that is removed unless `commit` succeeded.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(target) {
    static std::atomic<int> counter{0};
    do {  // O_EXCL: never over a file of somebody else, also not one left by a killed process
      path_ = fmt::format("{}.part-{}-{}", target.string(), ::getpid(), counter++);
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EEXIST);
  }
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!committed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool open() const { return fd_ >= 0; }

  Status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed("write");
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return ok_status();
  }

  Status commit() {
    if (::fsync(fd_) != 0) return failed("flush");
    if (::rename(path_.c_str(), target_.c_str()) != 0) return failed("rename");
    committed_ = true;
    return ok_status();
  }

  Status failed(const char* doing) const {
    const int error_number = errno;
    const char* hint = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG
                           ? "free some space; nothing was left behind"
                           : "nothing was left behind";
    return error(Code::kIo, hint, "cannot {} {}: {}", doing, target_.string(),
                 std::strerror(error_number));
  }

 private:
  std::filesystem::path target_;
  std::string path_;
  int fd_ = -1;
  bool committed_ = false;
};

Status check(const TensorToWrite& tensor) {
  const SafeDtypeInfo& dtype = safe_dtype_info(tensor.dtype);
  if (tensor.name.empty() || tensor.name == "__metadata__") {
    return error(Code::kInvalidArgument, "choose another name", "a tensor cannot be named {}",
                 printable(tensor.name));
  }
  int64_t size = dtype.bytes;
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0 || __builtin_mul_overflow(size, dimension, &size)) {
      return error(Code::kInvalidArgument, "", "tensor {} has a dimension of {}",
                   printable(tensor.name), dimension);
    }
  }
  if (static_cast<uint64_t>(size) != tensor.bytes.size()) {
    return error(Code::kInvalidArgument, "pass contiguous elements",
                 "tensor {}: its shape takes {} bytes, {} were given", printable(tensor.name), size,
                 tensor.bytes.size());
  }
  return ok_status();
}

/// The header, padded so that the data begins at a multiple of 8.
Result<std::string> make_header(std::span<const TensorToWrite* const> sorted,
                                const std::map<std::string, std::string>& metadata) {
  auto json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : sorted) {
    const uint64_t end = offset + tensor->bytes.size();
    json.push_back({tensor->name,
                    {{"dtype", safe_dtype_info(tensor->dtype).name},
                     {"shape", tensor->shape},
                     {"data_offsets", {offset, end}}}});
    offset = end;
  }
  try {
    std::string text = json.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
  } catch (const nlohmann::json::exception&) {  // the library's only way to say it
    return error(Code::kInvalidArgument, "use UTF-8", "a name or metadata text is not UTF-8");
  }
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names;
  std::vector<const TensorToWrite*> sorted;
  for (const TensorToWrite& tensor : tensors) {
    PELLUCID_TRY(check(tensor));
    if (!names.insert(tensor.name).second) {
      return error(Code::kInvalidArgument, "choose another name", "two tensors are named {}",
                   printable(tensor.name));
    }
    sorted.push_back(&tensor);
  }
  // Widest elements first keeps every tensor aligned.
  std::ranges::sort(sorted, [](const TensorToWrite* a, const TensorToWrite* b) {
    const int a_bytes = safe_dtype_info(a->dtype).bytes, b_bytes = safe_dtype_info(b->dtype).bytes;
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  PELLUCID_ASSIGN(const std::string header, make_header(sorted, metadata));
  const uint64_t header_size = header.size();

  TemporaryFile file(path);
  if (!file.open()) return file.failed("create");
  PELLUCID_TRY(file.write(std::as_bytes(std::span(&header_size, 1))));
  PELLUCID_TRY(file.write(std::as_bytes(std::span(header))));
  for (const TensorToWrite* tensor : sorted) PELLUCID_TRY(file.write(tensor->bytes));
  return file.commit();
}

}  // namespace pellucid::files
