"""Steps of generation: step 0 is the prompt's pass."""

import pellucid
import pytest
import torch

PROMPT = [5, 17, 33, 2, 90]
N = 4


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def generated(tiny, n=N, prompt=PROMPT):
    with tiny.lm.trace(prompt, max_new_tokens=n, stop_at_eos=False) as t:
        pass
    return t.tokens


def test_sites_during_cached_decoding_equal_a_full_recompute(tiny):
    # TransformerLens 697, 889.
    lm = tiny.lm
    names = [name for name in lm.sites if not name.endswith(("scores", "pattern", "tokens"))]
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False) as t:
        values = [{name: t.save(lm[name]) for name in names} for _ in t.steps[:N]]
        patterns = []
        for _ in t.steps[:N]:
            patterns.append(lm.blocks[1].attn.pattern.save())
    full = tiny.sites([PROMPT + t.tokens[:-1]])
    for step in range(N):
        at = slice(0, 5) if step == 0 else slice(4 + step, 5 + step)
        for name in names:
            if name in full:
                close(values[step][name], full[name][:, at])
        keys = 5 + step
        assert patterns[step].shape[-2:] == ((5, 5) if step == 0 else (1, keys))
        close(patterns[step], full["blocks.1.attn.pattern"][:, :, at, :keys])
    close(values[2]["logits"].argmax(-1)[0, -1], torch.tensor(t.tokens[2]))


def test_lines_outside_any_step_mean_step_0(tiny):
    lm = tiny.lm
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False):
        h = lm.blocks[1].resid_post.save()
    assert h.shape[:2] == (1, 5)


def test_code_after_a_loop_over_steps_runs(tiny):
    # nnsight 595, pull 613: it never does.
    seen = []
    with tiny.lm.trace(PROMPT, max_new_tokens=3, stop_at_eos=False):
        for k in pellucid._context.current.get().steps[:]:
            seen.append(k)
        seen.append("after")
        tiny.lm.logits.save()
    assert seen == [0, 1, 2, "after"]


def test_after_a_loop_that_was_left_lines_mean_step_0_again(tiny):
    lm = tiny.lm
    with lm.trace(PROMPT, max_new_tokens=3, stop_at_eos=False) as t:
        for k in t.steps[:]:
            if k == 1:
                assert lm.blocks[0].resid_post.shape[1] == 1
                break
        assert lm.blocks[0].resid_post.shape[1] == 5
        lm.logits.save()


@pytest.mark.parametrize("edited", range(N))
def test_the_edit_of_a_step_changes_that_steps_token_and_none_before(tiny, edited):
    # pyvene 15, 193: unclear which generated tokens are edited.
    lm = tiny.lm
    plain = generated(tiny)
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False) as t:
        for _ in t.steps[edited : edited + 1]:
            lm.logits[:, -1, 123] = 1e6
    assert t.tokens[:edited] == plain[:edited]
    assert t.tokens[edited] == 123


def test_an_edit_of_the_prompts_pass_touches_its_positions_only(tiny):
    lm = tiny.lm
    with lm.trace(PROMPT, max_new_tokens=2, stop_at_eos=False) as t:
        lm.blocks[0].resid_post[:, 1] *= 3
        first = t.save(lm.logits)
        for _ in t.steps[1:2]:
            second = t.save(lm.logits)

    def edit(h):
        h = h.clone()
        h[:, 1] *= 3
        return h

    full = tiny.sites([PROMPT + t.tokens[:1]], {"blocks.0.resid_post": edit})["logits"]
    close(first, full[:, :5])
    close(second, full[:, 5:])


def test_a_body_recorded_once_runs_at_every_step_and_its_saves_stack(tiny):
    lm = tiny.lm
    v = torch.linspace(-2, 2, tiny.lm.d_model, dtype=torch.float64)
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False) as t:  # noqa: SIM117
        with t.steps[1:] as s:
            lm.blocks[1].resid_post += v
            p = s.save(lm.logits.softmax(-1).max(-1).values)
    assert t.steps_run == N
    assert p.shape == (N - 1, 1, 1)

    def edit(h):
        h = h.clone()
        h[:, 5:] += v
        return h

    full = tiny.sites([PROMPT + t.tokens[:-1]], {"blocks.1.resid_post": edit})["logits"]
    close(p[:, 0, 0], full[0, 5:].softmax(-1).max(-1).values)
    assert t.tokens == full[0, 4:].argmax(-1).tolist()


def test_a_body_over_all_steps_includes_the_prompts_pass(tiny):
    lm = tiny.lm
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False) as t:  # noqa: SIM117
        with t.steps[:] as s:
            last = s.save(lm.blocks[1].resid_post[:, -1])
    assert last.shape == (N, 1, tiny.lm.d_model)
    full = tiny.sites([PROMPT + t.tokens[:-1]])["blocks.1.resid_post"]
    close(last[:, 0], full[0, 4:])


def test_lengths_that_depend_on_the_step_are_not_baked_in(tiny):
    lm = tiny.lm
    with lm.trace(PROMPT, max_new_tokens=N) as t:
        with t.steps[:]:
            h = lm.blocks[1].resid_post
            assert h.shape[-1] == tiny.lm.d_model
            assert h.shape[0] == 1
            with pytest.raises(pellucid.NumberNotKnown, match="size 1 of .* depends on the step"):
                h.shape[1]
            with pytest.raises(pellucid.NumberNotKnown):
                h.size(1)
        lm.logits.save()


