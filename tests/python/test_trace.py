"""Reading, editing and saving in traces, against transformers with forward hooks."""

import gc
import inspect
import warnings

import pellucid
import pytest
import torch
from torch import nn

IDS = [[5, 17, 33, 2, 90], [7, 7, 250, 31, 4]]


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


# -- reading ----------------------------------------------------------------------------------


def test_every_site_equals_transformers(tiny):
    expected = tiny.sites(IDS)
    with tiny.lm.trace(IDS) as t:
        values = {name: t.save(tiny.lm[name]) for name in tiny.lm.sites}
    assert len(values) > 60
    for name, value in values.items():
        assert type(value) is torch.Tensor
        if name in expected:
            close(value.to(expected[name].dtype), expected[name])


def test_a_value_knows_its_shape_and_dtype_inside_the_block(tiny):
    with tiny.lm.trace(IDS) as t:
        for name in tiny.lm.sites:
            value = tiny.lm[name]
            inside = value.shape, value.dtype, value.device.type
            value.save(name)
            assert isinstance(value, torch.Tensor)
            t._shapes = {**getattr(t, "_shapes", {}), name: inside}
    for name, (shape, dtype, device) in t._shapes.items():
        assert (t.saved[name].shape, t.saved[name].dtype) == (shape, dtype)
        assert device == "cpu"


def test_attributes_names_and_hugging_face_paths_are_the_same_value(llama):
    lm = llama.lm
    with lm.trace(IDS):
        value = lm.blocks[1].resid_post
        assert lm["blocks.1.resid_post"] is value
        assert lm["blocks.1.hook_resid_post"] is value
        assert lm.model.layers[1].output is value
        assert lm.blocks[-2].resid_post is value
        z = lm.blocks[1].attn.z.save()
        flat = lm.model.layers[1].self_attn.o_proj.input.save()
        assert lm.model.layers[1].self_attn.o_proj.input is flat
    assert flat.shape == (2, 5, 36)
    assert torch.equal(flat, z.flatten(2))


def test_the_tuple_of_old_code_is_warned_about_once(llama):
    pellucid._functions._warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with llama.lm.trace(IDS) as t:
            for block in llama.lm.model.layers:
                t.save(block.output[0])
    assert len(caught) == 1
    assert "batch row 0" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_gpt2_paths(gpt2):
    with gpt2.lm.trace(IDS):
        assert gpt2.lm.transformer.h[0].output is gpt2.lm.blocks[0].resid_post


def test_writing_through_a_flat_alias(llama):
    lm = llama.lm
    expected = llama.sites(IDS, {"blocks.1.attn.z": lambda z: z * 2})["logits"]
    with lm.trace(IDS) as t:
        lm.model.layers[1].self_attn.o_proj.input *= 2
        logits = t.save(lm.logits)
    close(logits, expected)
    with lm.trace(IDS) as t:
        path = lm.model.layers[1].self_attn.o_proj
        path.input = path.input * 2
        logits = t.save(lm.logits)
    close(logits, expected)


def test_blocks_are_a_list(llama):
    lm = llama.lm
    assert len(lm.blocks) == 3
    assert len(list(lm.blocks)) == 3
    assert len(lm.blocks[1:]) == 2
    with pytest.raises(IndexError, match=r"lm.blocks\[3\]: the model has 3 blocks, 0 to 2"):
        lm.blocks[3]


# -- names --------------------------------------------------------------------------------------


def test_an_unknown_site_is_an_error_with_the_nearest_names(llama):
    with pytest.raises(pellucid.NotFound, match="resid_post"), llama.lm.trace(IDS):
        llama.lm.blocks[1].resid_pots  # noqa: B018


def test_assigning_to_an_unknown_name_is_an_error_with_the_nearest_names(llama):
    with llama.lm.trace(IDS):
        value = llama.lm.blocks[1].resid_post
        with pytest.raises(pellucid.NotFound, match="resid_post") as caught:
            llama.lm.blocks[1].resid_pots = value * 2
        value.save()
    assert caught.value.where.startswith("test_trace.py:")


def test_a_site_outside_a_trace_is_an_error_that_says_so(llama):
    with pytest.raises(
        pellucid.InvalidArgument, match=r"lm.blocks.1.resid_post exists inside a trace only"
    ):
        llama.lm.blocks[1].resid_post  # noqa: B018
    with pytest.raises(pellucid.InvalidArgument, match=r"lm.logits exists inside a trace only"):
        llama.lm.logits = torch.zeros(1)


