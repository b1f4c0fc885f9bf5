#include <doctest/doctest.h>
#include <fmt/format.h>

#include "model/model.h"
#include "model/tests/fake_files.h"

using namespace pellucid;
using namespace pellucid::model;

namespace {

// kTinyLlama with a field replaced or added.
std::string with(const std::string& field, const std::string& value) {
  return fmt::format("{{\"{}\": {}, {}", field, value, std::string(kTinyLlama).substr(1));
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kTinyLlama;
  text.replace(text.find(from), from.size(), to);
  return text;
}

Status load(std::string config, std::shared_ptr<FakeWeights> weights = tiny_llama_weights(),
            at::ScalarType dtype = at::kDouble) {
  const auto model = load_model(fake_files(std::move(config), std::move(weights)),
                                {.dtype = dtype, .progress = {}});
  return model.ok() ? ok_status() : model.status();
}

}  // namespace

TEST_CASE("loading: a whole model, and what it says about itself") {
  int64_t done = 0, total = 0;
  const auto model = load_model(fake_files(kTinyLlama, tiny_llama_weights()),
                                {.dtype = at::kFloat, .progress = [&](int64_t now, int64_t all) {
                                   CHECK(now > done);
                                   done = now;
                                   total = all;
                                 }});
  REQUIRE(model.ok());
  const ModelInfo& info = (*model)->info();
  CHECK(info.family == "llama");
  CHECK(info.num_parameters == 17 * 12 + 12 + 2 * (2 * 12 + 12 * 12 * 2 + 2 * 4 * 12 + 3 * 120));
  CHECK(info.weight_bytes == 4 * info.num_parameters);
  CHECK(done == total);
  CHECK(total == info.weight_bytes);
  CHECK(info.sizes.head_width == 4);
  CHECK(info.context_length == 32);
  CHECK(info.tied_head);
  CHECK(info.hash == "hash");
  CHECK((*model)->weight("blocks.1.attn.k")->sizes() == at::IntArrayRef({1, 4, 12}));
  CHECK((*model)->weight("blocks.1.attn.o")->sizes() == at::IntArrayRef({12, 3, 4}));
  CHECK((*model)->weight("unembed")->is_same(*(*model)->weight("embed")));
  CHECK((*model)->weight("blocks.1.attn.kk").status().message().find("blocks.1.attn.k") !=
        std::string::npos);
}

TEST_CASE("loading: fields that would change the maths are refused by name") {
  CHECK(load(kTinyLlama).ok());
  CHECK(load(with("sliding_window", "4096")).what ==
        "tiny/config.json: unknown field sliding_window = 4096");
  CHECK(load(with("sliding_window", "4096")).code == Code::kUnsupported);
  CHECK(load(with("sliding_window", "null")).ok());
  CHECK(load(with("quantization_config", R"({"bits": 4})")).what ==
        "tiny/config.json: unknown field quantization_config.bits = 4");
  CHECK(load(with("hidden_act", "\"quick_gelu\"")).what == "activation function 'quick_gelu'");
  CHECK(load(with("partial_rotary_factor", "0.5")).what ==
        "tiny/config.json: partial_rotary_factor = 0.5");
  CHECK(load(with("partial_rotary_factor", "1.0")).ok());
  CHECK(load(with("rope_interleaved", "true")).code == Code::kUnsupported);
  CHECK(load(with("rope_scaling", R"({"type": "longrope", "factor": 2})")).what ==
        "tiny/config.json: rotary scaling 'longrope'");
  CHECK(load(with("rope_scaling", R"({"type": "linear", "factor": 0})")).code ==
        Code::kCorruptFile);
  CHECK(load(with("rope_scaling", R"({"type": "linear", "factor": 2, "extra": 1})")).what ==
        "tiny/config.json: unknown field rope_scaling.extra = 1");
  CHECK(load(with("rope_scaling", R"({"type": "linear"})")).code == Code::kNotFound);
  CHECK(load(with("rope_scaling", R"({"type": "linear", "factor": 2.0})")).ok());
  CHECK(load(with("rope_scaling", "null")).ok());
  CHECK(load(with("rope_theta", "0")).code == Code::kCorruptFile);
}

TEST_CASE("loading: a config that is broken is refused, not computed with") {
  CHECK(load("").code == Code::kCorruptFile);
  CHECK(load("[1]").code == Code::kCorruptFile);
  CHECK(load("{}").code == Code::kNotFound);
  CHECK(load(replaced("\"hidden_size\": 12", "\"hidden_size\": \"12\"")).what ==
        "tiny/config.json: hidden_size is \"12\", expected an integer");
  CHECK(load(replaced("\"hidden_size\": 12", "\"hidden_size\": -12")).what ==
        "tiny/config.json: hidden_size is -12, expected 1 to 16777216");
  CHECK(load(replaced("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 99999999")).code ==
        Code::kCorruptFile);
  CHECK(load(replaced("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2")).what ==
        "tiny/config.json: 3 query heads are no multiple of 2 key/value heads");
  CHECK(load(replaced("\"num_attention_heads\": 3", "\"num_attention_heads\": 5")).code ==
        Code::kCorruptFile);
  CHECK(load(replaced("\"num_attention_heads\": 3", "\"num_attention_heads\": 4")).what ==
        "tiny/config.json: rotary positions with heads of odd width 3");
  const Status family = load(replaced("\"model_type\": \"llama\"", "\"model_type\": \"mamba\""));
  CHECK(family.what == "tiny: model_type \"mamba\"");
  CHECK(family.hint == "known: llama, gpt2");
  CHECK(load(kTinyLlama, tiny_llama_weights(), at::kHalf).code == Code::kUnsupported);
}

TEST_CASE("loading: every tensor is checked before any is loaded") {
  auto missing = tiny_llama_weights();
  missing->erase("model.layers.1.mlp.up_proj.weight");
  const Status status = load(kTinyLlama, missing);
  CHECK(status.code == Code::kNotFound);
  CHECK(status.what == "tiny has no tensor model.layers.1.mlp.up_proj.weight");
  auto extra = tiny_llama_weights();
  extra->set("model.layers.0.self_attn.q_norm.weight", {4});
  CHECK(load(kTinyLlama, extra).what ==
        "tiny: unknown tensor model.layers.0.self_attn.q_norm.weight");
  auto ignorable = tiny_llama_weights();
  ignorable->set("model.layers.0.self_attn.rotary_emb.inv_freq", {2});
  ignorable->set("lm_head.weight", {17, 12});
  CHECK(load(kTinyLlama, ignorable).ok());
  auto wrong = tiny_llama_weights();
  wrong->set("model.norm.weight", {13});
  CHECK(load(kTinyLlama, wrong).what == "tiny: model.norm.weight is [13], its config says [12]");
  CHECK(load(kTinyLlama, wrong).code == Code::kShapeMismatch);
  // Untied: the head is needed.
  CHECK(load(replaced("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false")).what ==
        "tiny has no tensor lm_head.weight");
  // Sizes that no file matches are refused by the shapes, not allocated.
  CHECK(load(replaced("\"vocab_size\": 17", "\"vocab_size\": 16000000")).code ==
        Code::kShapeMismatch);
}
