"""E8. The logit lens: what each layer would answer if the model stopped there."""

import pellucid as pl
import torch


def main(lm: pl.LM, prompt="The capital of France is") -> torch.Tensor:
    """Returns the logits at the last position after each block, [layers, vocab]."""
    with lm.trace(prompt) as t:
        lens = torch.stack([lm.unembed(lm.ln_final(b.resid_post))[:, -1] for b in lm.blocks])
        t.save(lens)
    return lens[:, 0]


if __name__ == "__main__":
    lm = pl.load("smollm2")
    for layer, row in enumerate(main(lm)):
        best = row.softmax(-1).topk(3)
        print(
            f"layer {layer:2d} ",
            [
                (lm.tokenizer.decode([i]), round(p, 3))
                for p, i in zip(best.values.tolist(), best.indices.tolist())
            ],
        )
