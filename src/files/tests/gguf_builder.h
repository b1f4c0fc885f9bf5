#pragma once
// Writes GGUF bytes, right ones and wrong ones, for tests.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"

namespace pellucid::files {

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  template <typename T>
  static std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
  static std::string text(std::string_view value) {
    return raw<uint64_t>(value.size()) + std::string(value);
  }
  static std::string array(GgufType element, uint64_t count, const std::string& elements) {
    return raw(element) + raw(count) + elements;
  }

  /// `value`: the bytes after the type.
  void pair(std::string_view key, GgufType type, const std::string& value) {
    pairs_.push_back(text(key) + raw(type) + value);
  }
  /// `data` begins at the next aligned byte.
  void tensor(std::string_view name, std::vector<uint64_t> ggml_shape, uint32_t type,
              const std::string& data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, std::move(ggml_shape), type, data_.size());
    data_ += data;
  }
  void tensor_at(std::string_view name, std::vector<uint64_t> ggml_shape, uint32_t type,
                 uint64_t offset) {
    std::string info = text(name) + raw<uint32_t>(ggml_shape.size());
    for (const uint64_t size : ggml_shape) info += raw(size);
    tensors_.push_back(info + raw(type) + raw(offset));
  }

  std::string build() const {
    std::string out =
        "GGUF" + raw(version) + raw<uint64_t>(tensors_.size()) + raw<uint64_t>(pairs_.size());
    for (const std::string& pair : pairs_) out += pair;
    for (const std::string& tensor : tensors_) out += tensor;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::vector<std::string> pairs_, tensors_;
  std::string data_;
};

}  // namespace pellucid::files