def test_a_site_that_the_family_does_not_have_is_an_error(gpt2):
    with pytest.raises(pellucid.Error, match=r"mlp\.gate"), gpt2.lm.trace(IDS):
        gpt2.lm.blocks[0].mlp.gate  # noqa: B018


# -- editing --------------------------------------------------------------------------------------


def edited(tiny, edits, lines):
    """Logits after `lines(lm, t)`, compared with transformers under `edits`."""
    expected = tiny.sites(IDS, edits)["logits"]
    with tiny.lm.trace(IDS) as t:
        lines(tiny.lm, t)
        logits = t.save(tiny.lm.logits)
    close(logits, expected)


V = torch.linspace(-1, 1, 36, dtype=torch.float64)


def test_an_edit_in_place_through_a_view(llama):
    def edit(h):
        h = h.clone()
        h[:, -1] += 4 * V
        return h

    def lines(lm, t):
        h = lm.blocks[1].resid_post
        h[:, -1] += 4 * V

    edited(llama, {"blocks.1.resid_post": edit}, lines)


def test_an_augmented_assignment_to_a_site(llama):
    def lines(lm, t):
        lm.blocks[0].mlp.out += V

    edited(llama, {"blocks.0.mlp.out": lambda h: h + V}, lines)

    def whole(lm, t):
        lm.blocks[0].mlp.out[:] += V

    edited(llama, {"blocks.0.mlp.out": lambda h: h + V}, whole)


def test_an_assignment_replaces_the_value(tiny):
    def lines(lm, t):
        lm.blocks[1].attn.out = lm.blocks[1].attn.out * 0.5

    edited(tiny, {"blocks.1.attn.out": lambda h: h * 0.5}, lines)


def test_an_assignment_of_an_ordinary_tensor(tiny):
    new = torch.randn(tiny.sites(IDS)["blocks.1.mlp.out"].shape, dtype=torch.float64)

    def lines(lm, t):
        lm.blocks[1].mlp.out = new

    edited(tiny, {"blocks.1.mlp.out": lambda h: new}, lines)


def test_floats_are_cast_to_the_sites_dtype(tiny):
    new = torch.randn(tiny.sites(IDS)["blocks.1.mlp.out"].shape)

    def lines(lm, t):
        lm.blocks[1].mlp.out = new

    edited(tiny, {"blocks.1.mlp.out": lambda h: new.double()}, lines)


def test_patterns_scores_and_heads_can_be_edited(tiny):
    def lines(lm, t):
        lm.blocks[0].attn.pattern[:, 1] = 0.25
        lm.blocks[1].attn.z[:, :, 2] = 0
        lm.blocks[2].attn.q[:, -1] *= 3

    def pattern(p):
        p = p.clone()
        p[:, 1] = 0.25
        return p

    def z(z):
        z = z.unflatten(-1, (-1, tiny.lm.info["head_width"])) if z.dim() == 3 else z
        z = z.clone()
        z[:, :, 2] = 0
        return z

    def q(q):
        q = q.clone()
        q[:, -1] *= 3
        return q

    edited(
        tiny, {"blocks.0.attn.pattern": pattern, "blocks.1.attn.z": z, "blocks.2.attn.q": q}, lines
    )


def test_a_mask_and_where(tiny):
    def lines(lm, t):
        g = lm.blocks[0].resid_post
        lm.blocks[0].resid_post = torch.where(g < -1, 0.0, g)
        h = lm.blocks[1].resid_post
        h[h > 1] = 0

    edited(
        tiny,
        {
            "blocks.1.resid_post": lambda h: h.masked_fill(h > 1, 0),
            "blocks.0.resid_post": lambda h: h.masked_fill(h < -1, 0),
        },
        lines,
    )


def test_modules_in_the_loop(llama):
    torch.manual_seed(1)
    gate = nn.Sequential(nn.Linear(36, 1), nn.Sigmoid()).double().eval()
    adapter = nn.Sequential(nn.Linear(36, 8), nn.GELU(), nn.Linear(8, 36)).double().eval()

    def lines(lm, t):
        h = lm.blocks[1].resid_post
        h[:] = h + gate(h) * adapter(h)

    edited(llama, {"blocks.1.resid_post": lambda h: (h + gate(h) * adapter(h)).detach()}, lines)


