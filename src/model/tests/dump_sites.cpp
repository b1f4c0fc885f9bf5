// dump_sites MODEL DTYPE PLAN.json OUT.safetensors
//
// Runs the passes of a plan and writes every watched site of every group as
// "pass{p}.group{g}.{site}", [batch, seq, ...]. The plan:
//   {"passes": [{"groups": [{"tokens": [[1, 2, 3]], "cache": 0, "join_layer": 0, "leader": -1}],
//                "edits": [{"site": "blocks.1.attn.scores", "group": 0, "scale": 0.5, "head": 2,
//                           "head_dim": 1}]}],
//    "watch": ["*"], "capacity": 32, "layer_end": 2, "logit_rows": [0]}
// Groups with the same "cache" continue each other; -1 or missing: none. An edit multiplies the
// site (of one head, if given) by a number.
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "files/safetensors.h"
#include "model/groups.h"
#include "model/model.h"
#include "tensor/dtype.h"

namespace {

using namespace pellucid;
using nlohmann::json;

struct Edit {
  hook::SiteKey key;
  int group;
  double scale;
  int64_t head, head_dim;
};

at::Tensor edited(const at::Tensor& x, const Edit& edit) {
  at::Tensor out = x.clone();
  at::Tensor part = edit.head < 0 ? out : out.select(edit.head_dim, edit.head);
  part.mul_(edit.scale);
  return out;
}

class Recorder : public hook::Listener {
 public:
  Recorder(const model::Step& step, const std::vector<Edit>& edits, std::string prefix,
           std::map<std::string, at::Tensor>& out)
      : step_(step), edits_(edits), prefix_(std::move(prefix)), out_(out) {}

  at::Tensor packed(hook::SiteKey key, at::Tensor x) override {
    std::vector<model::Replacement> changed;
    for (size_t i = 0; i < step_.groups.size(); ++i) {
      const model::GroupSpan& group = step_.groups[i];
      if (group.token_end() > x.size(0)) break;  // has not joined yet, or has no logits
      at::Tensor rows = model::group_rows(x, group);
      const at::Tensor seen = apply(key, static_cast<int>(i), rows);
      if (!seen.is_same(rows)) changed.push_back({i, seen});
    }
    return model::replace_rows(step_, x, changed);
  }

  at::Tensor beside(hook::SiteKey key, int group, at::Tensor x) override {
    return apply(key, group, x);
  }

 private:
  // Records the value before edits, as a read before a write sees it.
  at::Tensor apply(hook::SiteKey key, int group, at::Tensor x) {
    out_[fmt::format("{}group{}.{}", prefix_, group, hook::site_name(key))] =
        x.clone(at::MemoryFormat::Contiguous);
    for (const Edit& edit : edits_) {
      if (edit.key == key && edit.group == group) x = edited(x, edit);
    }
    return x;
  }