def test_a_line_that_fits_one_step_only_is_refused_where_it_stands(tiny):
    lm = tiny.lm
    with pytest.raises(
        pellucid.InvalidArgument, match="for one length of its values only"
    ) as caught:  # noqa: PT012, SIM117
        with lm.trace(PROMPT, max_new_tokens=N) as t:
            with t.steps[:]:
                lm.blocks[1].resid_post += torch.ones(1, 5, 1, dtype=torch.float64)
    assert caught.value.where.startswith("test_steps.py:")


def test_a_step_that_did_not_happen_says_so(tiny):
    lm = tiny.lm
    tokens = generated(tiny)
    eos = 2
    with lm.trace(PROMPT, max_new_tokens=N) as t:
        for _ in t.steps[:1]:
            lm.logits[:, -1, eos] = 1e6
        values = [lm.blocks[0].resid_post.save() for _ in t.steps[:N]]
    assert t.steps_run == 1
    assert t.ended == "eos"
    assert t.tokens == [eos]
    assert values[0].shape[1] == 5
    with pytest.raises(pellucid.NotSaved, match="its step did not happen"):
        values[2].sum()
    assert len(tokens) == N


def test_impossible_steps_are_refused(tiny):
    with tiny.lm.trace(PROMPT, max_new_tokens=3) as t:
        for wrong, message in (
            (slice(0, 4), r"step 3 cannot happen: max_new_tokens=3 is 3 passes, steps 0 to 2"),
            (slice(3, None), r"step 3 cannot happen"),
            (slice(-1, None), r"steps count from the first"),
            (slice(None, None, 2), r"steps go one by one"),
            (slice(1, 1), r"is empty"),
        ):
            with pytest.raises(pellucid.InvalidArgument, match=message):
                t.steps[wrong]
        tiny.lm.logits.save()
    with tiny.lm.trace(PROMPT) as t:
        with pytest.raises(
            pellucid.InvalidArgument, match="max_new_tokens=0 is 1 pass, steps 0 to 0"
        ):
            t.steps[1]
        tiny.lm.logits.save()


def test_tokens_and_text_are_the_prompts_inside_and_the_new_ones_after(llama):
    lm = llama.lm
    with lm.trace("the cat", max_new_tokens=3, stop_at_eos=False) as t:
        assert t.text == "the cat"
        assert t.tokens == lm.tokenizer.encode("the cat")
        with pytest.raises(pellucid.InvalidArgument, match="is known after the block"):
            t.steps_run  # noqa: B018
    assert len(t.tokens) == 3
    assert t.text == lm.tokenizer.decode(t.tokens)
    assert t.ended == "length"


def test_two_groups_generate_side_by_side_as_alone(tiny):
    lm = tiny.lm
    with lm.trace() as t:
        with t.prompt(PROMPT, max_new_tokens=N, stop_at_eos=False) as a:
            for _ in a.steps[1:2]:
                first = lm.blocks[1].resid_post.save()
        with t.prompt([9, 8, 7], max_new_tokens=2, stop_at_eos=False) as b:
            lm.logits.save()
    assert a.tokens == generated(tiny)
    assert b.tokens == generated(tiny, 2, [9, 8, 7])
    with lm.trace(PROMPT, max_new_tokens=2, stop_at_eos=False) as t:
        for _ in t.steps[1:2]:
            alone = lm.blocks[1].resid_post.save()
    assert torch.equal(first, alone)


def test_the_same_seed_gives_the_same_text_whatever_the_batch(tiny):
    options = {"max_new_tokens": 6, "temperature": 1.5, "stop_at_eos": False}
    one = tiny.lm.generate(PROMPT, seed=3, **options).tokens
    assert tiny.lm.generate(PROMPT, seed=3, **options).tokens == one
    assert tiny.lm.generate(PROMPT, seed=4, **options).tokens != one
    with tiny.lm.trace() as t:
        with t.prompt([9, 8, 7], **options):
            tiny.lm.logits.save()
        with t.prompt(PROMPT, seed=3, **options) as c:
            tiny.lm.logits.save()
    assert c.tokens == one


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    "collect",
    [
        lambda steps: list(steps),
        lambda steps: tuple(steps),
        lambda steps: [*steps],
        lambda steps: [k for k in steps],  # noqa: C416
        lambda steps: list(zip(steps, "ab", strict=True)),
        lambda steps: sorted(steps),
    ],
    ids=["list", "tuple", "star", "comprehension", "zip", "sorted"],
)
def test_steps_cannot_be_collected_before_their_lines(llama, collect, eager):
    lm = llama.lm
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False, eager=eager) as t:
        with pytest.raises(
            pellucid.InvalidArgument, match=r"loop over t.steps directly: for k in t.steps\[a:b\]"
        ) as caught:
            collect(t.steps[1:3])
        assert caught.value.where.startswith("test_steps.py:")
        assert t.save(lm.embed).shape[1] == 5


def test_any_way_of_looping_whose_body_runs_between_the_steps_works(llama):
    lm = llama.lm
    with lm.trace(PROMPT, max_new_tokens=N, stop_at_eos=False) as t:
        for _, name in zip(t.steps[:2], "ab", strict=True):
            lm.embed.save(name)
        values = list(map(lambda k: lm.logits[:, -1].save(), t.steps[:3]))  # noqa: C417
        again = list(map(lambda k: lm.embed, t.steps[:2]))  # noqa: C417
        for k in t.steps[:]:
            if k > 100:
                lm.logits.save()
    assert t.saved["a"].shape[1] == 5
    assert t.saved["b"].shape[1] == 1
    assert again[0] is t.saved["a"]
    assert again[1] is t.saved["b"]
    assert [int(v.argmax()) for v in values] == t.tokens[:3]