def test_changed_token_ids_change_what_is_embedded(tiny):
    changed = [[5, 17, 33, 2, 8], [7, 7, 250, 31, 8]]
    with tiny.lm.trace(IDS) as t:
        tiny.lm.tokens[:, -1] = 8
        logits = t.save(tiny.lm.logits)
    close(logits, tiny.sites(changed)["logits"])


def test_the_wrong_shape_is_refused_at_the_users_line(llama):
    lm = llama.lm
    with lm.trace(IDS):
        h = lm.blocks[1].resid_post
        with pytest.raises(
            pellucid.ShapeMismatch,
            match=r"blocks.1.resid_post is \[2, 5, 36\] here and cannot take \[2, 1, 36\]",
        ) as caught:
            lm.blocks[1].resid_post = h[:, :1]
        with pytest.raises(pellucid.ShapeMismatch):
            lm.blocks[1].resid_post = torch.zeros(36)
        with pytest.raises(pellucid.InvalidArgument, match=r"\[:\] = x fills it with a number"):
            lm.blocks[1].resid_post = 0.0
        with pytest.raises(pellucid.InvalidArgument, match="holds float64 and cannot take int64"):
            lm.blocks[1].resid_post = torch.zeros(2, 5, 36, dtype=torch.long)
        h.save()
    assert caught.value.where.startswith("test_trace.py:")


def test_values_of_one_row_are_used_in_another(tiny):
    lm = tiny.lm
    a, b = [IDS[0]], [IDS[1]]
    source = tiny.sites(a)["blocks.0.resid_post"]

    def patch(h):
        h = h.clone()
        h[:, 2] = source[:, 2]
        return h

    expected = tiny.sites(b, {"blocks.0.resid_post": patch})["logits"]
    with lm.trace() as t:
        with t.prompt(a):
            donor = lm.blocks[0].resid_post
        with t.prompt(b):
            lm.blocks[0].resid_post[:, 2] = donor[:, 2]
            logits = t.save(lm.logits)
    close(logits, expected)


def test_another_rows_later_layer_may_be_used_at_an_earlier_one(tiny):
    # Patchscopes; nnsight refuses or pads.
    lm = tiny.lm
    a, b = [IDS[0]], [IDS[1][:3]]
    source = tiny.sites(a)["blocks.2.resid_post"]

    def patch(h):
        h = h.clone()
        h[:, 1] = source[:, -1]
        return h

    expected = tiny.sites(b, {"blocks.0.resid_pre": patch})["logits"]
    with lm.trace() as t:
        with t.prompt(b):
            into = lm.blocks[0].resid_pre
            target = t._group
        with t.prompt(a):
            late = lm.blocks[2].resid_post
        with target:
            into[:, 1] = late[:, -1]
            logits = t.save(lm.logits)
    close(logits, expected)


# -- order ----------------------------------------------------------------------------------------


def test_saved_before_an_edit_stays_as_it_was(tiny):
    # nnsight 0.8.1: the saved value reads 0.
    lm = tiny.lm
    expected = tiny.sites(IDS)["blocks.1.resid_post"]
    with lm.trace(IDS):
        h = lm.blocks[1].resid_post
        before = h.save()
        h[:] = 0
        after = h.save()
    close(before, expected)
    assert before is not after
    assert torch.count_nonzero(after) == 0
    assert torch.count_nonzero(before) > 0


def test_a_saved_value_never_changes_later(tiny):
    # nnsight 661, 630: a view of an engine's buffer.
    lm = tiny.lm
    with lm.trace(IDS):
        kept = lm.blocks[1].resid_post.save()
        part = lm.blocks[1].resid_post[:, -1].save()
    copies = kept.clone(), part.clone()
    for ids in ([[1, 2, 3]], IDS):
        with lm.trace(ids):
            lm.blocks[1].resid_post.save()
    assert torch.equal(kept, copies[0])
    assert torch.equal(part, copies[1])
    assert part.untyped_storage().nbytes() == part.numel() * part.element_size()


def test_a_read_after_a_write_sees_it(tiny):
    lm = tiny.lm
    with lm.trace(IDS):
        first = lm.blocks[1].resid_post.save()
        lm.blocks[1].resid_post = first * 2
        second = lm.blocks[1].resid_post.save()
        lm.blocks[1].resid_post += 1
        third = lm.blocks[1].resid_post.save()
    assert torch.equal(second, first * 2)
    assert torch.equal(third, first * 2 + 1)


