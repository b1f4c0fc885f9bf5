#pragma once
// A cursor over a file's bytes that never leaves them. Little-endian, unaligned.
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pellucid::files {

static_assert(std::endian::native == std::endian::little, "files are read in place");

class ByteReader {
 public:
  /// `label` begins every error: "gguf smollm2.gguf".
  ByteReader(std::span<const std::byte> bytes, std::string label)
      : bytes_(bytes), label_(std::move(label)) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) return truncated(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::span<const std::byte>> take(uint64_t size, std::string_view what) {
    if (left() < size) return truncated(size, what);
    const auto taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  /// "gguf x.gguf, byte 24: ...". `at` is the byte where the wrong thing begins.
  template <typename... Args>
  Status corrupt(uint64_t at, fmt::format_string<Args...> what, Args&&... args) const {
    return error(Code::kCorruptFile, "the file is damaged or was not fetched whole; fetch it again",
                 "{}, byte {}: {}", label_, at, fmt::format(what, std::forward<Args>(args)...));
  }

 private:
  Status truncated(uint64_t size, std::string_view what) const {
    return corrupt(position_, "expected {} bytes of {}, the file has {} more", size, what, left());
  }

  std::span<const std::byte> bytes_;
  std::string label_;
  uint64_t position_ = 0;
};

}  // namespace pellucid::files
