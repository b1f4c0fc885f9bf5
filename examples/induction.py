"""Induction heads: which heads continue a pattern that the model has seen once, and what happens without them?

Four rows of fifty random tokens, each followed by itself. In the second half the model knows what comes: the
heads that look at the token after the last occurrence (the diagonal at offset -49 of their pattern) find it. Without
the five strongest the knowledge is gone, and also without one head two layers earlier, which only looks at the
previous token: the others compose with it. Heads of no such kind change nothing.
"""

import pellucid as pl
import torch

ABLATIONS = {
    "L18H6, the strongest induction head": [(18, 6)],
    "the five strongest induction heads": [(18, 6), (17, 3), (17, 4), (17, 5), (18, 7)],
    "L16H0, which looks at the previous token": [(16, 0)],
    "control: L0H0": [(0, 0)],
    "control: L5H5": [(5, 5)],
}


def repeated_ids(rows: int = 4, length: int = 50) -> torch.Tensor:
    """[rows, 2 * length]: random ids between 1000 and 9999, each row's first half repeated."""
    x, ids = 12345, []
    for _ in range(rows * length):
        x = (1103515245 * x + 12345) % 2**31
        ids.append(1000 + (x >> 8) % 9000)
    return torch.tensor(ids).view(rows, length).repeat(1, 2)


def main(lm: pl.LM, ablations=ABLATIONS) -> dict:
    """Returns the losses of both halves, each head's scores [layers, heads] and the ablated second-half losses."""
    ids = repeated_ids()
    half = ids.shape[1] // 2
    ablated = {}
    with lm.trace() as t:
        with t.prompt(ids):
            patterns = [block.attn.pattern for block in lm.blocks]  # each [4, heads, 100, 100]
            induction = torch.stack([p.diagonal(1 - half, 2, 3).mean((0, 2)) for p in patterns])
            previous = torch.stack([p.diagonal(-1, 2, 3).mean((0, 2)) for p in patterns])
            loss = t.nll()  # [4, 99]: of each token but the first
            t.save([induction, previous, loss])
        for name, heads in ablations.items():
            with t.prompt(ids):
                for layer, head in sorted(heads):  # in the order of the forward pass
                    lm.blocks[layer].attn.z[:, :, head] = 0
                ablated[name] = t.save(t.nll()[:, half:].mean())
    return {
        "first half": loss[:, : half - 1].mean().item(),
        "second half": loss[:, half:].mean().item(),
        "induction": induction,
        "previous": previous,
        "ablated": {name: value.item() for name, value in ablated.items()},
    }


def strongest(scores: torch.Tensor, count: int) -> dict[str, float]:
    """The best heads of scores [layers, heads]."""
    best = scores.flatten().topk(count)
    names = [f"L{i // scores.shape[1]}H{i % scores.shape[1]}" for i in best.indices.tolist()]
    return dict(zip(names, best.values.tolist(), strict=True))


if __name__ == "__main__":
    result = main(pl.load("smollm2"))
    print(
        f"loss per token: {result['first half']:.4f} at first sight, {result['second half']:.4f} when repeated"
    )
    for kind in ("induction", "previous"):
        found = strongest(result[kind], 6).items()
        print(f"{kind:10s}" + "  ".join(f"{name} {score:.4f}" for name, score in found))
    for name, loss in result["ablated"].items():
        print(f"repeated, without {name}: {loss:.4f}")
