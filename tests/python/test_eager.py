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


@pytest.mark.parametrize(
    "use",
    [
        lambda lm: lm.generate([5, 17], max_new_tokens=1),
        lambda lm: next(lm.generate([5, 17], max_new_tokens=1, stream=True)),
        lambda lm: lm.cache(IDS, "embed"),
        lambda lm: lm.score(["the cat"]),
        lambda lm: lm.trace(IDS),
        lambda lm: lm.trace(IDS, eager=True),
        lambda lm: lm.map(pellucid.program(lambda lm, t: lm.logits), IDS),
    ],
    ids=["generate", "stream", "cache", "score", "trace", "eager", "map"],
)
def test_the_model_cannot_be_used_inside_an_eager_trace_of_its_own(llama, use):
    lm = llama.lm
    with lm.trace(IDS, eager=True):
        lm.embed.norm()
        with pytest.raises(pellucid.InvalidArgument, match="finish it first") as caught:
            use(lm)
        assert caught.value.what == ("the model cannot be used inside an eager trace of its own")
        lm.logits.norm()
    assert len(lm.generate([5, 17], max_new_tokens=1, stop_at_eos=False).tokens) == 1


def test_an_eager_trace_that_was_opened_before_another_cannot_be_entered_in_it(llama):
    lm = llama.lm
    second = lm.trace(IDS, eager=True)
    with lm.trace(IDS, eager=True):
        with pytest.raises(pellucid.InvalidArgument, match="finish it first"):
            second.__enter__()
        lm.logits.norm()


def test_the_lens_works_in_an_eager_trace_while_another_models_trace_is_open(llama, gpt2):
    with llama.lm.trace(IDS, eager=True) as t:
        last = llama.lm.blocks[-1].resid_post.clone()
        with gpt2.lm.trace(IDS):
            gpt2.lm.logits.save()
            lens = llama.lm.lens(last)
        close(lens, t.save(llama.lm.logits))


@pytest.mark.parametrize("last", ["a later read", "a later write", "the end of the block"])
def test_writing_into_a_value_whose_site_has_passed_is_refused(llama, last):
    lm = llama.lm
    with pytest.raises(
        pellucid.OutOfOrder, match="blocks.0.resid_post was written into after"
    ) as caught:  # noqa: PT012
        with lm.trace(IDS, eager=True):
            h = lm.blocks[0].resid_post
            lm.blocks[1].resid_post.norm()
            h[:, 1] = 0
            if last == "a later read":
                lm.blocks[2].resid_post  # noqa: B018
            elif last == "a later write":
                lm.blocks[2].resid_post = torch.zeros(2, 5, 36, dtype=torch.float64)
    assert caught.value.where.startswith("test_eager.py:")
    with lm.trace(IDS) as t:  # while the error is held
        logits = t.save(lm.logits)
    close(logits, llama.sites(IDS)["logits"])


def test_a_view_of_a_passed_site_is_watched_and_the_step_is_named(llama):
    with pytest.raises(pellucid.OutOfOrder, match="blocks.0.resid_post at step 1 was written"):  # noqa: PT012
        with llama.lm.trace(IDS[0], max_new_tokens=2, stop_at_eos=False, eager=True) as t:
            for _ in t.steps[1:]:
                h = llama.lm.blocks[0].resid_post[:, -1]
                llama.lm.blocks[1].resid_post.norm()
                h += 1


def test_copies_and_values_of_a_finished_trace_may_be_changed(llama):
    lm = llama.lm
    with lm.trace(IDS, eager=True):
        h = lm.blocks[0].resid_post
        copy = h.clone()
        h += 1  # the pass still stands here
        lm.blocks[1].resid_post.norm()
        copy[:] = 0
        logits = lm.logits
    h[:] = 0
    close(logits, llama.sites(IDS, {"blocks.0.resid_post": lambda h: h + 1})["logits"])


def test_calls_and_saves_are_checked_as_in_a_recorded_trace(llama):
    lm = llama.lm
    with lm.trace(IDS, eager=True) as t:
        h = lm.embed
        with pytest.raises(
            pellucid.ShapeMismatch, match=r"returned \[2, 5, 36\] float64, like= says \[1\]"
        ):
            t.call(lambda a: a, h, like=torch.empty(1))
        with pytest.raises(pellucid.InvalidArgument, match="returned int, not a tensor"):
            t.call(lambda a: 3, h, like=torch.empty(1))
        double = t.call(lambda a: a * 2, h, like=torch.empty(2, 5, 36, dtype=torch.float64))
        assert torch.equal(double, h * 2)
        with pytest.raises(pellucid.InvalidArgument, match="no tensor to save in this dict"):
            t.save({"a": 3})
        a = t.save(h, "a")
        with pytest.raises(pellucid.InvalidArgument, match="two values are saved as 'a'"):
            t.save(h, "a")
        t.save({"x": h, "y": 3}, "nested")
    assert t.saved["a"] is a
    assert list(t.saved) == ["a", "nested.0"]
