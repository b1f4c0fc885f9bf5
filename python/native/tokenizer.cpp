// The tokenizer and the chat template of a loaded model.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "loaded.h"
#include "text/chat_template.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace pellucid::python {
namespace {

using Span = std::pair<size_t, size_t>;

std::pair<std::vector<int64_t>, std::vector<Span>> encode(const TokenizerHandle& self,
                                                          const std::string& text,
                                                          std::optional<bool> bos,
                                                          bool parse_special) {
  const text::Encoding encoding =
      require(self.tokenizer->encode(text, {.bos = bos, .parse_special = parse_special}));
  std::vector<Span> spans;
  for (const text::ByteRange& range : encoding.ranges) spans.emplace_back(range.begin, range.end);
  return {encoding.ids, spans};
}

std::string special_text(const text::Tokenizer& tokenizer, std::optional<int64_t> id) {
  return id ? std::string(require(tokenizer.token_bytes(*id))) : std::string();
}

std::string render(const TokenizerHandle& self,
                   const std::vector<std::pair<std::string, std::string>>& messages,
                   bool add_generation_prompt) {
  if (self.chat_template.empty()) {
    throw StatusError{error(Code::kUnsupported, "give the prompt as text",
                            "this model's files have no chat template")};
  }
  std::vector<text::Message> list;
  for (const auto& [role, content] : messages) list.push_back({role, content});
  const text::Tokenizer& tokenizer = *self.tokenizer;
  return require(text::render_chat(self.chat_template, list,
                                   {.add_generation_prompt = add_generation_prompt,
                                    .bos_token = special_text(tokenizer, tokenizer.bos()),
                                    .eos_token = special_text(tokenizer, tokenizer.eos()),
                                    .unk_token = special_text(tokenizer, tokenizer.unk()),
                                    .pad_token = special_text(tokenizer, tokenizer.pad())}))
      .text;
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<TokenizerHandle>(module, "Tokenizer")
      .def("encode", &encode, "text"_a, "bos"_a.none(), "parse_special"_a)
      .def(
          "decode",
          [](const TokenizerHandle& self, const std::vector<int64_t>& ids, bool skip_special) {
            return require(self.tokenizer->decode(ids, {.skip_special = skip_special}));
          },
          "ids"_a, "skip_special"_a)
      .def("token_bytes",
           [](const TokenizerHandle& self, int64_t id) {
             const std::string_view bytes = require(self.tokenizer->token_bytes(id));
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("id_of", [](const TokenizerHandle& self,
                       const std::string& text) { return require(self.tokenizer->id_of(text)); })
      .def("render_chat", &render, "messages"_a, "add_generation_prompt"_a)
      .def_prop_ro("vocab_size",
                   [](const TokenizerHandle& self) { return self.tokenizer->vocab_size(); })
      .def_prop_ro("bos", [](const TokenizerHandle& self) { return self.tokenizer->bos(); })
      .def_prop_ro("eos", [](const TokenizerHandle& self) { return self.tokenizer->eos(); });
}

}  // namespace pellucid::python