def test_an_edit_upstream_of_what_was_read_is_refused(tiny):
    # nnsight 143: silently ignored.
    lm = tiny.lm
    with pytest.raises(pellucid.OutOfOrder) as caught:  # noqa: PT012, SIM117
        with lm.trace(IDS) as t:
            late = lm.blocks[2].resid_post
            lm.blocks[0].resid_post[:, 0] = late[:, 0]
            t.save(lm.logits)
    message = str(caught.value)
    assert "blocks.0.resid_post" in message
    assert "blocks.2.resid_post" in message


def test_several_sites_of_the_same_pass_may_be_used_together(tiny):
    # pyvene 215.
    lm = tiny.lm
    plain = tiny.sites(IDS)
    mixed = plain["blocks.0.resid_post"] + plain["blocks.1.mlp.out"]
    expected = tiny.sites(IDS, {"blocks.2.resid_pre": lambda h: h + mixed})["logits"]
    with lm.trace(IDS) as t:
        early, out = lm.blocks[0].resid_post, lm.blocks[1].mlp.out
        lm.blocks[2].resid_pre += early + out
        logits = t.save(lm.logits)
    close(logits, expected)


def test_the_edit_of_one_trace_does_not_reach_the_next(tiny):
    # nnsight 607.
    lm = tiny.lm
    with lm.trace(IDS) as t:
        lm.blocks[0].resid_post[:] = 0
        t.save(lm.logits)
    with lm.trace(IDS) as t:
        logits = t.save(lm.logits)
    close(logits, tiny.sites(IDS)["logits"])


def test_an_edit_in_one_row_of_a_batch_reaches_that_row_only(tiny):
    # nnsight 502.
    lm = tiny.lm
    ids = [*IDS, [9, 8, 7, 6, 5]]
    with lm.trace(ids) as t:
        plain = t.save(lm.logits)
    with lm.trace(ids) as t:
        lm.blocks[1].attn.z[1, :, 0] = 0
        logits = t.save(lm.logits)
    assert torch.equal(logits[0], plain[0])
    assert torch.equal(logits[2], plain[2])
    assert not torch.equal(logits[1], plain[1])


# -- saving ---------------------------------------------------------------------------------------


def test_saved_values_are_plain_tensors_and_the_same_objects(llama):
    lm = llama.lm
    with lm.trace(IDS) as t:
        h = lm.blocks[1].resid_post
        saved = h.save()
        assert saved is h
        everything = {
            "top": lm.logits[:, -1].topk(3),
            "norms": [b.resid_post.norm() for b in lm.blocks],
        }
        again = t.save(everything)
        named = (lm.blocks[0].resid_pre + 1).save("first")
    assert type(h) is torch.Tensor
    assert not h.requires_grad
    assert type(again["top"]).__name__ == "topk"
    assert again["top"].indices.dtype == torch.long
    assert type(everything["top"].values) is torch.Tensor
    assert everything["norms"][2].item() > 0
    assert torch.equal(
        torch.tensor([float(n) for n in again["norms"]]), torch.stack(again["norms"]).float()
    )
    assert t.saved["first"] is named
    assert torch.equal(h.double().numpy(force=True).shape and h, h)
    (h.requires_grad_() * 2).sum().backward()
    assert h.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_traces_work_where_gradients_are_off(llama, mode):
    with mode(), llama.lm.trace(IDS) as t:
        llama.lm.blocks[1].resid_post[:, -1] += V
        logits = t.save(llama.lm.logits)
    assert type(logits) is torch.Tensor
    (logits * torch.ones(300, dtype=torch.float64, requires_grad=True)).sum().backward()


def test_dtype_casts_before_the_copy(llama):
    lm = llama.lm
    with lm.trace(IDS) as t:
        half = lm.blocks[1].resid_post.save(dtype=torch.float16)
        full = t.save(lm.blocks[1].resid_post)
    assert half.dtype == torch.float16
    assert torch.equal(half, full.half())


def test_an_unsaved_value_says_so_with_its_line(llama):
    lm = llama.lm
    with lm.trace(IDS):
        h = lm.blocks[1].resid_post
        lm.logits.save()
    with pytest.raises(
        pellucid.NotSaved, match=r"not saved: blocks.1.resid_post of test_trace.py:\d+"
    ):
        h.sum()


def test_two_values_of_one_name_are_refused(llama):
    with llama.lm.trace(IDS):
        llama.lm.logits.save("a")
        with pytest.raises(pellucid.InvalidArgument, match="two values are saved as 'a'"):
            llama.lm.embed.save("a")


