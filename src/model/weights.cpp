#include "model/weights.h"

#include <set>

#include "base/nearest.h"
#include "hook/glob.h"

namespace pellucid::model {
namespace {

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status check_shape(const tensor::ModelFiles& files, const WeightPlan& plan) {
  const auto* info = files.weights->find(plan.source);
  if (info == nullptr) {
    return error(Code::kNotFound, did_you_mean(plan.source, files.weights->names()),
                 "{} has no tensor {}", files.path.string(), plan.source);
  }
  if (info->shape == plan.shape) return ok_status();
  return error(Code::kShapeMismatch, "the weights do not belong to this config",
               "{}: {} is {}, its config says {}", files.path.string(), plan.source,
               shape_text(info->shape), shape_text(plan.shape));
}

Status refuse_others(const tensor::ModelFiles& files, std::span<const WeightPlan> plans,
                     std::span<const std::string_view> ignorable) {
  std::set<std::string_view> planned;
  for (const WeightPlan& plan : plans) planned.insert(plan.source);
  for (const std::string& name : files.weights->names()) {
    if (planned.contains(name)) continue;
    bool ignored = false;
    for (const std::string_view pattern : ignorable) {
      ignored = ignored || hook::glob_match(pattern, name);
    }
    if (ignored) continue;
    return error(Code::kUnsupported, "it would change what the model computes",
                 "{}: unknown tensor {}", files.path.string(), name);
  }
  return ok_status();
}

// Weights that change their layout are copied even where the file's dtype is the wanted one, which
// tensor::check_fits_memory takes for free.
Status check_copies_fit(int64_t bytes) {
  const int64_t available = tensor::available_memory_bytes();
  if (available == 0 || bytes <= available) return ok_status();
  return error(Code::kOutOfMemory, "try a smaller dtype or a smaller model",
               "weights of another layout take {:.1f} GB, {:.1f} GB of memory are free",
               static_cast<double>(bytes) / 1e9, static_cast<double>(available) / 1e9);
}

}  // namespace

at::Tensor deinterleave(const at::Tensor& rows, int64_t num_heads) {
  const int64_t width = rows.size(0) / num_heads;
  std::vector<int64_t> pairs{num_heads, width / 2, 2};
  pairs.insert(pairs.end(), rows.sizes().begin() + 1, rows.sizes().end());
  return rows.reshape(pairs).transpose(1, 2).reshape(rows.sizes()).contiguous();
}

Status load_weights(const tensor::ModelFiles& files, std::span<const WeightPlan> plans,
                    std::span<const std::string_view> ignorable, const LoadOptions& options) {
  int64_t bytes_total = 0, bytes_copied = 0;
  for (const WeightPlan& plan : plans) {
    PELLUCID_TRY(check_shape(files, plan));
    int64_t bytes = static_cast<int64_t>(c10::elementSize(options.dtype));
    for (const int64_t size : plan.shape) bytes *= size;
    bytes_total += bytes;
    if (plan.layout != WeightPlan::Layout::kPlain) bytes_copied += bytes;
  }
  PELLUCID_TRY(refuse_others(files, plans, ignorable));
  PELLUCID_TRY(tensor::check_fits_memory(*files.weights, options.dtype));
  PELLUCID_TRY(check_copies_fit(bytes_copied));
  int64_t bytes_done = 0;
  for (const WeightPlan& plan : plans) {
    PELLUCID_ASSIGN(at::Tensor loaded,
                    files.weights->load(plan.source, plan.dtype.value_or(options.dtype)));
    switch (plan.layout) {
      case WeightPlan::Layout::kPlain:
        break;
      case WeightPlan::Layout::kTransposed:
        loaded = loaded.t().contiguous();
        break;
      case WeightPlan::Layout::kInterleaved:
        loaded = deinterleave(loaded, plan.num_heads);
        break;
    }
    bytes_done += static_cast<int64_t>(loaded.nbytes());
    *plan.target = std::move(loaded);
    if (options.progress) options.progress(bytes_done, bytes_total);
  }
  return ok_status();
}

}  // namespace pellucid::model
