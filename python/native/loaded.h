#pragma once
// What Python objects hold of a loaded model.
#include <memory>
#include <string>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace pellucid::python {

struct TokenizerHandle {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::string chat_template;
};

struct ModelHandle {
  engine::LoadedModel loaded;

  const hook::Catalog& catalog() const { return loaded.model->catalog(); }
};

}  // namespace pellucid::python
