"""The experiments of the language, typed as people type them, on a tiny model, against transformers."""
# ruff: noqa: E741  (l: layer, as people type it)

import pellucid as pl
import pytest
import torch
from torch import nn

D = 36
CLEAN = [[5, 17, 33, 2, 90, 41], [7, 7, 250, 31, 4, 9]]
CORRUPT = [[5, 17, 33, 8, 90, 41], [7, 7, 250, 99, 4, 9]]
A, B = torch.tensor([11, 12]), torch.tensor([13, 14])


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def ld_of(logits):
    last = logits[:, -1]
    return (last.gather(1, A[:, None]) - last.gather(1, B[:, None])).mean()


def test_e1_activation_patching_residual_by_position(llama):
    lm = llama.lm

    def ld():
        return ld_of(lm.logits)

    with lm.trace() as t:
        with t.prompt(CORRUPT):
            src = [b.resid_pre for b in lm.blocks]
        cell = {}
        for l, b in enumerate(lm.blocks):
            for p in range(6):
                with t.prompt(CLEAN):
                    b.resid_pre[:, p] = src[l][:, p]
                    cell[l, p] = t.save(ld())
    grid = torch.tensor([[cell[l, p] for p in range(6)] for l in range(3)], dtype=torch.float64)
    source = llama.sites(CORRUPT)
    for l in range(3):
        for p in range(6):

            def patch(h, l=l, p=p):
                h = h.clone()
                h[:, p] = source[f"blocks.{l}.resid_pre"][:, p]
                return h

            expected = llama.sites(CLEAN, {f"blocks.{l}.resid_pre": patch})["logits"]
            close(grid[l, p], ld_of(expected))
    assert torch.equal(grid[:, 0], grid[0, :1].expand(3))  # the same tokens there


def test_e2_path_patching(llama):
    lm = llama.lm
    clean, corrupt = llama.sites(CLEAN), llama.sites(CORRUPT)
    width = lm.info["head_width"]

    def head(sites):
        z = sites["blocks.0.attn.z"]
        return z.unflatten(-1, (-1, width)) if z.dim() == 3 else z

    frozen = {
        f"blocks.{i}.mlp.out": (lambda _, i=i: clean[f"blocks.{i}.mlp.out"]) for i in range(3)
    }
    frozen |= {f"blocks.{i}.attn.z": (lambda _, i=i: clean[f"blocks.{i}.attn.z"]) for i in (1, 2)}

    def swap(z):
        new = (z.unflatten(-1, (-1, width)) if z.dim() == 3 else z).clone()
        new[:, :, 3] = head(corrupt)[:, :, 3]
        return new.view_as(z)

    sent = llama.sites(CLEAN, {**frozen, "blocks.0.attn.z": swap})["blocks.2.attn.q_resid"][:, :, 6]

    def receive(h):
        h = h.clone()
        h[:, :, 6] = sent
        return h

    expected = ld_of(llama.sites(CLEAN, {"blocks.2.attn.q_resid": receive})["logits"])
    with lm.trace() as t:
        with t.prompt(CORRUPT):
            dirty = lm.blocks[0].attn.z[:, :, 3]
        with t.prompt(CLEAN):
            z, m = [b.attn.z for b in lm.blocks], [b.mlp.out for b in lm.blocks]
        with t.prompt(CLEAN):
            for b, zb, mb in zip(lm.blocks, z, m, strict=True):
                b.attn.z, b.mlp.out = zb, mb
            lm.blocks[0].attn.z[:, :, 3] = dirty
            q = lm.blocks[2].attn.q_resid[:, :, 6]
        with t.prompt(CLEAN):
            lm.blocks[2].attn.q_resid[:, :, 6] = q
            out = ld_of(lm.logits).save()
    close(out, expected)


def test_e4_steering(llama):
    lm = llama.lm
    happy, sad = [[1, 2, 3], [4, 5]], [[6, 7], [8, 9, 10, 11]]
    site = "blocks.1.resid_post"
    v = lm.cache(happy, site, at=-1).mean(0) - lm.cache(sad, site, at=-1).mean(0)

    def last(rows):
        return torch.stack([llama.sites([row])[site][0, -1] for row in rows]).mean(0)

    close(v, last(happy) - last(sad))
    with lm.trace(CLEAN) as t:
        lm.blocks[1].resid_post += 4.0 * v
        logits = t.save(lm.logits)
    close(logits, llama.sites(CLEAN, {site: lambda h: h + 4.0 * v})["logits"])


def test_e7_cache_in_memory(llama):
    prompts = [row[:n] for row, n in zip(CLEAN * 3, (6, 5, 4, 6, 5, 4), strict=True)]
    small = llama.lm.cache(prompts, "blocks.*.attn.z", at=slice(-4, None))
    assert small.stack("attn.z").shape == (3, 6, 4, 9, 4)
    for i, row in enumerate(prompts):
        expected = llama.sites([row])["blocks.1.attn.z"][0, -4:]
        close(small["blocks.1.attn.z"][i].flatten(1), expected.flatten(1))


def test_e8_logit_lens(llama):
    lm = llama.lm
    with lm.trace(CLEAN):
        lens = torch.stack([lm.unembed(lm.ln_final(b.resid_post))[:, -1] for b in lm.blocks]).save()
    assert lens.shape == (3, 2, 300)
    sites = llama.sites(CLEAN)
    model = llama.reference
    for i in range(3):
        h = sites[f"blocks.{i}.resid_post"][:, -1]
        scale = (h.pow(2).mean(-1, keepdim=True) + model.model.norm.variance_epsilon).sqrt()
        close(lens[i], (h / scale * model.model.norm.weight) @ model.lm_head.weight.T)


