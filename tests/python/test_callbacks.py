"""Local functions in a recorded trace get copies: what they do to them stays with them."""

import pytest
import torch

IDS = [3, 1, 4, 1, 5]


def wipe(x):
    x.zero_()
    return torch.zeros(1, dtype=x.dtype)


@pytest.mark.parametrize("what", ["weight", "constant", "site"])
def test_a_function_that_wipes_what_it_gets_changes_nothing(tiny, what):
    lm = tiny.lm
    with lm.trace(IDS):
        before = lm.logits.save()
    constant = torch.ones(3)
    with lm.trace(IDS) as t:
        value = {
            "weight": lambda: lm.weight("blocks.0.ln1"),
            "constant": lambda: constant,
            "site": lambda: lm.blocks[1].resid_post,
        }[what]()
        like = torch.zeros(1, dtype=torch.float32 if what == "constant" else torch.float64)
        t.call(wipe, value, like=like)
        same_run = lm.logits.save()
    with lm.trace(IDS):
        after = lm.logits.save()
    assert torch.equal(same_run, before)
    assert torch.equal(after, before)
    assert torch.equal(constant, torch.ones(3))
