"""E7, in memory. Which layer knows whether a sentence is about France? Residuals of the last position are
cached for all prompts and all layers, and a direction between the class means is fitted on half of them.
"""

import pellucid as pl
import torch

FRANCE = ["Paris", "Lyon", "Marseille", "Nice", "Bordeaux", "Toulouse", "Lille", "Strasbourg"]
ITALY = ["Rome", "Milan", "Naples", "Turin", "Venice", "Florence", "Bologna", "Genoa"]


def main(lm: pl.LM) -> list[float]:
    """Returns the accuracy on the held-out half, by layer."""
    prompts = [f"I took the train to {city}" for city in FRANCE + ITALY]
    labels = torch.tensor([1] * len(FRANCE) + [0] * len(ITALY)).bool()
    cache = lm.cache(prompts, "blocks.*.resid_post", at=-1)
    train = torch.arange(len(prompts)) % 2 == 0
    accuracies = []
    for block in range(len(lm.blocks)):
        x = cache[f"blocks.{block}.resid_post"]  # [16, d_model]
        a, b = x[train & labels].mean(0), x[train & ~labels].mean(0)
        guess = (x - (a + b) / 2) @ (a - b) > 0
        accuracies.append((guess == labels)[~train].float().mean().item())
    return accuracies


if __name__ == "__main__":
    for layer, accuracy in enumerate(main(pl.load("smollm2"))):
        print(f"layer {layer:2d}  {accuracy:.2f}")
