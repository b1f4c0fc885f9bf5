"""E4. Steering: a direction from two sets of prompts, added to the residual stream while generating."""

import pellucid as pl

HAPPY = [
    "I am so happy today!",
    "What a wonderful, joyful day",
    "This is the best news ever, I love it",
]
SAD = [
    "I am so sad today...",
    "What a horrible, gloomy day",
    "This is the worst news ever, I hate it",
]


def main(lm: pl.LM, prompt="Today I feel", scale=6.0, layer=14, new_tokens=24) -> dict[str, str]:
    """Returns the continuation without and with the direction."""
    site = f"blocks.{layer}.resid_post"
    v = lm.cache(HAPPY, site, at=-1).mean(0) - lm.cache(SAD, site, at=-1).mean(0)
    v = v / v.norm() * lm.cache(HAPPY, site, at=-1).norm(dim=-1).mean() / 8
    with lm.trace(prompt, max_new_tokens=new_tokens) as plain:
        pass
    with lm.trace(prompt, max_new_tokens=new_tokens) as steered:
        lm.blocks[layer].resid_post += scale * v
        with steered.steps[1:]:
            lm.blocks[layer].resid_post += scale * v
    return {"plain": plain.text, "steered": steered.text}


if __name__ == "__main__":
    for name, text in main(pl.load("smollm2")).items():
        print(f"--- {name}\n{text}")
