"""E4. Steering: the direction from sad to happy prompts, added to the residual stream of every token.

The same prompt goes on gloomily with the direction subtracted and cheerfully with it added. At twice the scale the
text keeps its mood and loses its sense.
"""

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


def main(
    lm: pl.LM, prompt="Today I feel", scales=(-1.0, 0.0, 1.0), layer=10, new_tokens=24
) -> dict[float, str]:
    """Returns the continuation by scale."""
    site = f"blocks.{layer}.resid_post"
    v = lm.cache(HAPPY, site, at=-1).mean(0) - lm.cache(SAD, site, at=-1).mean(0)
    groups = {}
    with lm.trace() as t:
        for scale in scales:
            with t.prompt(prompt, max_new_tokens=new_tokens) as groups[scale]:
                with groups[scale].steps[:]:  # the prompt's pass and every later one
                    lm.blocks[layer].resid_post += scale * v
    return {scale: group.text for scale, group in groups.items()}


if __name__ == "__main__":
    for scale, text in main(pl.load("smollm2")).items():
        print(f"{scale:+.0f}  Today I feel{text}")