def test_a_computed_line_that_nobody_uses_is_warned_about(llama):
    lm = llama.lm
    with pytest.warns(pellucid.PellucidWarning, match=r"test_trace.py:\d+"):  # noqa: PT031
        with lm.trace(IDS):
            h = lm.blocks[1].resid_post
            h = h + 1  # and never written
            lm.logits.save()


def test_no_warning_for_what_is_used(llama):
    lm = llama.lm
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with lm.trace(IDS) as t:
            a, b = lm.blocks[1].resid_post.chunk(2, -1)
            a += 1
            first, *_ = lm.blocks[0].attn.z.unbind(2)
            t.save(lm.logits[:, -1] + first.sum())


def test_an_exception_in_the_block_runs_nothing(llama):
    lm = llama.lm
    ran = []
    with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117
        with lm.trace(IDS) as t:
            h = lm.blocks[1].resid_post.save()
            t.print(h.norm())
            t.call(
                lambda x: ran.append(1) or x, h.norm(), like=torch.zeros((), dtype=torch.float64)
            )
            1 / 0  # noqa: B018
    assert ran == []
    with pytest.raises(pellucid.NotSaved, match="its block ended with an error, so nothing ran"):
        h.sum()
    with lm.trace(IDS) as t:
        assert t.save(lm.logits).shape == (2, 5, 300)


def test_values_of_two_open_traces_do_not_mix(llama):
    lm = llama.lm
    with lm.trace(IDS):
        outer = lm.blocks[0].resid_post
        with lm.trace(IDS):
            inner = lm.blocks[0].resid_post.save()
            with pytest.raises(pellucid.InvalidArgument, match="belongs to another trace"):
                inner + outer
        outer.save()
    assert torch.equal(inner, outer)


def test_a_value_from_an_earlier_run_is_a_constant_in_the_next(llama):
    # nnsight 104.
    lm = llama.lm
    with lm.trace([IDS[0]]):
        h = lm.blocks[1].resid_post.save()
    with lm.trace([IDS[1]]) as t:
        lm.blocks[1].resid_post = h
        logits = t.save(lm.logits)
    close(logits, llama.sites([IDS[1]], {"blocks.1.resid_post": lambda _: h})["logits"])


def test_an_edit_of_a_constant_between_two_runs_is_seen(llama):
    lm = llama.lm
    weight = nn.Parameter(torch.ones(36, dtype=torch.float64))
    results = []
    for factor in (1.0, 2.0):
        weight.data = torch.full((36,), factor, dtype=torch.float64)
        with lm.trace(IDS):
            results.append((lm.blocks[1].resid_post * weight).save())
    assert torch.equal(results[1], results[0] * 2)


# -- reading changes nothing ------------------------------------------------------------------------


def test_reading_every_site_changes_no_bit(tiny):
    lm = tiny.lm
    with lm.trace(IDS) as t:
        plain = t.save(lm.logits)
    with lm.trace(IDS) as t:
        for name in lm.sites:
            lm[name].save(name)
    assert torch.equal(t.saved["logits"], plain)


def test_a_row_is_bit_equal_alone_and_among_others(tiny):
    lm = tiny.lm
    with lm.trace() as t:
        for row in ([1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11]):
            with t.prompt(row):
                t.save(lm.logits)
        with t.prompt(IDS):
            together = t.save(lm.logits)
    with lm.trace([IDS[0]]) as t:
        alone = t.save(lm.logits)
    assert torch.equal(together[:1], alone)


def test_a_row_sees_its_own_length(tiny):
    # nnsight 0.8.1: 5 instead of 2; nnsight 672: wrong positions beside a long prompt.
    lm = tiny.lm
    with lm.trace() as t:
        with t.prompt([5, 17]):
            short = t.save(lm.blocks[1].resid_post)
            logits = t.save(lm.logits)
        with t.prompt(IDS):
            t.save(lm.logits)
    assert short.shape[:2] == (1, 2)
    close(logits, tiny.sites([[5, 17]])["logits"])


# -- parts and weights --------------------------------------------------------------------------------


def test_the_lens_of_the_last_residual_is_the_logits(tiny):
    lm = tiny.lm
    with lm.trace(IDS) as t:
        last = lm.blocks[-1].resid_post
        one = t.save(lm.unembed(lm.ln_final(last)))
        two = t.save(lm.lens(last))
        logits = t.save(lm.logits)
        plain = t.save(last)
    close(one, logits)
    close(two, logits)
    close(lm.lens(plain), logits)
    close(lm.unembed(lm.ln_final(plain[0, 0])), logits[0, 0])


