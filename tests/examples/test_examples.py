"""Every example gives the right values: published ones, or those that transformers gives with plain forward hooks."""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
from collections.abc import Callable, Iterator

import pellucid as pl
import pytest
import torch
import transformers

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
MODELS = pathlib.Path(os.environ.get("PELLUCID_MODELS", "~/.cache/pellucid/models")).expanduser()
Tensor = torch.Tensor
Hook = Callable[[Tensor], Tensor | None]

TESTED = {
    "e01_activation_patching", "e02_path_patching", "e04_steering", "e07_cache", "e08_logit_lens", "e09_causal_tracing",
    "e11_generate", "e12_map", "e13_own_module", "e14_eager", "first_light", "induction",
}  # fmt: skip
SHARED = {"ioi"}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def lm() -> pl.LM:
    if not any(MODELS.glob("smollm2*")):
        pytest.skip(f"no SmolLM2 in {MODELS}: ./dev setup fetches it")
    return pl.load("smollm2")


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    folder = MODELS / "smollm2-135m-f32"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: tools/make_reference_model.py makes it")
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@pytest.fixture
def example(monkeypatch):
    """Imports an example by name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED | SHARED


# -- the reference --------------------------------------------------------------------------------


@contextlib.contextmanager
def hooked(inputs: dict | None = None, outputs: dict | None = None) -> Iterator[None]:
    """Functions of modules' inputs and outputs, for a while; what they return, if anything, goes on instead."""

    def first(value):
        return value[0] if isinstance(value, tuple) else value

    def before(function: Hook):
        def hook(_, args):
            new = function(args[0])
            return None if new is None else (new, *args[1:])

        return hook

    def after(function: Hook):
        def hook(_, args, output):
            new = function(first(output))
            return (
                output if new is None else (new, *output[1:]) if isinstance(output, tuple) else new
            )

        return hook

    handles = [module.register_forward_pre_hook(before(f)) for module, f in (inputs or {}).items()]
    handles += [module.register_forward_hook(after(f)) for module, f in (outputs or {}).items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def keep(into: dict, key: object) -> Hook:
    return lambda x: into.update({key: x.clone()})


def tokens(lm: pl.LM, prompts: str | list[str]) -> Tensor:
    return torch.tensor(
        [lm.tokenizer.encode(p) for p in ([prompts] if isinstance(prompts, str) else prompts)]
    )


@torch.no_grad()
def logits_of(model: torch.nn.Module, ids: Tensor) -> Tensor:
    return model(ids, use_cache=False).logits


def resid_post(model: torch.nn.Module, ids: Tensor) -> list[Tensor]:
    """After each block; transformers' own hidden_states end after the last norm."""
    found: dict = {}
    with hooked(outputs={layer: keep(found, i) for i, layer in enumerate(model.model.layers)}):
        logits_of(model, ids)
    return [found[i] for i in range(len(found))]


def edited(x: Tensor, index: object, value: Tensor) -> Tensor:
    x = x.clone()
    x[index] = value
    return x


def rounded(value: float, places: int = 4) -> object:
    """Equal to a value that was printed with so many places."""
    return pytest.approx(value, abs=max(2e-4, 0.6 * 10**-places), rel=1e-5)


# -- the examples -----------------------------------------------------------------------------------


def test_first_light(lm, example):
    result = example("first_light").main(lm)
    assert [name for name, _ in result["before"]] == [" Paris", " the", " London"]
    assert [value for _, value in result["before"]] == [
        rounded(v) for v in (17.3713, 14.8886, 13.2450)
    ]
    assert result["after"][0] == (" Rome", rounded(16.716, 3))


def test_activation_patching(lm, example):
    layers = [18, 20, 22, 24, 28]
    grid = example("e01_activation_patching").main(lm, layers)
    assert grid.shape == (5, 14)
    assert grid[:, 9].tolist() == [rounded(v, 3) for v in (1.006, 0.884, 0.447, 0.026, 0.001)]
    assert grid[:, 13].tolist() == [rounded(v, 3) for v in (-0.005, 0.088, 0.511, 0.885, 0.913)]
    others = [p for p in range(14) if p not in (9, 13)]
    assert grid[:, others].max() < 0.0985
    assert torch.equal(grid[:, :9], torch.zeros(5, 9))  # the prompts are the same up to there


@pytest.mark.parametrize(
    "sender, receiver, effect", [((20, 0), (23, 3), 0.0828), ((7, 3), (9, 6), 0.0)]
)
def test_path_patching(lm, model, example, sender, receiver, effect):
    got = example("e02_path_patching").main(lm, sender, receiver)
    task = example("ioi").Task(lm)
    clean, corrupt = tokens(lm, task.clean), tokens(lm, task.corrupt)
    layers = model.model.layers
    z, m, seen = {}, {}, {}
    from_layer, to_layer = layers[sender[0]], layers[receiver[0]]
    sent, asked = (slice(64 * head, 64 * head + 64) for _, head in (sender, receiver))

    def difference(logits: Tensor) -> float:
        last, rows = logits[:, -1], torch.arange(8)
        return (last[rows, task.answer_ids] - last[rows, task.other_ids]).mean().item()

    with hooked({from_layer.self_attn.o_proj: keep(z, "dirty")}):
        logits_of(model, corrupt)
    with hooked(
        {layer.self_attn.o_proj: keep(z, i) for i, layer in enumerate(layers)},
        {layer.mlp: keep(m, i) for i, layer in enumerate(layers)},
    ):
        want_clean = difference(logits_of(model, clean))
    z[sender[0]][..., sent] = z["dirty"][..., sent]
    with hooked(
        {layer.self_attn.o_proj: lambda _, i=i: z[i] for i, layer in enumerate(layers)}
        | {to_layer: keep(seen, "resid")},
        {layer.mlp: lambda _, i=i: m[i] for i, layer in enumerate(layers)},
    ):
        logits_of(model, clean)
    q_proj = to_layer.self_attn.q_proj
    with torch.no_grad():
        query = q_proj(to_layer.input_layernorm(seen["resid"]))[..., asked]
    with hooked(outputs={q_proj: lambda q: edited(q, (..., asked), query)}):
        want = difference(logits_of(model, clean))
    assert got == {"clean": rounded(want_clean), "patched": rounded(want)}
    assert got["clean"] == rounded(5.18)
    assert got["patched"] - got["clean"] == pytest.approx(effect, abs=2e-4)


def greedy(model: torch.nn.Module, ids: Tensor, count: int) -> Tensor:
    for _ in range(count):
        ids = torch.cat([ids, logits_of(model, ids)[:, -1:].argmax(-1)], 1)
    return ids


def test_steering(lm, model, example):
    module = example("e04_steering")
    got = module.main(lm)

    def last(prompts: list[str]) -> Tensor:
        return torch.stack([resid_post(model, tokens(lm, p))[10][0, -1] for p in prompts])

    v = last(module.HAPPY).mean(0) - last(module.SAD).mean(0)
    ids = tokens(lm, "Today I feel")
    for scale in (-1.0, 0.0, 1.0):
        with hooked(outputs={model.model.layers[10]: lambda h, scale=scale: h + scale * v}):
            want = greedy(model, ids, 12)[0, ids.shape[1] :]
        assert got[scale].startswith(lm.tokenizer.decode(want.tolist())), scale
    assert "stuck" in got[-1.0] and "excited" in got[1.0]  # what a reader sees


def test_cache(lm, model, example):
    module = example("e07_cache")
    got = module.main(lm)
    prompts = [f"I took the train to {city}" for city in module.FRANCE + module.ITALY]
    x = torch.stack(
        [torch.stack([h[0, -1] for h in resid_post(model, tokens(lm, p))]) for p in prompts], 1
    )
    assert x.shape == (30, 16, 576)
    france, italy = x[:, 0:8:2].mean(1), x[:, 8:16:2].mean(1)
    side = torch.einsum("lpd,ld->lp", x - ((france + italy) / 2)[:, None], france - italy)
    right = torch.cat([side[:, 1:8:2] > 0, side[:, 9:16:2] < 0], 1)
    assert got == right.float().mean(1).tolist()
    assert max(got) == 1.0


def test_logit_lens(lm, model, example):
    lens = example("e08_logit_lens").main(lm)
    ids = tokens(lm, "The capital of France is")
    with torch.no_grad():
        want = torch.stack(
            [model.lm_head(model.model.norm(h[0, -1])) for h in resid_post(model, ids)]
        )
    torch.testing.assert_close(lens, want, atol=2e-4, rtol=1e-5)
    ranks = (lens > lens[:, lm.id(" Paris"), None]).sum(-1)  # 0: the best
    # After block i is before block i + 1.
    assert {i + 1: ranks[i].item() for i in (23, 24, 26, 27, 28)} == {
        24: 395,
        25: 91,
        27: 33,
        28: 6,
        29: 2,
    }
    assert lens[29].max().item() == rounded(17.3713)


def test_causal_tracing(lm, model, example):
    module = example("e09_causal_tracing")
    got = module.main(lm, layers=[1, 12], samples=3)
    ids = tokens(lm, "The Space Needle is in downtown")
    assert [lm.tokenizer.decode([i]) for i in ids[0].tolist()[1:4]] == [" Space", " Need", "le"]
    layers, answer = model.model.layers, lm.id(" Seattle")
    embed = model.model.embed_tokens
    noise = (
        torch.randn(3, 1, 576, generator=torch.Generator().manual_seed(0)) * embed.weight.std() * 3
    )
    clean: dict = {}
    with hooked(outputs={layer.mlp: keep(clean, i) for i, layer in enumerate(layers)}):
        good = logits_of(model, ids)[0, -1].softmax(-1)[answer].item()

    def probability(restore: dict) -> float:
        noised = {
            embed: lambda x: edited(x, (slice(None), slice(1, 4)), x[:, 1:4] + noise.detach())
        }
        with hooked(outputs=noised | restore):
            return logits_of(model, ids.expand(3, -1))[:, -1].softmax(-1)[:, answer].mean().item()

    assert got["clean"] == pytest.approx(good, rel=1e-4) == pytest.approx(0.056, abs=5e-4)
    assert got["noisy"] == pytest.approx(probability({}), rel=1e-4)
    assert len(got["restored"]) == 2 * ids.shape[1]
    for (layer, position), value in got["restored"].items():
        window = {1: range(0, 4), 12: range(10, 15)}[layer]
        restore = {
            layers[j].mlp: lambda x, j=j: edited(x, (slice(None), position), clean[j][:, position])  # noqa: B023
            for j in window
        }
        assert value == pytest.approx(probability(restore), rel=1e-3), (layer, position)


def test_generate(lm, model, example):
    """Edits by step as edits by position of a full recompute, which a cache must equal."""
    t, p, norms = example("e11_generate").main(lm)
    v = torch.randn(576, generator=torch.Generator().manual_seed(0))
    ids = tokens(lm, "Tell me about Paris.")
    prompt = ids.shape[1]
    layers, want_p, want_norms = model.model.layers, [], []
    found: dict = {}

    def at_10(h: Tensor) -> Tensor:
        return edited(h, (slice(None), prompt - 1), h[:, prompt - 1] + v)

    def at_14(h: Tensor) -> Tensor:
        return torch.cat([h[:, :prompt], h[:, prompt:] + 2.0 * v], 1)

    with hooked(outputs={layers[10]: at_10, layers[14]: at_14, layers[20]: keep(found, 20)}):
        for step in range(12):
            logits = logits_of(model, ids)
            want_p.append(logits[0, -1].softmax(-1).max().item())
            want_norms.append(found[20][:, prompt + step - 1 if step else 0 :].norm().item())
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
    assert t.tokens == ids[0, prompt:].tolist()
    assert t.text == lm.tokenizer.decode(t.tokens)
    assert (t.steps_run, p.shape) == (12, (11, 1, 1))
    assert p.flatten().tolist() == pytest.approx(want_p[1:], rel=1e-4)
    assert [n.item() for n in norms] == pytest.approx(want_norms[:3], rel=1e-5)


def test_map(lm, model, example):
    prompts = ["short", "a rather longer prompt", "The capital of France is"]
    got = example("e12_map").main(lm, prompts)
    want = [logits_of(model, tokens(lm, p))[0, -1].softmax(-1).max().item() for p in prompts]
    assert [x.shape for x in got] == [(1,)] * 3
    assert [x.item() for x in got] == pytest.approx(want, rel=1e-4)
    assert got[2].item() == rounded(0.7725)


def test_own_module(lm, model, example):
    module = example("e13_own_module")
    logits, near = module.main(lm)
    adapter, gate, memory = module.make_modules(576)
    found: dict = {}
    layers = model.model.layers
    with hooked({layers[11]: keep(found, 11)}, {layers[10]: lambda h: h + gate(h) * adapter(h)}):
        want = logits_of(model, tokens(lm, "The capital of France is"))[:, -1]
    torch.testing.assert_close(logits, want, atol=2e-4, rtol=1e-5)
    distances = (found[11][:, -1:] - memory).norm(dim=-1)
    assert near.tolist() == distances.argsort(-1)[:, :4].tolist()


def test_eager(lm, model, example):
    got = example("e14_eager").main(lm)
    want = [
        h[0, -1].norm().item() for h in resid_post(model, tokens(lm, "The capital of France is"))
    ]
    above = next((i for i, norm in enumerate(want) if norm > 600), len(want) - 1)
    assert got == pytest.approx(want[: above + 1], rel=1e-5)
    assert got[:2] == [rounded(35.194, 3), rounded(62.608, 3)]


def test_induction(lm, example):
    module = example("induction")
    got = module.main(lm)
    assert (got["first half"], got["second half"]) == (rounded(12.4612), rounded(1.9010))
    assert module.strongest(got["induction"], 6) == {
        "L18H6": rounded(0.9125), "L17H3": rounded(0.8094), "L17H4": rounded(0.7614),
        "L17H5": rounded(0.7015), "L18H7": rounded(0.6296), "L23H2": rounded(0.5237),
    }  # fmt: skip
    assert module.strongest(got["previous"], 4) == {
        "L16H0": rounded(0.9145), "L11H1": rounded(0.8550), "L2H1": rounded(0.7351), "L19H3": rounded(0.7302),
    }  # fmt: skip
    assert list(got["ablated"].values()) == [
        rounded(v) for v in (3.6587, 9.8851, 7.0935, 1.9105, 1.8866)
    ]
