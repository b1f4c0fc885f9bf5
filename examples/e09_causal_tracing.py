"""E9. Causal tracing [ROME §2]: the subject's embeddings are drowned in noise, and the MLP outputs of a
window of layers at one position are put back. Where does the fact come back?
"""

import pellucid as pl
import torch


def window(layer: int, width: int, num_layers: int) -> range:
    return range(max(0, layer - width // 2), min(num_layers, layer + (width + 1) // 2))


def main(
    lm: pl.LM,
    prompt="The Space Needle is in downtown",
    subject="Space Needle",
    answer=" Seattle",
    layers=None,
    samples=10,
) -> dict:
    """Returns the probability of the answer: clean, noisy, and restored at (layer, position)."""
    d_model = lm.info["d_model"]
    sigma = lm.weight("embed").std()
    noise = 3 * sigma * torch.randn(samples, 1, d_model, generator=torch.Generator().manual_seed(0))
    answer_id, num_layers = lm.id(answer), len(lm.blocks)
    layers = range(num_layers) if layers is None else layers

    def probability():
        return lm.logits[:, -1].softmax(-1)[:, answer_id].mean()

    restored = {}
    with lm.trace() as t:
        with t.prompt(prompt) as c:
            clean, good = [b.mlp.out for b in lm.blocks], t.save(probability())
            span = c.span(subject)
        with t.prompt([prompt] * samples):
            lm.embed[:, span] += noise
            noisy = t.save(probability())
        for layer in layers:
            for position in range(len(c.tokens)):
                with t.prompt([prompt] * samples):
                    lm.embed[:, span] += noise
                    for j in window(layer, 5, num_layers):
                        lm.blocks[j].mlp.out[:, position] = clean[j][:, position]
                    restored[layer, position] = t.save(probability())
    return {
        "clean": good.item(),
        "noisy": noisy.item(),
        "restored": {key: value.item() for key, value in restored.items()},
    }


if __name__ == "__main__":
    print(main(pl.load("smollm2"), layers=range(0, 30, 5)))