def test_parts_refuse_the_wrong_width(llama):
    with pytest.raises(pellucid.ShapeMismatch, match=r"takes \[..., 36\], not \[2, 7\]"):
        llama.lm.unembed(torch.zeros(2, 7))


def test_weights_by_name_outside_and_inside(llama):
    lm = llama.lm
    weight = lm.weight("unembed")
    hugging_face = llama.reference.lm_head.weight
    assert torch.equal(weight if weight.shape == hugging_face.shape else weight.T, hugging_face)
    q = lm.weight("blocks.1.attn.q")
    assert q.shape == (9, 4, 36)
    close(q.flatten(0, 1), llama.reference.model.layers[1].self_attn.q_proj.weight.detach())
    with lm.trace(IDS) as t:
        product = t.save(lm.blocks[1].attn.input @ lm.weight("blocks.1.attn.q").flatten(0, 1).T)
        queries = t.save(lm.blocks[1].attn.q)
    close(product, queries.flatten(2))
    with pytest.raises(pellucid.NotFound, match=r"attn\.q"):
        lm.weight("blocks.1.attn.qq")
    lm.weight("blocks.1.attn.q").zero_()
    assert lm.weight("blocks.1.attn.q").abs().sum() > 0


def test_nll_is_cross_entropy(tiny):
    with tiny.lm.trace(IDS) as t:
        nll = t.save(t.nll())
    logits = tiny.sites(IDS)["logits"]
    expected = nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), torch.tensor(IDS)[:, 1:], reduction="none"
    )
    close(nll, expected)


# -- local callbacks ----------------------------------------------------------------------------------


def test_call_runs_local_python_when_the_pass_is_there(llama):
    lm = llama.lm
    seen = []

    def look(a):
        seen.append(a.clone())
        return torch.from_numpy(a.numpy() * 2)

    with lm.trace(IDS) as t:
        h = lm.blocks[1].resid_post
        doubled = t.call(look, h[:, -1], like=torch.empty(2, 36, dtype=torch.float64))
        h[:, -1] = doubled
        plain = t.save(lm.blocks[1].resid_post)
    assert len(seen) == 1
    assert torch.equal(plain[:, -1], seen[0] * 2)


def test_what_a_callback_raises_arrives(llama):
    def fail(a):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), llama.lm.trace(IDS) as t:
        t.call(fail, llama.lm.logits, like=torch.empty(1)).save()


def test_a_callback_that_returns_the_wrong_shape_is_an_error(llama):
    with (
        pytest.raises(
            pellucid.ShapeMismatch, match=r"returned \[2, 5, 300\] float64, like= says \[1\]"
        ),
        llama.lm.trace(IDS) as t,
    ):
        t.call(lambda a: a, llama.lm.logits, like=torch.empty(1)).save()


def test_the_model_cannot_be_used_inside_its_own_callback(llama):
    with (
        pytest.raises(pellucid.InvalidArgument, match="inside a function that it calls itself"),
        llama.lm.trace(IDS) as t,
    ):
        t.call(lambda a: llama.lm.unembed(a), llama.lm.embed, like=torch.empty(2, 5, 300)).save()


def test_print_shows_numbers_when_the_pass_is_there(llama, capsys):
    with llama.lm.trace(IDS) as t:
        t.print("norm", llama.lm.blocks[0].resid_post.norm())
        assert capsys.readouterr().out == ""
        llama.lm.logits.save()
    out = capsys.readouterr().out
    assert out.startswith("test_trace.py:")
    assert "norm tensor(" in out


# -- prompts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["the cat", "the cat sat on"], r"these have \d+ and \d+ tokens"),
        ([], "the list of prompts is empty"),
        ("", "an empty prompt"),
        (3, "a prompt is text, a list of texts"),
        ([1.5], "a prompt is text"),
        (["a", 3], "mixes texts and token ids"),
        (torch.zeros(2, 2), "token ids are integers, not float32"),
        (torch.zeros(2, 2, 2, dtype=torch.long), r"is \[seq\] or \[batch, seq\], not \[2, 2, 2\]"),
    ],
)
def test_a_bad_prompt_is_refused_with_a_sentence(llama, prompt, message):
    with pytest.raises(pellucid.InvalidArgument, match=message):
        llama.lm.trace(prompt)


