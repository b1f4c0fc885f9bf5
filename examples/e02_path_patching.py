"""E2. How much does head 20.0 tell the queries of head 23.3, the strongest name mover, directly?

Path patching: a clean run in which every attention head and MLP is held at its clean value, except that
head 20.0 gives its corrupted output. What head 23.3 then reads as its query's residual is put, alone, into
another clean run. Of all paths into these queries from layers 14 to 22 this one moves the answer most, by
0.083; most paths move nothing, as 7.3 to 9.6 shows.
"""

import pellucid as pl
from ioi import Task


def main(lm: pl.LM, sender=(20, 0), receiver=(23, 3)) -> dict[str, float]:
    """Returns the clean metric and the one with the path from sender to receiver patched."""
    task = Task(lm)
    (layer_s, head_s), (layer_r, head_r) = sender, receiver
    with lm.trace() as t:
        with t.prompt(task.corrupt):
            dirty = lm.blocks[layer_s].attn.z[:, :, head_s]
        with t.prompt(task.clean):
            z, m = [b.attn.z for b in lm.blocks], [b.mlp.out for b in lm.blocks]
            clean = t.save(task.difference())
        with t.prompt(task.clean):  # only the direct path moves
            for block, zb, mb in zip(lm.blocks, z, m, strict=True):
                block.attn.z, block.mlp.out = zb, mb
            lm.blocks[layer_s].attn.z[:, :, head_s] = dirty
            query = lm.blocks[layer_r].attn.q_resid[:, :, head_r]
        with t.prompt(task.clean):
            lm.blocks[layer_r].attn.q_resid[:, :, head_r] = query
            patched = t.save(task.difference())
    return {"clean": clean.item(), "patched": patched.item()}


if __name__ == "__main__":
    lm = pl.load("smollm2")
    print("20.0 to 23.3", main(lm))
    print("7.3 to 9.6  ", main(lm, sender=(7, 3), receiver=(9, 6)))
