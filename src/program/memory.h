#pragma once
// How much memory the values of a run hold, by storage: views count once, memory of others never.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>

namespace pellucid::program {

class LiveMemory {
 public:
  explicit LiveMemory(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Constants, weights, buffers of the pass.
  void not_ours(const at::Tensor& tensor);
  void add(const at::Tensor& tensor);
  void remove(const at::Tensor& tensor);
  /// Throws RunError (kOverBudget) when `bytes` more would be too many.
  void reserve(int64_t bytes) const;
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t limit_bytes_;
  int64_t bytes_ = 0;
  struct Held {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::unordered_map<const void*, Held> held_;
};

}  // namespace pellucid::program
