"""E1. Which position holds the answer in which layer? The residual stream of the corrupted prompts is put
into the clean ones, one layer and position at a time: 30 layers x 14 positions = 420 runs in one trace.

Prints how much of the answer each patch moves: 0 nothing, 1 all of it. The answer lives at the second
name (position 9) up to layer 20 and at the end (position 13) from layer 24 on.
"""

import pellucid as pl
import torch
from ioi import Task


def main(lm: pl.LM, layers=None) -> torch.Tensor:
    """Returns the normalised effect, [layers, 14]."""
    task = Task(lm)
    clean, corrupt = task.baselines()
    layers = range(len(lm.blocks)) if layers is None else layers
    cell = {}
    with lm.trace() as t:
        with t.prompt(task.corrupt):
            source = {layer: lm.blocks[layer].resid_pre for layer in layers}
        for layer in layers:
            for position in range(14):
                with t.prompt(task.clean):
                    lm.blocks[layer].resid_pre[:, position] = source[layer][:, position]
                    cell[layer, position] = t.save(task.difference())
    grid = torch.tensor([[cell[layer, p] for p in range(14)] for layer in layers])
    return (grid - clean) / (corrupt - clean)


if __name__ == "__main__":
    lm = pl.load("smollm2")
    for layer, row in enumerate(main(lm)):
        print(f"layer {layer:2d} " + " ".join(f"{x:6.3f}" for x in row.tolist()))
