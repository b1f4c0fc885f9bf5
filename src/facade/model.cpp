#include "pellucid/model.h"

#include "facade/convert.h"
#include "facade/model_impl.h"
#include "pellucid/torch.h"

namespace pellucid {
namespace facade {

wire::Group group_of(const GenerateOptions& options) {
  wire::Group group;
  group.max_new_tokens = options.max_new_tokens;
  group.sampling = {options.temperature,        options.top_k, options.top_p, options.min_p,
                    options.repetition_penalty, options.seed};
  group.stop = options.stop;
  return group;
}

Generation generation_of(engine::RowResult row) {
  return {std::move(row.tokens), std::move(row.text), std::move(row.ended)};
}

}  // namespace facade

Model load(const std::string& name_or_path, const LoadOptions& options) {
  model::LoadOptions load_options;
  load_options.dtype = facade::scalar_type(options.dtype);
  load_options.progress = options.progress;
  return Model(std::make_shared<const Model::Impl>(
      Model::Impl{facade::unwrap(engine::load(name_or_path, load_options))}));
}

ModelInfo Model::info() const {
  const model::ModelInfo& info = impl_->loaded.model->info();
  const hook::SiteSizes& sizes = info.sizes;
  return {.family = info.family,
          .num_layers = sizes.num_layers,
          .d_model = sizes.d_model,
          .num_heads = sizes.num_heads,
          .num_kv_heads = sizes.num_kv_heads,
          .head_width = sizes.head_width,
          .d_mlp = sizes.d_mlp,
          .vocab_size = sizes.vocab,
          .context_length = info.context_length,
          .num_parameters = info.num_parameters,
          .dtype = facade::dtype_of(info.dtype),
          .hash = info.hash};
}

Generation Model::generate(const std::vector<int64_t>& tokens,
                           const GenerateOptions& options) const {
  engine::Job job;
  wire::Group group = facade::group_of(options);
  group.tokens = {tokens};
  job.program.groups.push_back(std::move(group));
  job.cancelled = options.cancelled;
  if (options.on_text) {
    job.on_token = [&options](const engine::TokenEvent& event) {
      if (!event.text.empty()) options.on_text(event.text);
    };
  }
  engine::JobResult result = facade::unwrap(impl_->loaded.engine->run(std::move(job)));
  return facade::generation_of(std::move(result.groups.at(0).rows.at(0)));
}

Generation Model::generate(std::string_view prompt, const GenerateOptions& options) const {
  return generate(encode(prompt), options);
}

std::vector<int64_t> Model::encode(std::string_view text) const {
  return facade::unwrap(impl_->loaded.tokenizer->encode(text)).ids;
}

std::string Model::decode(const std::vector<int64_t>& tokens) const {
  return facade::unwrap(impl_->loaded.tokenizer->decode(tokens));
}

int64_t Model::id(std::string_view text) const {
  return facade::unwrap(impl_->loaded.tokenizer->id_of(text));
}

std::vector<std::string> Model::sites() const {
  return hook::site_names(impl_->loaded.model->catalog());
}

std::vector<std::string> Model::weights() const {
  std::vector<std::string> names;
  for (model::WeightInfo& weight : impl_->loaded.model->weights()) {
    names.push_back(std::move(weight.name));
  }
  return names;
}

Tensor Model::weight(std::string_view name) const {
  return from_torch(facade::unwrap(impl_->loaded.model->weight(name)));
}

Tensor Model::unembed(const Tensor& x) const {
  return from_torch(facade::unwrap(impl_->loaded.engine->part("unembed", to_torch(x))));
}

Tensor Model::ln_final(const Tensor& x) const {
  return from_torch(facade::unwrap(impl_->loaded.engine->part("ln_final", to_torch(x))));
}

}  // namespace pellucid