def test_unequal_lengths_name_both_and_the_two_ways(llama):
    with pytest.raises(pellucid.InvalidArgument, match=r"one t.prompt.*lm.map"):
        llama.lm.trace([[1], [1, 2, 3, 4]])


def test_ids_outside_the_vocabulary_and_long_prompts_are_refused(llama):
    lm = llama.lm
    with pytest.raises(pellucid.InvalidArgument, match="300"), lm.trace([5, 300]) as t:
        t.save(lm.logits)
    with pytest.raises(pellucid.InvalidArgument, match=r"(65.*64|64.*65)"), lm.trace([5] * 65) as t:
        t.save(lm.logits)


def test_unknown_arguments_are_errors(llama):
    # nnsight 563.
    for call in (
        lambda: llama.lm.trace(IDS, temprature=1.0),
        lambda: llama.lm.generate([1], max_tokens=3),
        lambda: pellucid.load("smollm2", dtyp=torch.float32),
        lambda: llama.lm.cache(IDS, "embed", att=1),
    ):
        with pytest.raises(TypeError, match="unexpected keyword"):
            call()


def test_what_is_not_there_yet_says_so(llama):
    with pytest.raises(pellucid.Unsupported, match="path='fast'"):
        pellucid.load("smollm2", path="fast")
    with pytest.raises(pellucid.Unsupported, match="gradients"), llama.lm.trace(IDS):  # noqa: PT012
        llama.lm.logits.sum().backward()


def test_positions_of_text(llama):
    lm = llama.lm
    with lm.trace("the cat sat on the mat") as t:
        assert t.tokens == lm.tokenizer.encode("the cat sat on the mat")
        where = t.span("cat")
        assert "cat" in lm.tokenizer.decode(t.tokens[where])
        assert t.span("the", nth=1).start > t.span("the", nth=0).start
        with pytest.raises(pellucid.InvalidArgument, match="occurs 2 times"):
            t.span("the")
        with pytest.raises(pellucid.NotFound, match="'dog' does not occur"):
            t.at("dog")
        lm.logits.save()


def test_info_says_what_a_result_depends_on(llama):
    with llama.lm.trace(IDS, seed=3, max_new_tokens=1) as t:
        llama.lm.logits.save()
    assert t.info["path"] == "exact"
    assert t.info["dtype"] == "float64"
    assert t.info["seed"] == [3]
    assert t.info["versions"]["torch"] == torch.__version__
    assert t.info["hash"]


# -- memory -------------------------------------------------------------------------------------------


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_thousand_traces_leave_nothing_behind(llama):
    # nnsight 169, 538.
    lm = llama.lm

    def some(count):
        for _ in range(count):
            with lm.trace(IDS) as t:
                lm.blocks[1].resid_post[:, -1] += V
                t.save(lm.logits)

    some(200)
    gc.collect()
    before = resident_bytes()
    some(1000)
    gc.collect()
    assert resident_bytes() - before < 5_000_000


# -- constants that change ----------------------------------------------------------------------------


def test_a_constant_that_changes_before_its_next_use_is_refused_with_both_lines(llama):
    lm = llama.lm
    v = torch.ones(36, dtype=torch.float64)
    with pytest.raises(pellucid.InvalidArgument) as caught:  # noqa: PT012, SIM117
        with lm.trace(IDS) as t:
            h = lm.blocks[1].resid_post
            t.save(h + v)
            first = inspect.currentframe().f_lineno - 1
            v += 1
            second = inspect.currentframe().f_lineno + 1
            t.save(h + v)
    assert f"changed after test_trace.py:{first} used it" in caught.value.what
    assert "constants are read when the block ends" in caught.value.what
    assert "v.clone()" in caught.value.hint
    assert caught.value.where == f"test_trace.py:{second}"


@pytest.mark.parametrize(
    "change",
    [lambda v: v.normal_(), lambda v: v[1:].zero_(), lambda v: v.detach().mul_(2)],
    ids=["itself", "a view of it", "what it was detached to"],
)
def test_a_constant_that_changes_before_the_block_ends_is_refused(llama, change):
    lm = llama.lm
    v = torch.ones(36, dtype=torch.float64)
    with pytest.raises(pellucid.InvalidArgument, match="constants are read when the block ends"):  # noqa: PT012, SIM117
        with lm.trace(IDS):
            total = (lm.blocks[1].resid_post + v).save()
            change(v)
    with pytest.raises(pellucid.NotSaved, match="nothing ran"):
        total.sum()


