#include "program/memory.h"

#include "program/run.h"
#include "program/shapes.h"

namespace pellucid::program {
namespace {

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

void LiveMemory::not_ours(const at::Tensor& tensor) {
  held_.try_emplace(storage_of(tensor), Held{0, 0});
}

void LiveMemory::add(const at::Tensor& tensor) {
  const auto [place, fresh] = held_.try_emplace(storage_of(tensor), Held{0, 0});
  if (fresh) {
    place->second.bytes = storage_bytes(tensor);
    bytes_ += place->second.bytes;
  }
  ++place->second.count;
}

void LiveMemory::remove(const at::Tensor& tensor) {
  const auto found = held_.find(storage_of(tensor));
  if (found == held_.end() || --found->second.count > 0) return;
  bytes_ -= found->second.bytes;
  held_.erase(found);
}

void LiveMemory::reserve(int64_t bytes) const {
  if (bytes_ + bytes <= limit_bytes_) return;
  throw RunError(error(Code::kOverBudget, "save or keep less, or raise the budget",
                       "bytes of temporary memory: {}, at most {} are allowed", bytes_ + bytes,
                       limit_bytes_));
}

}  // namespace pellucid::program
