"""The indirect-object task that several examples share: eight prompts, each with its corrupted twin.

"When John and Mary went to the shops, John gave the bag to" -> " Mary". The corrupted twin exchanges the
two names in the second clause. The prompts are those of TransformerLens's Activation Patching demo.
"""

import pellucid as pl
import torch

TEMPLATES = [
    ("When John and Mary went to the shops,{} gave the bag to", " Mary", " John"),
    ("When Tom and James went to the park,{} gave the ball to", " Tom", " James"),
    ("When Dan and Sid went to the shops,{} gave an apple to", " Dan", " Sid"),
    ("After Martin and Amy went to the park,{} gave a drink to", " Martin", " Amy"),
]


class Task:
    """Prompts and the metric. `clean[i]` and `corrupt[i]` have 14 tokens each."""

    def __init__(self, lm: pl.LM):
        pairs = [pair for _, a, b in TEMPLATES for pair in ((a, b), (b, a))]
        self.answers, self.others = [a for a, _ in pairs], [b for _, b in pairs]
        self.clean = [TEMPLATES[i // 2][0].format(b) for i, (_, b) in enumerate(pairs)]
        self.corrupt = [self.clean[i ^ 1] for i in range(8)]
        self.lm = lm
        self.answer_ids, self.other_ids = lm.id(self.answers), lm.id(self.others)

    def differences(self) -> torch.Tensor:
        """Logit of the right name minus the other one's, at the end of each prompt: [8]."""
        logits = self.lm.logits[:, -1]
        right = logits.gather(1, self.answer_ids[:, None])
        return (right - logits.gather(1, self.other_ids[:, None]))[:, 0]

    def difference(self) -> torch.Tensor:
        """The mean over the prompts."""
        return self.differences().mean()

    def baselines(self) -> tuple[float, float]:
        """The metric of the clean and of the corrupted prompts."""
        with self.lm.trace() as t:
            with t.prompt(self.clean):
                clean = t.save(self.difference())
            with t.prompt(self.corrupt):
                corrupt = t.save(self.difference())
        return clean.item(), corrupt.item()