def test_noise_that_is_drawn_anew_for_each_row_is_copied_or_refused(llama):
    lm = llama.lm
    noise = torch.zeros(36, dtype=torch.float64)

    def rows(copy):
        saved = []
        with lm.trace() as t:
            for number in range(3):
                noise.fill_(number)
                with t.prompt(IDS):
                    saved.append(t.save(lm.embed + (noise.clone() if copy else noise)))
        return saved

    with pytest.raises(pellucid.InvalidArgument, match="constants are read when the block ends"):
        rows(copy=False)
    a, b, c = rows(copy=True)
    close(b - a, torch.ones_like(a))
    close(c - b, torch.ones_like(a))


def test_a_constant_of_a_mapped_program_may_not_change_between_its_prompts(llama):
    lm = llama.lm
    noise = torch.zeros(36, dtype=torch.float64)

    @pellucid.program
    def noisy(lm, t):
        noise.add_(1)
        return lm.embed + noise

    with pytest.raises(pellucid.InvalidArgument, match="constants are read when the block ends"):
        lm.map(noisy, IDS)


def test_a_constant_may_change_before_its_first_use_and_after_the_block(llama):
    lm = llama.lm
    v = torch.ones(36, dtype=torch.float64)
    results = []
    for _ in range(2):
        with lm.trace(IDS) as t:
            h = lm.embed
            v += 1
            results.append(t.save(h + v))
        v += 1
    close(results[1] - results[0], torch.full_like(results[0], 2))


# -- names and errors ---------------------------------------------------------------------------------


def test_automatic_names_skip_those_that_were_given(llama):
    lm = llama.lm
    with lm.trace(IDS) as t:
        t.save(lm.embed, "saved_1")
        t.save(lm.blocks[0].resid_post, "deep.0")
        logits = t.save(lm.logits)
        other = t.save(lm.blocks[1].resid_post)
        deep = t.save([lm.blocks[2].resid_post, lm.blocks[2].resid_pre], "deep")
    assert list(t.saved) == ["saved_1", "deep.0", "saved_0", "saved_2", "deep.1", "deep.2"]
    assert t.saved["saved_0"] is logits
    assert t.saved["saved_2"] is other
    assert t.saved["deep.1"] is deep[0]


def test_thousands_of_saves_of_one_name_take_no_time_that_grows(llama):
    lm = llama.lm
    with lm.trace(IDS) as t:
        h = lm.embed
        parts = t.save([h[0, 0, i % 36] for i in range(3000)], "part")
    assert len(t.saved) == 3000
    assert t.saved["part.2999"] is parts[2999]


def test_a_step_that_did_not_happen_is_told_once_and_in_a_sentence(llama):
    lm = llama.lm
    with lm.trace(IDS[0], max_new_tokens=4) as t:
        for _ in t.steps[:1]:
            lm.logits[:, -1, 2] = 1e6
        for _ in t.steps[2:3]:
            h = (lm.embed * 2).save()
            line = inspect.currentframe().f_lineno - 1
    with pytest.raises(pellucid.NotSaved) as caught:
        h.sum()
    assert caught.value.what == f"the value of test_trace.py:{line} has no numbers"
    assert caught.value.hint.startswith("its step did not happen: every row had ended before")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (torch.empty(0, 3, dtype=torch.long), r"of shape \[0, 3\] has no rows"),
        ([[]], "prompt 0 of the list is empty"),
        ([[1, 2], []], "prompt 1 of the list is empty"),
        ([["a", "b"]], "prompt 0 of the list is a list of prompts itself"),
        ([torch.zeros(2, 3, dtype=torch.long)], "prompt 0 of the list is a list of prompts itself"),
    ],
)
def test_lists_of_nothing_and_lists_of_lists_are_named(llama, prompt, message):
    with pytest.raises(pellucid.InvalidArgument, match=message):
        llama.lm.trace(prompt)


@pytest.mark.parametrize("at", [3, -4, [0, 3]])
def test_a_position_that_a_prompt_of_a_cache_does_not_have_names_the_prompt(llama, at):
    lm = llama.lm
    short = lm.tokenizer.encode("the cat")
    assert len(short) == 3
    position = at if isinstance(at, int) else 3
    with pytest.raises(pellucid.InvalidArgument) as caught:
        lm.cache([[*short] * 2, short], "embed", at=at)
    assert caught.value.what == f"at={position}: prompt 1, 'the cat', has 3 tokens"
    assert lm.cache([[*short] * 2, short], "embed", at=-2).shape == (2, 36)
