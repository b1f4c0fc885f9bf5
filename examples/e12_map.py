"""E12. Many prompts of different lengths at once: each alone in its row, no padding, results in order."""

import pellucid as pl


@pl.program
def confidence(lm, t):
    """The probability of the most likely next token."""
    return lm.logits[:, -1].softmax(-1).max(-1).values


def main(lm: pl.LM, prompts=("short", "a rather longer prompt", "The capital of France is")):
    """Returns one tensor [1] a prompt."""
    return lm.map(confidence, list(prompts), batch_tokens=8192)


if __name__ == "__main__":
    print(main(pl.load("smollm2")))
