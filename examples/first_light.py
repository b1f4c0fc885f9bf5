"""An edit that changes an answer: "France" becomes "Italy" in the middle of the model, and Paris becomes Rome."""

import pellucid as pl

PROMPT, DONOR, POSITION = "The capital of France is", "The capital of Italy is", 3


def main(lm: pl.LM, layer: int = 15) -> dict[str, list[tuple[str, float]]]:
    """Returns the three best next tokens with their logits, before and after."""
    with lm.trace() as t:
        with t.prompt(DONOR):
            italy = lm.blocks[layer].resid_pre[:, POSITION]
        with t.prompt(PROMPT):
            before = t.save(lm.logits[:, -1].topk(3))
        with t.prompt(PROMPT):
            lm.blocks[layer].resid_pre[:, POSITION] = italy
            after = t.save(lm.logits[:, -1].topk(3))

    def named(top):
        return [
            (lm.tokenizer.decode([i]), v)
            for i, v in zip(top.indices[0].tolist(), top.values[0].tolist())
        ]

    return {"before": named(before), "after": named(after)}


if __name__ == "__main__":
    print(f"{PROMPT!r}, with what block 15 sees at ' France' taken from {DONOR!r}:")
    for when, top in main(pl.load("smollm2")).items():
        print(f"  {when:6s} " + "   ".join(f"{token!r} {logit:.3f}" for token, logit in top))
