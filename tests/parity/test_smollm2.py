"""SmolLM2-135M through the public Python package: every site against transformers, and the published reference values.

The quantised GGUF is read in float32 here; transformers reads a folder of the same weights. Both are in PELLUCID_MODELS
(default ~/.cache/pellucid/models). Without `reference`, a number below was made with transformers 5.24.0, float32, explicit
attention; a printed value may be off by 2e-4 or by 1e-5 of itself.
"""

from __future__ import annotations

import copy
import os
import pathlib

import pellucid as pl
import pytest
import reference
import torch
import transformers

MODELS = pathlib.Path(os.environ.get("PELLUCID_MODELS", "~/.cache/pellucid/models")).expanduser()

FRANCE, ITALY = "The capital of France is", "The capital of Italy is"
PROMPTS = [
    FRANCE,
    "a",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Les feuilles mortes se ramassent à la pelle, les souvenirs et les",
    "東京は日本の首都です。大阪は",
    "Съешь же ещё этих мягких французских булок",
    "3.14159265358979 + 271828 = 0x1F, 1,000,000 or 10%",
    "\n\n\t  spaces   and\r\n\r\nlines  ",
    "🙂👩‍👩‍👧 e\u0301 <|im_start|>user\nHi<|im_end|>\n",
    list(range(1000, 9000, 134))[:60],
]
GREEDY = [
    FRANCE,
    "Once upon a time",
    "def add(a, b):",
    "1, 2, 3, 4,",
    "Il était une fois",
    "Dear Sir or Madam,",
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def lm() -> pl.LM:
    if not any(MODELS.glob("smollm2*.gguf")):
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


def rounded(value: float) -> object:
    """Equal to a value that was printed with at most four places."""
    places = len(f"{value!r}".partition(".")[2])
    return pytest.approx(value, abs=max(2e-4, 0.6 * 10**-places), rel=0)


def assert_close(site: str, got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    """Within the tolerance times the largest value of the token, or times 1 where that is less."""
    assert got.shape == want.shape, site
    if not want.is_floating_point():
        assert torch.equal(got, want), site
        return
    hidden = want == -torch.inf  # scores of keys that the query must not see
    assert torch.equal(got == -torch.inf, hidden), site
    got, want = (x.masked_fill(hidden, 0).double() for x in (got, want))
    if site.endswith((".scores", ".pattern")):  # [batch, heads, seq, keys]
        got, want = got.transpose(1, 2), want.transpose(1, 2)
    got, want = got.flatten(2), want.flatten(2)
    allowed = tolerance * want.abs().amax(-1, keepdim=True).clamp(min=1)
    worst = ((got - want).abs() / allowed).max().item()
    assert worst <= 1, f"{site}: {worst:.2f} times what is allowed"


@pytest.fixture(scope="module")
def all_sites(lm: pl.LM) -> list[dict[str, torch.Tensor]]:
    """Every site of every prompt, all of them read in one trace."""
    with lm.trace() as t:
        found = []
        for prompt in PROMPTS:
            with t.prompt(prompt):
                found.append({name: lm[name] for name in lm.sites})
        t.save(found)
    return found


def ids_of(lm: pl.LM, prompt: str | list[int]) -> list[int]:
    return lm.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_every_site_equals_transformers(number, lm, model, all_sites):
    want = reference.reference_sites(model, [ids_of(lm, PROMPTS[number])])
    got = all_sites[number]
    assert set(got) == set(want) == set(lm.sites)
    for site in got:
        # Either float32 is off by 4e-6 of a token's largest logit, compared with the same model in float64.
        assert_close(site, got[site], want[site], 1e-5 if site == "logits" else 1e-4)


def test_every_site_equals_transformers_in_float64(model):
    """What is left of the differences in float32 is rounding: here they are a million times smaller."""
    lm = pl.load("smollm2", dtype=torch.float64)
    ids = [ids_of(lm, FRANCE)]
    exact = copy.deepcopy(model).double()
    with reference.TrueFloat64():
        exact.model.rotary_emb = type(exact.model.rotary_emb)(
            exact.config
        )  # its tables in float64, too
        want = reference.reference_sites(exact, ids)
    with lm.trace(ids) as t:
        got = {name: t.save(lm[name]) for name in lm.sites}
    for site in lm.sites:
        assert_close(site, got[site], want[site], 1e-9)


def test_the_prompts_are_of_many_kinds(lm):
    lengths = [len(ids_of(lm, prompt)) for prompt in PROMPTS]
    assert min(lengths) == 1 and max(lengths) == 60


# -- published values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt, want",
    [
        (
            FRANCE,
            {
                " Paris": 17.3713,
                " the": 14.8886,
                " London": 13.2450,
                " Le": 13.0095,
                " New": 12.9515,
            },
        ),
        (
            "The Eiffel Tower is in the city of",
            {" Paris": 13.6864, " Rome": 10.8295, " Barcelona": 10.6681},
        ),
        ("The Space Needle is in downtown", {" Los": 8.871}),
    ],
)
def test_best_tokens_and_their_logits(lm, prompt, want):
    with lm.trace(prompt) as t:
        top = t.save(lm.logits[0, -1].topk(len(want)))
    assert [lm.tokenizer.decode([i]) for i in top.indices.tolist()] == list(want)
    assert top.values.tolist() == [rounded(value) for value in want.values()]


@pytest.mark.parametrize(
    "prompt, token, logit, probability",
    [
        (FRANCE, " Paris", 17.3713, 0.7725),
        ("The Eiffel Tower is in the city of", " Paris", 13.6864, 0.6562),
        ("The Space Needle is in downtown", " Los", 8.871, 0.158),
        ("The Space Needle is in downtown", " Seattle", 7.8353, 0.056),
    ],
)
def test_logits_and_probabilities(lm, prompt, token, logit, probability):
    with lm.trace(prompt) as t:
        logits = t.save(lm.logits[0, -1])
    assert logits[lm.id(token)].item() == rounded(logit)
    assert logits.softmax(-1)[lm.id(token)].item() == rounded(probability)


def test_ids_and_norms_of_the_residual_stream(lm):
    assert lm.tokenizer.encode(FRANCE) == [504, 3575, 282, 4649, 314]
    with lm.trace(FRANCE) as t:
        norms = t.save(torch.stack([block.resid_post[0, -1].norm() for block in lm.blocks]))
        embed, final = t.save([lm.embed[0, -1].norm(), lm.ln_final.out[0, -1].norm()])
    assert [embed.item(), *norms[:2].tolist()] == [rounded(2.601), rounded(35.194), rounded(62.608)]
    assert norms[28].item() == pytest.approx(666.044, abs=7e-3)
    assert final.item() == rounded(43.8)


def test_rank_of_the_answer_in_the_lens(lm):
    with lm.trace(FRANCE) as t:
        lens = t.save(torch.stack([lm.lens(block.resid_pre)[0, -1] for block in lm.blocks]))
    ranks = (lens > lens[:, lm.id(" Paris"), None]).sum(-1)  # 0: the best
    assert {layer: ranks[layer].item() for layer in (0, 24, 25, 27, 28, 29)} == {
        0: 4315,
        24: 395,
        25: 91,
        27: 33,
        28: 6,
        29: 2,
    }
    assert lm.tokenizer.decode([int(lens[29].argmax())]) == " capital"


@pytest.mark.parametrize(
    "layer, token, logit",
    [
        (0, " Rome", 16.508),
        (10, " Rome", 16.331),
        (15, " Rome", 16.716),
        (20, " Rome", 16.790),
        (25, " Paris", 17.493),
    ],
)
def test_patch_of_france_from_italy(lm, layer, token, logit):
    with lm.trace() as t:
        with t.prompt(ITALY) as italy:
            donor = lm.blocks[layer].resid_pre[:, italy.at(" Italy")]
        with t.prompt(FRANCE) as france:
            lm.blocks[layer].resid_pre[:, france.at(" France")] = donor
            best = t.save(lm.logits[0, -1].max(-1))
    assert (lm.tokenizer.decode([int(best.indices)]), best.values.item()) == (token, rounded(logit))


@pytest.mark.parametrize(
    "layer, token, logit",
    [(15, " Paris", None), (20, " Paris", None), (24, " Rome", 16.435), (27, " Rome", 16.444)],
)
def test_italy_minus_france_added_at_the_end(lm, layer, token, logit):
    with lm.trace() as t:
        with t.prompt(ITALY):
            italy = lm.blocks[layer].resid_pre[:, -1]
        with t.prompt(FRANCE):
            france = lm.blocks[layer].resid_pre[:, -1]
        with t.prompt(FRANCE):
            lm.blocks[layer].resid_pre[:, -1] += italy - france
            best = t.save(lm.logits[0, -1].max(-1))
    assert lm.tokenizer.decode([int(best.indices)]) == token
    if logit is not None:
        assert best.values.item() == rounded(logit)


# -- induction --------------------------------------------------------------------------------------


def induction_ids() -> torch.Tensor:
    """Four rows of fifty random ids, each repeated once: [4, 100]."""
    x, drawn = 12345, []
    for _ in range(200):
        x = (1103515245 * x + 12345) % 2**31
        drawn.append(1000 + (x >> 8) % 9000)
    assert drawn[:4] == [6830, 1967, 1980, 5638]
    return torch.tensor(drawn).view(4, 50).repeat(1, 2)


INDUCTION_HEADS = [(18, 6), (17, 3), (17, 4), (17, 5), (18, 7)]
ABLATIONS = {
    "strongest induction head": ([(18, 6)], 3.6587),
    "five induction heads": (INDUCTION_HEADS, 9.8851),
    "previous-token head": ([(16, 0)], 7.0935),
    "control 0.0": ([(0, 0)], 1.9105),
    "control 5.5": ([(5, 5)], 1.8866),
}


def test_induction_heads_and_what_their_ablation_costs(lm):
    ids = induction_ids()
    with lm.trace() as t:
        with t.prompt(ids) as clean:
            patterns = [block.attn.pattern for block in lm.blocks]
            induction, previous = t.save(
                [
                    torch.stack([p.diagonal(offset, 2, 3).mean((0, 2)) for p in patterns])
                    for offset in (-49, -1)
                ]
            )
            nll = t.save(t.nll())
        after = {}
        for name, (heads, _) in ABLATIONS.items():
            with t.prompt(ids):
                for layer, head in sorted(heads):  # in the order of the forward pass
                    lm.blocks[layer].attn.z[:, :, head] = 0
                after[name] = t.save(t.nll()[:, 50:].mean())
    del clean
    assert nll.shape == (4, 99)
    assert nll[:, :49].mean().item() == rounded(12.4612)
    assert nll[:, 50:].mean().item() == rounded(1.9010)
    want = dict(zip([*INDUCTION_HEADS, (23, 2)], [0.9125, 0.8094, 0.7614, 0.7015, 0.6296, 0.5237]))
    assert_heads(induction, want)
    assert_heads(previous, {(16, 0): 0.9145, (11, 1): 0.8550, (2, 1): 0.7351, (19, 3): 0.7302})
    assert {name: value.item() for name, value in after.items()} == {
        name: rounded(value) for name, (_, value) in ABLATIONS.items()
    }


def assert_heads(scores: torch.Tensor, want: dict[tuple[int, int], float]) -> None:
    """The best heads of scores [layers, heads], in order, with their scores."""
    best = scores.flatten().topk(len(want))
    assert [divmod(i, scores.shape[1]) for i in best.indices.tolist()] == list(want)
    assert best.values.tolist() == [rounded(value) for value in want.values()]


# -- the indirect object ------------------------------------------------------------------------------

TEMPLATES = [
    ("When John and Mary went to the shops,{} gave the bag to", " Mary", " John"),
    ("When Tom and James went to the park,{} gave the ball to", " Tom", " James"),
    ("When Dan and Sid went to the shops,{} gave an apple to", " Dan", " Sid"),
    ("After Martin and Amy went to the park,{} gave a drink to", " Martin", " Amy"),
]
PAIRS = [pair for _, a, b in TEMPLATES for pair in ((a, b), (b, a))]
CLEAN = [TEMPLATES[i // 2][0].format(other) for i, (_, other) in enumerate(PAIRS)]
CORRUPT = [CLEAN[i ^ 1] for i in range(8)]


def differences(lm: pl.LM) -> torch.Tensor:
    """Logit of the indirect object minus the subject's: [8]."""
    answers, others = (lm.id([pair[side] for pair in PAIRS]) for side in (0, 1))
    logits = lm.logits[:, -1]
    return (logits.gather(1, answers[:, None]) - logits.gather(1, others[:, None]))[:, 0]


def test_indirect_object_differences_of_every_prompt(lm):
    with lm.trace() as t:
        with t.prompt(CLEAN) as c:
            clean = t.save(differences(lm))
            assert c.seq == 14
        with t.prompt(CORRUPT):
            corrupt = t.save(differences(lm))
    want = [3.1214, 4.1569, 4.3959, 3.5315, 5.2766, 3.9911, 5.2203, 11.7461]
    assert clean.tolist() == [rounded(value) for value in want]
    assert (clean.mean().item(), corrupt.mean().item()) == (rounded(5.18), rounded(-5.18))


def test_direct_logit_attributions(lm):
    """What each component adds to the difference, the last norm's scale being given; together they are the difference."""
    unembed, norm = lm.weight("unembed"), lm.weight("ln_final")
    answers, others = (lm.id([pair[side] for pair in PAIRS]) for side in (0, 1))
    direction = (unembed[answers] - unembed[others]) * norm  # [8, d_model]
    with lm.trace(CLEAN) as t:
        to = direction / lm.ln_final.scale[:, -1]

        def attribution(x):
            return (x * to).sum(-1).mean()

        per_block = torch.stack(
            [
                torch.stack([attribution(b.attn.delta[:, -1]), attribution(b.mlp.delta[:, -1])])
                for b in lm.blocks
            ]
        )
        heads = torch.stack(
            [(b.attn.result[:, -1] * to[:, None]).sum(-1).mean(0) for b in lm.blocks]
        )
        embed, whole = attribution(lm.embed[:, -1]), differences(lm).mean()
        t.save([per_block, heads, embed, whole])
    assert whole.item() == rounded(5.18)
    assert (embed + per_block.sum()).item() == pytest.approx(5.17997, abs=5e-5)
    torch.testing.assert_close(heads.sum(1), per_block[:, 0], rtol=1e-4, atol=1e-4)
    assert per_block[23, 0].item() == rounded(4.818)
    assert per_block[24, 0].item() == rounded(-1.553)
    assert per_block[29, 1].item() == rounded(0.588)
    assert_heads(heads, {(23, 3): 2.462, (29, 1): 1.348, (23, 0): 0.885})
    assert_heads(-heads, {(24, 4): 1.057, (29, 0): 1.057})


@pytest.mark.parametrize(
    "layer, subject, end",
    [
        (18, 1.006, -0.005),
        (20, 0.884, 0.088),
        (22, 0.447, 0.511),
        (24, 0.026, 0.885),
        (28, 0.001, 0.913),
    ],
)
def test_indirect_object_patching(lm, layer, subject, end):
    """Positions 9 (the second name) and 13 (the end) carry the answer, one after the other; position 1 never."""
    with lm.trace() as t:
        with t.prompt(CORRUPT):
            source = lm.blocks[layer].resid_pre[:]
        patched = {}
        for position in (1, 9, 13):
            with t.prompt(CLEAN):
                lm.blocks[layer].resid_pre[:, position] = source[:, position]
                patched[position] = t.save(differences(lm).mean())
    effect = {p: (value.item() - 5.18) / -10.36 for p, value in patched.items()}
    assert (effect[9], effect[13]) == (
        pytest.approx(subject, abs=6e-4),
        pytest.approx(end, abs=6e-4),
    )
    assert abs(effect[1]) <= 0.098


# -- generation and other files -----------------------------------------------------------------------


def test_greedy_text_equals_transformers(lm, model):
    """If each new token is the best one of transformers after those before it, then it is transformers' greedy text."""
    rows = lm.generate(GREEDY, max_new_tokens=48, stop_at_eos=False)
    for prompt, new in zip(GREEDY, rows, strict=True):
        ids = lm.tokenizer.encode(prompt)
        assert len(new.tokens) == 48
        with torch.no_grad():
            logits = model(torch.tensor([ids + new.tokens[:-1]]), use_cache=False).logits[0]
        assert new.tokens == logits[len(ids) - 1 :].argmax(-1).tolist(), prompt


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bfloat16_folder(dtype):
    folder = MODELS / "smollm2-135m"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: tools/make_reference_model.py makes it")
    lm = pl.load(str(folder), dtype=dtype)
    assert lm.dtype == dtype
    with lm.trace() as t:
        tops = []
        for prompt in (FRANCE, ITALY):
            with t.prompt(prompt):
                tops.append(t.save(lm.logits[0, -1].max(-1)))
    assert [lm.tokenizer.decode([int(top.indices)]) for top in tops] == [" Paris", " Rome"]
    assert tops[0].values.item() == pytest.approx(17.37, abs=0.1 if dtype == torch.float32 else 0.5)