  const model::Step& step_;
  const std::vector<Edit>& edits_;
  std::string prefix_;
  std::map<std::string, at::Tensor>& out_;
};

Result<std::vector<Edit>> read_edits(const model::Model& model, const json& list) {
  std::vector<Edit> edits;
  for (const json& item : list) {
    PELLUCID_ASSIGN(const auto site,
                    hook::resolve_site(model.catalog(), item.at("site").get<std::string>()));
    edits.push_back({site.key, item.at("group"), item.at("scale"), item.value("head", -1),
                     item.value("head_dim", 0)});
  }
  return edits;
}

using Caches = std::map<int, model::KvCache>;

model::Step make_step(const model::Model& model, const json& pass, const json& plan,
                      Caches& caches) {
  model::Step step;
  std::vector<int64_t> tokens, positions;
  for (const json& item : pass.at("groups")) {
    const auto rows = item.at("tokens").get<std::vector<std::vector<int64_t>>>();
    model::GroupSpan group;
    group.token_first = static_cast<int64_t>(tokens.size());
    group.batch = static_cast<int64_t>(rows.size());
    group.seq = static_cast<int64_t>(rows.at(0).size());
    group.join_layer = item.value("join_layer", 0);
    group.leader = item.value("leader", -1);
    if (const int id = item.value("cache", -1); id >= 0) {
      group.cache = &caches[id];
      group.cache->capacity = plan.value("capacity", 0);
      group.past = group.cache->length;
    }
    for (const auto& row : rows) {
      for (int64_t s = 0; s < group.seq; ++s) {
        tokens.push_back(row.at(s));
        positions.push_back(group.past + s);
      }
    }
    step.groups.push_back(group);
  }
  step.tokens_T = at::tensor(tokens, at::TensorOptions(at::kLong));
  step.positions_T = at::tensor(positions, at::TensorOptions(at::kLong));
  const int num_layers = static_cast<int>(model.info().sizes.num_layers);
  step.layer_end = plan.value("layer_end", num_layers);
  step.final_norm = step.layer_end == num_layers;
  std::vector<int64_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  if (plan.contains("logit_rows")) rows = plan["logit_rows"].get<std::vector<int64_t>>();
  step.logit_rows = at::tensor(rows, at::TensorOptions(at::kLong));
  return step;
}

void watch(model::Step& step, hook::SiteKey key, const std::vector<Edit>& edits) {
  if (hook::site_info(key.site).route == hook::Route::kPacked) return step.taps.watch(key);
  for (size_t i = 0; i < step.groups.size(); ++i) {
    bool written = false;
    for (const Edit& edit : edits) {
      written = written || (edit.key == key && edit.group == static_cast<int>(i));
    }
    step.taps.watch_beside(key, static_cast<int>(i), written);
  }
}

Status run(int argc, char** argv) {
  if (argc != 5) return error(Code::kInvalidArgument, "", "usage: dump_sites MODEL DTYPE PLAN OUT");
  PELLUCID_ASSIGN(const auto files, tensor::open_model(argv[1]));
  PELLUCID_ASSIGN(const at::ScalarType dtype, tensor::parse_dtype(argv[2]));
  PELLUCID_ASSIGN(const auto model, model::load_model(files, {.dtype = dtype, .progress = {}}));
  std::ifstream in(argv[3]);
  const json plan = json::parse(in);
  const at::NoGradGuard no_grad;
  if (plan.contains("threads")) at::set_num_threads(plan["threads"]);

  std::map<std::string, at::Tensor> out;
  Caches caches;
  int pass_index = 0;
  for (const json& pass : plan.at("passes")) {
    model::Step step = make_step(*model, pass, plan, caches);
    PELLUCID_ASSIGN(const std::vector<Edit> edits,
                    read_edits(*model, pass.value("edits", json::array())));
    const std::string prefix = fmt::format("pass{}.", pass_index++);
    Recorder recorder(step, edits, prefix, out);
    step.taps = hook::Taps(&recorder, static_cast<int>(model->info().sizes.num_layers),
                           static_cast<int>(step.groups.size()));
    for (const json& glob : plan.value("watch", json::array())) {
      PELLUCID_ASSIGN(const auto keys,
                      hook::match_sites(model->catalog(), glob.get<std::string>()));
      for (const auto key : keys) watch(step, key, edits);
    }
    for (const Edit& edit : edits) watch(step, edit.key, edits);
    const at::Tensor logits = model->forward(step);
    if (logits.defined()) out[prefix + "result"] = logits.contiguous();
    for (auto& group : step.groups) {
      if (group.cache != nullptr) group.cache->length += group.seq;
    }
  }
  for (const auto& weight : model->weights()) {
    if (plan.value("weights", false))
      out["weight." + weight.name] = (*model->weight(weight.name)).contiguous();
  }

  std::vector<files::TensorToWrite> list;
  for (const auto& [name, value] : out) {
    const auto* dtype_info = files::find_safe_dtype(
        value.scalar_type() == at::kLong ? "I64"
                                         : tensor::find_dtype(value.scalar_type())->file_name);
    PELLUCID_CHECK(dtype_info != nullptr, "no file dtype for {}", name);
    list.push_back({name,
                    dtype_info->dtype,
                    value.sizes().vec(),
                    {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()}});
  }
  return files::write_safetensors(argv[4], list);
}

}  // namespace

int main(int argc, char** argv) {
  const pellucid::Status status = run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "dump_sites: %s\n", status.message().c_str());
  return 1;
}
