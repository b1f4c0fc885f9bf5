#include "tensor/model_folder.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>

#include "files/tests/gguf_builder.h"
#include "files/tests/temporary_folder.h"
#include "tensor/weight_source.h"

namespace pellucid::tensor {
namespace {

namespace fs = std::filesystem;
using files::TemporaryFolder;

/// Sets a variable of the environment for one test.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

struct Places {
  TemporaryFolder root;
  ModelPlaces places{root.path() / "models", root.path() / "hub"};

  void hugging_face(const std::string& folder) const {
    root.write(folder + "/config.json", "{}");
    root.write(folder + "/model.safetensors", "x");
  }
  Result<FoundModel> resolve(const std::string& name) const { return resolve_model(name, places); }
};

bool contains(const std::string& text, std::string_view part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("models: a .gguf file and a Hugging Face folder are found by their path") {
  const Places at;
  const fs::path gguf = at.root.write("elsewhere/m.gguf", "x");
  CHECK(at.resolve(gguf.string())->is_gguf);
  CHECK(at.resolve(gguf.string())->path == gguf);
  at.hugging_face("elsewhere/hf");
  const auto folder = at.resolve((at.root.path() / "elsewhere/hf").string());
  REQUIRE(folder.ok());
  CHECK_FALSE(folder->is_gguf);
  CHECK(folder->weights.filename() == "model.safetensors");
  at.root.write("sharded/config.json", "{}");
  at.root.write("sharded/model.safetensors.index.json", "{}");
  CHECK(at.resolve((at.root.path() / "sharded").string())->weights.filename() ==
        "model.safetensors.index.json");
}

TEST_CASE("models: short names, files and folders of the models folder are found by name") {
  const Places at;
  CHECK(at.resolve("smollm2").status().code == Code::kNotFound);
  CHECK(contains(at.resolve("smollm2").status().hint, "./dev demo"));
  at.root.write("models/smollm2-135m-q4_1.gguf", "x");
  at.hugging_face("models/tiny");
  CHECK(at.resolve("smollm2")->path.filename() == "smollm2-135m-q4_1.gguf");
  CHECK(at.resolve("smollm2-135m-q4_1")->is_gguf);
  CHECK(at.resolve("smollm2-135m-q4_1.gguf")->is_gguf);
  CHECK(at.resolve("tiny")->path == at.places.models / "tiny");
}

TEST_CASE("models: org/name is the snapshot that refs/main names, or the only one") {
  const Places at;
  at.hugging_face("hub/models--org--name/snapshots/aaa");
  CHECK(at.resolve("org/name")->path.filename() == "aaa");
  at.hugging_face("hub/models--org--name/snapshots/bbb");
  CHECK(contains(at.resolve("org/name").status().what, "2 snapshots and refs/main names none"));
  at.root.write("hub/models--org--name/refs/main", "bbb\n");
  CHECK(at.resolve("org/name")->path.filename() == "bbb");
  at.root.write("hub/models--org--name/refs/main", "../../../../etc");
  CHECK_FALSE(at.resolve("org/name").ok());
  at.hugging_face("hub/models--gpt2/snapshots/c");
  CHECK(at.resolve("gpt2")->path.filename() == "c");
}

TEST_CASE("models: pickled weights are refused with the reason and the way out") {
  const Places at;
  at.root.write("pickled/config.json", "{}");
  const fs::path bin = at.root.write("pickled/pytorch_model.bin", "x");
  for (const fs::path& path : {bin, bin.parent_path()}) {
    const auto found = at.resolve(path.string());
    CHECK(found.status().code == Code::kUnsupported);
    CHECK(contains(found.status().what, "it is code (pickle)"));
    CHECK(contains(found.status().hint, "safe_serialization=True"));
  }
}

TEST_CASE("models: what is no model says what is missing") {
  const Places at;
  at.root.write("bare/model.safetensors", "x");
  const auto at_path = [&](const char* name) {
    return at.resolve((at.root.path() / name).string());
  };
  CHECK(contains(at_path("bare").status().what, "no config.json"));
  CHECK(contains(at_path("bare/model.safetensors").status().hint, "give the folder"));
  at.root.write("two/a.gguf", "x");
  CHECK(at_path("two")->is_gguf);
  at.root.write("two/b.gguf", "x");
  CHECK(contains(at_path("two").status().what, "2 .gguf files"));
  at.root.write("other/readme.txt", "x");
  CHECK(contains(at_path("other").status().what, "holds no model"));
  CHECK(contains(at_path("other/readme.txt").status().what, "is no model file"));
  CHECK(at.resolve("").status().code == Code::kInvalidArgument);
}

TEST_CASE("models: an unknown name says where it looked and offers the nearest") {
  const Places at;
  at.hugging_face("models/tiny-llama");
  const auto found = at.resolve("tiny-lama");
  CHECK(found.status().code == Code::kNotFound);
  CHECK(contains(found.status().what, at.places.models.string()));
  CHECK(contains(found.status().what, at.places.hub.string()));
  CHECK(contains(found.status().hint, "tiny-llama"));
  for (const char* name : {"../tiny-llama", "a/b/c", "/no/such.gguf", "x/", "..", "a/.."}) {
    CHECK(at.resolve(name).status().code == Code::kNotFound);
  }
}

TEST_CASE("models: the list holds everything by name, and what is wrong with it") {
  const Places at;
  at.root.write("models/smollm2-135m-q4_1.gguf", "12345");
  at.hugging_face("hub/models--org--name/snapshots/aaa");
  at.root.write("hub/models--org--old/snapshots/a/pytorch_model.bin", "x");
  at.root.write("hub/datasets--org--set/snapshots/a/x", "x");
  const auto listed = list_models(at.places);
  REQUIRE(listed.size() == 4);
  CHECK(listed[0].name == "org/name");
  CHECK(listed[0].format == "safetensors");
  CHECK(listed[0].bytes == 1);
  CHECK(listed[1].name == "org/old");
  CHECK(contains(listed[1].problem, "pickle"));
  CHECK(listed[2].name == "smollm2");
  CHECK(listed[2].bytes == 5);
  CHECK(listed[3].name == "smollm2-135m-q4_1");
  CHECK(list_models({"/no/such/folder", "/none"}).empty());
}

TEST_CASE("models: the places come from the environment") {
  const Setting home("HOME", "/h"), models("PELLUCID_MODELS", ""), cache("XDG_CACHE_HOME", "");
  const Setting hub("HF_HUB_CACHE", ""), hf_home("HF_HOME", "");
  CHECK(model_places_from_environment().models == "/h/.cache/pellucid/models");
  CHECK(model_places_from_environment().hub == "/h/.cache/huggingface/hub");
  {
    const Setting xdg("XDG_CACHE_HOME", "/x");
    CHECK(model_places_from_environment().models == "/x/pellucid/models");
    CHECK(model_places_from_environment().hub == "/x/huggingface/hub");
  }
  const Setting own("PELLUCID_MODELS", "/m"), face("HF_HOME", "/f");
  CHECK(model_places_from_environment().models == "/m");
  CHECK(model_places_from_environment().hub == "/f/hub");
  const Setting direct("HF_HUB_CACHE", "/d");
  CHECK(model_places_from_environment().hub == "/d");
}

TEST_CASE("open_model: the id follows the content, not the place") {
  const TemporaryFolder folder;
  files::GgufBuilder file;
  std::string data(8192, 'x');
  file.tensor("t", {2048}, 0, data);
  const std::string bytes = file.build();
  const auto a = open_model(folder.write("a.gguf", bytes).string());
  const auto b = open_model(folder.write("b/b.gguf", bytes).string());
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a->is_gguf);
  CHECK(a->gguf != nullptr);
  CHECK(a->config_json.empty());
  CHECK(a->hash.size() == 64);
  CHECK(a->hash == b->hash);
  std::string changed = bytes;
  changed.back() = 'y';
  CHECK(open_model(folder.write("c.gguf", changed).string())->hash != a->hash);
}

TEST_CASE("open_model: one part of a split model is refused") {
  const TemporaryFolder folder;
  files::GgufBuilder file;
  file.pair("split.count", files::GgufType::kU16, files::GgufBuilder::raw<uint16_t>(3));
  file.pair("split.no", files::GgufType::kU16, files::GgufBuilder::raw<uint16_t>(1));
  const auto opened = open_model(folder.write("m.gguf", file.build()).string());
  CHECK(opened.status().code == Code::kUnsupported);
  CHECK(contains(opened.status().what, "part 2 of 3"));
}

TEST_CASE("open_model: a folder brings its config and its tensors") {
  const TemporaryFolder folder;
  const std::string numbers(8, '\0');
  const files::TensorToWrite tensors[] = {
      {"w", files::SafeDtype::kF32, {2}, files::as_bytes(numbers)}};
  folder.write("m/config.json", R"({"model_type":"llama"})");
  REQUIRE(files::write_safetensors(folder.path() / "m/model.safetensors", tensors).ok());
  const auto opened = open_model((folder.path() / "m").string());
  REQUIRE(opened.ok());
  CHECK_FALSE(opened->is_gguf);
  CHECK(opened->gguf == nullptr);
  CHECK(opened->config_json == R"({"model_type":"llama"})");
  CHECK(opened->weights->load("w", at::kFloat)->numel() == 2);
}

}  // namespace pellucid::tensor
