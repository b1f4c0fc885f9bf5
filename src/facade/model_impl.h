#pragma once
// What a facade Model holds, and how options become a group of a program.
#include "engine/engine.h"
#include "pellucid/model.h"

namespace pellucid {

struct Model::Impl {
  engine::LoadedModel loaded;
};

namespace facade {

/// `base` with sampling, stop strings and the number of new tokens; without prompts.
wire::Group group_of(const GenerateOptions& options);
Generation generation_of(engine::RowResult row);

}  // namespace facade
}  // namespace pellucid
