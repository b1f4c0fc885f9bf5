#pragma once
// Eager traces: the forward pass runs on the engine's thread and waits at each site that the
// caller's thread asks for.
#include <memory>

#include "engine/engine.h"
#include "engine/states.h"
#include "engine/worker.h"

namespace pellucid::engine {

/// Queues the trace on `worker` and returns at once; the first `read` waits for its turn. The trace
/// keeps `engine`, which owns context and worker, alive.
Result<std::unique_ptr<EagerTrace>> open_eager(std::shared_ptr<Engine> engine,
                                               const Context& context, Worker& worker, Job hooks);

/// "unembed" or "ln_final" of any [..., d_model], on the calling thread: only while the engine's
/// own thread is idle, waiting or the caller.
Result<at::Tensor> apply_part(const model::Model& model, const std::string& name,
                              const at::Tensor& x);

}  // namespace pellucid::engine