def test_e9_causal_tracing(llama):
    lm = llama.lm
    noise = torch.randn(3, 1, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    prompt, ans = CLEAN[0], 77
    sites = llama.sites([prompt])
    with lm.trace() as t:
        with t.prompt(prompt) as c:
            clean = [b.mlp.out for b in lm.blocks]
            subj = slice(1, 3)
        grid = {}
        for l in range(2):
            for p in range(len(c.tokens)):
                with t.prompt([prompt] * 3):
                    lm.embed[:, subj] += noise
                    for j in range(l, l + 2):
                        lm.blocks[j].mlp.out[:, p] = clean[j][:, p]
                    grid[l, p] = lm.logits[:, -1].softmax(-1)[:, ans].mean().save()

    def embed(h):
        h = h.clone()
        h[:, subj] += noise
        return h

    for (l, p), value in grid.items():

        def restore(h, j, p=p):
            h = h.clone()
            h[:, p] = sites[f"blocks.{j}.mlp.out"][:, p]
            return h

        edits = {f"blocks.{j}.mlp.out": (lambda h, j=j: restore(h, j)) for j in range(l, l + 2)}
        logits = llama.sites([prompt] * 3, {"embed": embed, **edits})["logits"]
        close(value, logits[:, -1].softmax(-1)[:, ans].mean())


def test_e11_intervention_while_generating(llama):
    lm = llama.lm
    v = torch.linspace(-3, 3, D, dtype=torch.float64)
    prompt, norms = CLEAN[0], []
    with lm.trace(prompt, max_new_tokens=5, seed=0, stop_at_eos=False) as t:
        lm.blocks[0].resid_post[:, -1] += v  # step 0: the prompt's pass only
        with t.steps[1:] as s:
            lm.blocks[1].resid_post += 0.5 * v
            p = s.save(lm.logits.softmax(-1).max(-1).values)
        for _ in t.steps[:3]:
            norms.append(lm.blocks[2].resid_post.norm().save())

    def first(h):
        h = h.clone()
        h[:, 5] += v
        return h

    def later(h):
        h = h.clone()
        h[:, 6:] += 0.5 * v
        return h

    sites = llama.sites(
        [prompt + t.tokens[:-1]], {"blocks.0.resid_post": first, "blocks.1.resid_post": later}
    )
    assert t.tokens == sites["logits"][0, 5:].argmax(-1).tolist()
    assert (t.steps_run, p.shape) == (5, (4, 1, 1))
    close(p[:, 0, 0], sites["logits"][0, 6:].softmax(-1).max(-1).values)
    last = sites["blocks.2.resid_post"][0]
    close(torch.stack(norms), torch.stack([last[:6].norm(), last[6].norm(), last[7].norm()]))


def test_e12_many_prompts_at_once(llama):
    with pytest.raises(pl.InvalidArgument, match=r"1 and 4 tokens.*lm.map"):
        llama.lm.trace([[1], [1, 2, 3, 4]])

    @pl.program
    def last(lm, t):
        return lm.logits[:, -1]

    outs = llama.lm.map(last, [[1], [1, 2, 3, 4]], batch_tokens=8192)
    for out, row in zip(outs, ([1], [1, 2, 3, 4]), strict=True):
        close(out, llama.sites([row])["logits"][:, -1])


def test_e13_my_own_modules_in_the_loop(llama):
    lm = llama.lm
    torch.manual_seed(0)
    gate = nn.Sequential(nn.Linear(D, 1), nn.Sigmoid()).double().eval()
    adapter = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, D)).double().eval()
    data = torch.randn(20, D, dtype=torch.float64)
    with lm.trace(CLEAN) as t:
        h = lm.blocks[1].resid_post
        h[:] = h + gate(h) * adapter(h)
        near = t.call(
            lambda a: torch.cdist(a, data).topk(4, largest=False).indices,
            h[:, -1],
            like=torch.empty(2, 4, dtype=torch.long),
        ).save()
        logits = t.save(lm.logits)
    with torch.no_grad():
        plain = llama.sites(CLEAN)["blocks.1.resid_post"]
        new = plain + gate(plain) * adapter(plain)
    close(logits, llama.sites(CLEAN, {"blocks.1.resid_post": lambda _: new})["logits"])
    assert torch.equal(near, torch.cdist(new[:, -1], data).topk(4, largest=False).indices)


def test_e14_control_that_depends_on_values(llama):
    lm = llama.lm
    norms = [float(llama.sites(CLEAN)[f"blocks.{i}.resid_post"].norm()) for i in range(3)]
    seen = []
    with lm.trace(CLEAN, eager=True):
        for b in lm.blocks:
            n = b.resid_post.norm().item()
            seen.append(n)
            if n > norms[1] - 1e-6:
                break
    assert seen == pytest.approx(norms[: len(seen)])
    refusal = torch.linspace(0, 1, D, dtype=torch.float64)
    with lm.trace(CLEAN[0], max_new_tokens=3, stop_at_eos=False) as t, t.steps[:]:
        h = lm.blocks[1].resid_post
        s = h[:, -1] @ refusal
        h -= torch.where(s > 0, s, 0.0)[:, None, None] * refusal

    ids = list(CLEAN[0])
    edited: list[torch.Tensor] = []
    for step in range(3):
        past = torch.cat(edited) if edited else torch.zeros(0, D, dtype=torch.float64)

        def edit(h, past=past, step=step):
            h = h.clone()
            h[0, : len(past)] = past
            s = h[0, -1] @ refusal
            h[0, len(past) :] -= torch.where(s > 0, s, 0.0) * refusal
            edited.append(h[0, len(past) :])
            return h

        ids.append(int(llama.sites([ids], {"blocks.1.resid_post": edit})["logits"][0, -1].argmax()))
    assert t.tokens == ids[6:]
