"""Eager traces: real values, the same sites, checks and errors."""

import pellucid
import pytest
import torch

IDS = [[5, 17, 33, 2, 90], [7, 7, 250, 31, 4]]


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_values_are_real_as_the_pass_reaches_them(tiny):
    lm = tiny.lm
    expected = tiny.sites(IDS)
    norms = []
    with lm.trace(IDS, eager=True) as t:
        for block in lm.blocks:
            h = block.resid_post
            assert type(h) is torch.Tensor
            norms.append(h.norm().item())
        logits = t.save(lm.logits)
    assert norms == pytest.approx(
        [float(expected[f"blocks.{i}.resid_post"].norm()) for i in range(3)]
    )
    close(logits, expected["logits"])


def test_any_python_may_decide(tiny):
    lm = tiny.lm
    with lm.trace(IDS, eager=True):
        for i, block in enumerate(lm.blocks):  # noqa: B007
            if block.resid_post.norm().item() > 0:
                break
    assert i == 0


def test_edits_go_on_through_the_model(tiny):
    lm = tiny.lm

    def edit(h):
        h = h.clone()
        h[:, -1] *= 2
        return h + 1

    expected = tiny.sites(IDS, {"blocks.1.resid_post": edit})["logits"]
    with lm.trace(IDS, eager=True) as t:
        h = lm.blocks[1].resid_post
        h[:, -1] *= 2
        lm.blocks[1].resid_post += 1
        logits = t.save(lm.logits)
    close(logits, expected)
    with lm.trace(IDS, eager=True) as t:
        lm.blocks[1].resid_post = edit(lm.blocks[1].resid_post)
        logits = t.save(lm.logits)
    close(logits, expected)


def test_an_earlier_site_than_where_the_pass_stands_is_refused(tiny):
    lm = tiny.lm
    with lm.trace(IDS, eager=True):
        lm.blocks[2].resid_post.norm()
        with pytest.raises(pellucid.OutOfOrder) as caught:
            lm.blocks[0].resid_post  # noqa: B018
    assert "blocks.0.resid_post" in str(caught.value)
    assert "blocks.2.resid_post" in str(caught.value)
    assert caught.value.where.startswith("test_eager.py:")


def test_unknown_names_and_wrong_shapes_are_refused(tiny):
    lm = tiny.lm
    with lm.trace(IDS, eager=True):
        with pytest.raises(pellucid.NotFound, match="resid_post"):
            lm.blocks[0].resid_pots  # noqa: B018
        with pytest.raises(pellucid.ShapeMismatch, match="cannot take"):
            lm.blocks[0].resid_post = torch.zeros(3)


def test_parts_and_steps(tiny):
    lm = tiny.lm
    with lm.trace(IDS[0], max_new_tokens=3, stop_at_eos=False) as t:
        pass
    plain = t.tokens
    with lm.trace(IDS[0], max_new_tokens=3, stop_at_eos=False, eager=True) as t:
        for step in t.steps[:]:
            last = lm.blocks[-1].resid_post.clone()
            logits = lm.logits
            close(lm.lens(last), logits)
            assert logits.shape[1] == (5 if step == 0 else 1)
    assert t.tokens == plain
    assert t.steps_run == 3


def test_an_exception_leaves_the_model_usable(tiny):
    lm = tiny.lm
    with pytest.raises(ZeroDivisionError), lm.trace(IDS, eager=True):  # noqa: PT012
        lm.blocks[0].resid_post.norm()
        1 / 0  # noqa: B018
    with lm.trace(IDS) as t:
        logits = t.save(lm.logits)
    close(logits, tiny.sites(IDS)["logits"])


def test_eager_and_recorded_agree_bit_for_bit(tiny):
    lm = tiny.lm

    def lines(t):
        lm.blocks[0].mlp.out[:, 1] = 0
        lm.blocks[1].attn.pattern[:, 0] *= 0.5
        return t.save(lm.logits), t.save(t.nll())

    with lm.trace(IDS) as t:
        recorded = lines(t)
    with lm.trace(IDS, eager=True) as t:
        eager = lines(t)
    assert torch.equal(recorded[0], eager[0])
    assert torch.equal(recorded[1], eager[1])
