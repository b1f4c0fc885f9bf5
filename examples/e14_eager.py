"""E14, eager. Values are real as the pass reaches them: print, branch, break, debug; edit in place."""

import pellucid as pl


def main(lm: pl.LM, prompt="The capital of France is", limit=600.0) -> list[float]:
    """Returns the norms of the residual stream, layer by layer, up to the first above `limit`."""
    norms = []
    with lm.trace(prompt, eager=True):
        for block in lm.blocks:
            norms.append(block.resid_post[:, -1].norm().item())
            if norms[-1] > limit:
                break
    return norms


if __name__ == "__main__":
    for layer, norm in enumerate(main(pl.load("smollm2"))):
        print(f"after block {layer:2d}: {norm:8.3f}")
