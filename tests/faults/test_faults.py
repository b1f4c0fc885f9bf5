"""Reported faults of comparable tools that only Python can show; those of programs are tests/cases."""

import gc
from pathlib import Path

import pellucid
import pytest
import torch
from case_runner import models


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> pellucid.LM:
    return pellucid.load(str(models.make_tiny("tiny_llama", tmp_path_factory.mktemp("model")).path))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_a_thousand_traces_do_not_grow_the_process(lm: pellucid.LM) -> None:
    """nnsight 169, 538: memory grows with every trace."""

    def trace() -> None:
        with lm.trace([5, 6, 7, 8]) as t:
            h = lm.blocks[1].resid_post
            h[:, -1] += 1
            t.save(lm.logits)

    for _ in range(100):  # allocators and caches reach their size
        trace()
    gc.collect()
    before = resident_bytes()
    for _ in range(1000):
        trace()
    gc.collect()
    grown = resident_bytes() - before
    assert grown < 5_000_000, f"{grown} bytes"


def test_a_saved_value_is_no_view_of_a_buffer(lm: pellucid.LM) -> None:
    """nnsight 661, 630: a saved value changes when something else runs."""
    with lm.trace([5, 6, 7, 8]):
        h = lm.blocks[1].resid_post.save()
    kept = h.clone()
    with lm.trace([9, 10, 11, 12]):
        lm.blocks[1].resid_post *= 3
        lm.logits.save()
    lm.generate([5, 6, 7, 8], max_new_tokens=4)
    assert torch.equal(h, kept)
    assert type(h) is torch.Tensor


def test_the_list_after_a_loop_over_steps(lm: pellucid.LM) -> None:
    """nnsight 595, pull 613: code after an unbounded loop over steps never runs."""
    seen: list[object] = []
    with lm.trace([5, 6, 7, 8], max_new_tokens=3, stop_at_eos=False) as t:
        for step in t.steps[:3]:
            t.save(lm.logits[:, -1].argmax(-1))
            seen.append(step)
        seen.append("after")
    assert seen == [0, 1, 2, "after"]
    assert t.steps_run == 3


def test_an_unknown_option_is_refused_by_name(lm: pellucid.LM) -> None:
    """nnsight 563, 191: unknown arguments are silently dropped."""
    with pytest.raises((TypeError, pellucid.Error), match="remoet"):
        lm.trace([5, 6], remoet=True)  # type: ignore[call-arg]


def test_assigning_to_an_unknown_name_offers_the_nearest(lm: pellucid.LM) -> None:
    """`lm.blocks[3].resid_pots = x` is accepted elsewhere and does nothing."""
    with pytest.raises((AttributeError, pellucid.Error), match="resid_post"), lm.trace([5, 6]):
        lm.blocks[1].resid_pots = lm.blocks[0].resid_post


def test_an_edit_that_is_only_a_new_value_warns(lm: pellucid.LM) -> None:
    """`h = h + v` without a write changes nothing: the line is named."""
    with pytest.warns(pellucid.PellucidWarning, match="test_faults.py"), lm.trace([5, 6]):
        h = lm.blocks[1].resid_post
        h = h + 1  # noqa: F841
        lm.logits.save()


def test_nothing_is_captured_by_default(lm: pellucid.LM) -> None:
    """TransformerLens 746: caching everything exhausts memory. Bytes held = bytes asked."""
    with lm.trace([5, 6, 7]) as t:
        row = t.save(lm.blocks[1].resid_post[:, -1])
    assert row.untyped_storage().nbytes() == row.numel() * row.element_size()


def test_a_failed_block_leaves_nothing_behind(lm: pellucid.LM) -> None:
    """PROGRAMS ruling 16: an exception inside the block runs nothing and leaves nothing."""
    with lm.trace([5, 6, 7]):
        plain = lm.logits.save()
    with pytest.raises(ZeroDivisionError), lm.trace([5, 6, 7]):
        lm.blocks[0].resid_post[:] = 0
        _ = 1 / 0
    with lm.trace([5, 6, 7]):
        again = lm.logits.save()
    assert torch.equal(plain, again)


def test_no_operation_of_one_backend_is_stored(lm: pellucid.LM) -> None:
    """Recorders that note what a CPU dispatched cannot be replayed elsewhere."""
    with lm.trace([5, 6, 7]) as t:
        h = lm.blocks[1].resid_post
        q = h[:, None]
        attended = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        t.save(torch.nn.functional.layer_norm(attended, (36,)))
    names = [node.name for node in t.program.nodes]
    assert "aten::scaled_dot_product_attention" in names
    assert "aten::layer_norm" in names
    assert not any("_for_cpu" in name or "native" in name for name in names)
