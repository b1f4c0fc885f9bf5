// Loading, facts, names of sites, weights, parts.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "hook/common_aliases.h"
#include "loaded.h"
#include "pellucid/version.h"
#include "python_function.h"
#include "tensor/dtype.h"
#include "tensor/model_folder.h"
#include "tensor_bridge.h"
#include "waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid::python {
namespace {

ModelHandle load(const std::string& name, const std::string& dtype, nb::object progress,
                 int64_t prefill_chunk) {
  engine::EngineOptions engine_options;
  engine_options.prefill_chunk = prefill_chunk;
  model::LoadOptions options;
  options.dtype = require(tensor::parse_dtype(dtype));
  if (PythonFunction show{std::move(progress)}) {
    options.progress = [show](int64_t done, int64_t total) {
      const nb::gil_scoped_acquire gil;
      try {
        show(done, total);
      } catch (const nb::python_error&) {  // a bar that fails is no reason not to load
      }
    };
  }
  return {require(wait_for(
      [name, options, engine_options] { return engine::load(name, options, engine_options); },
      nullptr))};
}

nb::dict info(const ModelHandle& self) {
  const model::ModelInfo& info = self.loaded.model->info();
  nb::dict facts;
  facts["family"] = info.family;
  facts["num_layers"] = info.sizes.num_layers;
  facts["d_model"] = info.sizes.d_model;
  facts["num_heads"] = info.sizes.num_heads;
  facts["num_kv_heads"] = info.sizes.num_kv_heads;
  facts["head_width"] = info.sizes.head_width;
  facts["d_mlp"] = info.sizes.d_mlp;
  facts["vocab"] = info.sizes.vocab;
  facts["context_length"] = info.context_length;
  facts["tied_head"] = info.tied_head;
  facts["num_parameters"] = info.num_parameters;
  facts["weight_bytes"] = info.weight_bytes;
  facts["dtype"] = std::string(tensor::dtype_name(info.dtype));
  facts["hash"] = info.hash;
  return facts;
}

std::vector<std::string> aliases(const ModelHandle& self) {
  std::vector<std::string> names;
  for (const hook::Alias& alias : self.catalog().aliases) names.emplace_back(alias.alias);
  for (const hook::Alias& alias : hook::common_aliases()) {
    if (self.catalog().has(alias.site)) names.emplace_back(alias.alias);
  }
  return names;
}

std::pair<std::string, bool> resolve(const ModelHandle& self, const std::string& name) {
  const hook::Resolved found = require(hook::resolve_site(self.catalog(), name));
  return {hook::site_name(found.key), found.flatten_heads};
}

std::vector<std::string> match(const ModelHandle& self, const std::string& glob) {
  std::vector<std::string> names;
  for (const hook::SiteKey key : require(hook::match_sites(self.catalog(), glob))) {
    names.push_back(hook::site_name(key));
  }
  return names;
}

std::vector<int64_t> site_shape(const ModelHandle& self, const std::string& name, int64_t batch,
                                int64_t seq, int64_t key_seq) {
  const hook::SiteKey key = require(hook::resolve_site(self.catalog(), name)).key;
  return hook::site_shape(self.catalog(), key, batch, seq, key_seq);
}

std::vector<std::pair<std::string, std::vector<int64_t>>> weights(const ModelHandle& self) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> list;
  for (const model::WeightInfo& weight : self.loaded.model->weights()) {
    list.emplace_back(weight.name, weight.shape);
  }
  return list;
}

at::Tensor part(const ModelHandle& self, const std::string& name, at::Tensor x) {
  return require(
      wait_for([engine = self.loaded.engine, name, x] { return engine->part(name, x); }, nullptr));
}

nb::list models() {
  nb::list list;
  for (const tensor::ListedModel& model :
       tensor::list_models(tensor::model_places_from_environment())) {
    nb::dict entry;
    entry["name"] = model.name;
    entry["path"] = model.path.string();
    entry["format"] = model.format;
    entry["bytes"] = model.bytes;
    entry["problem"] = model.problem;
    list.append(entry);
  }
  return list;
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def("version", [] { return pellucid::version(); });
  module.def("models", &models);
  nb::class_<ModelHandle>(module, "Model")
      .def_static("load", &load, "name"_a, "dtype"_a, "progress"_a.none(), "prefill_chunk"_a = 0)
      .def_prop_ro("info", &info)
      .def_prop_ro("tokenizer",
                   [](const ModelHandle& self) {
                     return TokenizerHandle{self.loaded.tokenizer, self.loaded.chat_template};
                   })
      .def("sites", [](const ModelHandle& self) { return hook::site_names(self.catalog()); })
      .def("aliases", &aliases)
      .def("resolve", &resolve)
      .def("match", &match)
      .def("site_shape", &site_shape)
      .def("weights", &weights)
      .def("weight",
           [](const ModelHandle& self, const std::string& name) {
             return require(self.loaded.model->weight(name));
           })
      .def("part", &part)
      .def("forget_engine", [](const ModelHandle& self) {
        // In a forked child the engine's thread does not exist, and nobody can join it.
        new std::shared_ptr<engine::Engine>(self.loaded.engine);
      });
}

}  // namespace pellucid::python
