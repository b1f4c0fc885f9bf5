"""E11. Edits while generating: the prompt's pass, every generated token, and a plain loop over steps."""

import pellucid as pl
import torch


def main(lm: pl.LM, prompt="Tell me about Paris.", new_tokens=12, scale=2.0):
    """Returns the finished trace, the probability of each token and three norms."""
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(lm.info["d_model"], generator=generator)
    norms = []
    with lm.trace(prompt, max_new_tokens=new_tokens, seed=0) as t:
        lm.blocks[10].resid_post[:, -1] += v  # step 0: the prompt's pass only
        with t.steps[1:] as s:  # every generated token, body recorded once
            lm.blocks[14].resid_post += scale * v
            p = s.save(lm.logits.softmax(-1).max(-1).values)
        for _ in t.steps[:3]:  # a Python loop, three times
            norms.append(lm.blocks[20].resid_post.norm().save())
    return t, p, norms


if __name__ == "__main__":
    t, p, norms = main(pl.load("smollm2"))
    print(t.text, t.tokens, t.steps_run, p.shape, norms, sep="\n")
