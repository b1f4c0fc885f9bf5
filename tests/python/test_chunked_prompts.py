"""Prompts that go through the model piece by piece."""

import pellucid
import pytest
import torch

IDS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1, 8, 2, 8, 1]]


@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_a_prompt_in_pieces_continues_as_transformers_does_from_the_whole_one(tiny, chunk):
    lm = pellucid.load(str(tiny.folder), dtype=torch.float64, prefill_chunk=chunk)
    values, groups = [], []
    with lm.trace() as t:
        for ids in IDS:
            with t.prompt(ids, max_new_tokens=4) as group:
                groups.append(group)
                # Step 2 looks back on everything that the pieces have left in the cache.
                for _ in group.steps[2:3]:
                    names = ("blocks.0.attn.pattern", "blocks.2.resid_post", "logits")
                    values.append([t.save(lm[name]) for name in names])
    for ids, (pattern, resid, logits), group in zip(IDS, values, groups, strict=True):
        sites = tiny.sites([ids + group.tokens[:2]])
        assert torch.allclose(
            pattern, sites["blocks.0.attn.pattern"][:, :, -1:], atol=1e-10, rtol=0
        )
        assert torch.allclose(resid, sites["blocks.2.resid_post"][:, -1:], atol=1e-10, rtol=0)
        assert torch.allclose(logits, sites["logits"][:, -1:], atol=1e-10, rtol=0)


def test_a_program_that_looks_at_the_prompt_sees_it_whole(tiny):
    lm = pellucid.load(str(tiny.folder), dtype=torch.float64, prefill_chunk=2)
    with lm.trace(IDS[0], max_new_tokens=2) as t:
        h = t.save(lm.blocks[1].resid_post)
    expected = tiny.sites([IDS[0]])["blocks.1.resid_post"]
    assert torch.allclose(h, expected, atol=1e-10, rtol=0)


def test_pieces_of_no_token_are_refused(tiny):
    with pytest.raises(pellucid.Error, match="prefill_chunk=0"):
        pellucid.load(str(tiny.folder), prefill_chunk=0)
