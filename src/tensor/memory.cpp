#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tensor/dtype.h"
#include "tensor/weight_source.h"

namespace pellucid::tensor {
namespace {

/// The number that a file of the kernel holds; 0 when there is none ("max", no such file).
int64_t number_in(const char* path) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? value : 0;
}

/// A cgroup's limit less what is used; 0 when there is no limit.
int64_t cgroup_left(const char* limit_path, const char* used_path) {
  const int64_t limit = number_in(limit_path);
  // cgroup 1 says "no limit" with a number near 2^63.
  if (limit <= 0 || limit > (int64_t{1} << 60)) return 0;
  const int64_t used = number_in(used_path);
  return limit > used ? limit - used : 1;
}

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace

int64_t available_memory_bytes() {
  int64_t available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kilobytes) == 1)
      available = kilobytes * 1024;
  }
  for (const int64_t left :
       {cgroup_left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        cgroup_left("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
    if (left > 0 && (available == 0 || left < available)) available = left;
  }
  return available;
}

Status check_fits_memory(const WeightSource& weights, at::ScalarType dtype) {
  const int64_t needed = bytes_to_allocate(weights, dtype);
  const int64_t available = available_memory_bytes();
  if (available == 0 || needed <= available) return ok_status();
  return error(
      Code::kOutOfMemory,
      c10::elementSize(dtype) > 2 ? "try bfloat16, or a smaller model" : "try a smaller model",
      "the weights take {} in {}, {} of memory are free", gigabytes(needed), dtype_name(dtype),
      gigabytes(available));
}

}  // namespace pellucid::tensor
