"""Known numbers of SmolLM2-135M-Instruct (float32; transformers on the dequantised GGUF), through the API."""

import pytest
import torch

CAPITAL = "The capital of France is"
TOLERANCE = {"abs": 2e-4, "rel": 1e-5}


def approx(x):
    return pytest.approx(x, **TOLERANCE)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (
            CAPITAL,
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
    ],
)
def test_top_logits(smol, prompt, expected):
    with smol.trace(prompt) as t:
        top = t.save(smol.logits[0, -1].topk(len(expected)))
    assert [smol.tokenizer.decode(int(i)) for i in top.indices] == list(expected)
    assert top.values.tolist() == approx(list(expected.values()))


def test_another_prompt(smol):
    with smol.trace("The Space Needle is in downtown") as t:
        last = t.save(smol.logits[0, -1])
    assert smol.tokenizer.decode(int(last.argmax())) == " Los"
    assert last[smol.id(" Los")].item() == pytest.approx(8.871, abs=6e-4)
    assert last[smol.id(" Seattle")].item() == approx(7.8353)


def test_residual_norms(smol):
    with smol.trace(CAPITAL) as t:
        norms = [t.save(block.resid_pre[0, -1].norm()) for block in smol.blocks]
    for layer, norm in ((0, 2.601), (1, 35.194), (2, 62.608), (29, 666.044)):
        assert norms[layer].item() == pytest.approx(norm, abs=6e-4, rel=1e-5)


def test_lens_ranks_of_the_final_answer(smol):
    with smol.trace(CAPITAL):
        lens = torch.stack([smol.lens(block.resid_pre[:, -1]) for block in smol.blocks]).save()
    paris = smol.id(" Paris")
    ranks = {i: int((row[0] > row[0, paris]).sum()) for i, row in enumerate(lens)}
    assert {i: ranks[i] for i in (0, 24, 25, 27, 28, 29)} == {
        0: 4315,
        24: 395,
        25: 91,
        27: 33,
        28: 6,
        29: 2,
    }
    assert smol.tokenizer.decode(int(lens[29].argmax())) == " capital"


# -- induction ----------------------------------------------------------------------------------


def induction_rows():
    """4 rows of 50 ids of a linear congruential generator, each said twice."""
    x, ids = 12345, []
    for _ in range(200):
        x = (1103515245 * x + 12345) % 2**31
        ids.append(1000 + (x >> 8) % 9000)
    return [ids[i : i + 50] * 2 for i in range(0, 200, 50)]


def halves(lm, edit=lambda: None):
    with lm.trace(induction_rows()) as t:
        edit()
        nll = t.save(t.nll())
    return nll[:, :49].mean().item(), nll[:, 50:].mean().item()


def zero_heads(lm, heads):
    def edit():
        for layer, head in sorted(heads):
            lm.blocks[layer].attn.z[:, :, head] = 0

    return halves(lm, edit)[1]


def test_induction_losses(smol):
    assert induction_rows()[0][:4] == [6830, 1967, 1980, 5638]
    first, second = halves(smol)
    assert first == approx(12.4612)
    assert second == approx(1.9010)


@pytest.mark.parametrize(
    ("heads", "loss"),
    [
        ([(18, 6)], 3.6587),
        ([(18, 6), (17, 3), (17, 4), (17, 5), (18, 7)], 9.8851),
        ([(16, 0)], 7.0935),
        ([(0, 0)], 1.9105),
        ([(5, 5)], 1.8866),
    ],
)
def test_losses_without_heads(smol, heads, loss):
    assert zero_heads(smol, heads) == approx(loss)


def test_induction_and_previous_token_heads(smol):
    rows = induction_rows()
    names = {18: None, 17: None, 23: None, 16: None, 11: None}
    with smol.trace(rows) as t:
        patterns = {layer: t.save(smol.blocks[layer].attn.pattern) for layer in sorted(names)}

    def score(layer, head, offset):
        return patterns[layer][:, head].diagonal(offset, -2, -1).mean().item()

    for layer, head, value in ((18, 6, 0.9125), (17, 3, 0.8094), (17, 4, 0.7614), (23, 2, 0.5237)):
        assert score(layer, head, 1 - 50) == approx(value)
    for layer, head, value in ((16, 0, 0.9145), (11, 1, 0.8550)):
        assert score(layer, head, -1) == approx(value)


# -- patching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "answer", "logit"),
    [
        (0, " Rome", 16.508),
        (10, " Rome", 16.331),
        (15, " Rome", 16.716),
        (20, " Rome", 16.790),
        (25, " Paris", 17.493),
    ],
)
def test_patching_france_with_italy(smol, layer, answer, logit):
    with smol.trace() as t:
        with t.prompt("The capital of Italy is") as italy:
            source = smol.blocks[layer].resid_pre[:, italy.at(" Italy")]
        with t.prompt(CAPITAL) as france:
            smol.blocks[layer].resid_pre[:, france.at(" France")] = source
            top = t.save(smol.logits[0, -1].max(-1))
    assert smol.tokenizer.decode(int(top.indices)) == answer
    assert top.values.item() == pytest.approx(logit, abs=6e-4)


@pytest.mark.parametrize(
    ("layer", "answer", "logit"),
    [(15, " Paris", None), (20, " Paris", None), (24, " Rome", 16.435), (27, " Rome", 16.444)],
)
def test_adding_the_difference(smol, layer, answer, logit):
    with smol.trace() as t:
        with t.prompt("The capital of Italy is"):
            italy = smol.blocks[layer].resid_pre[:, -1]
        with t.prompt(CAPITAL):
            h = smol.blocks[layer].resid_pre
            h[:, -1] += italy - h[:, -1]
            top = t.save(smol.logits[0, -1].max(-1))
    assert smol.tokenizer.decode(int(top.indices)) == answer
    if logit is not None:
        assert top.values.item() == pytest.approx(logit, abs=6e-4)


# -- indirect objects -----------------------------------------------------------------------------

TEMPLATES = [
    ("When John and Mary went to the shops,{} gave the bag to", " Mary", " John"),
    ("When Tom and James went to the park,{} gave the ball to", " James", " Tom"),
    ("When Dan and Sid went to the shops,{} gave an apple to", " Sid", " Dan"),
    ("After Martin and Amy went to the park,{} gave a drink to", " Amy", " Martin"),
]


def indirect_objects(lm):
    clean, corrupt, answers, others = [], [], [], []
    for text, one, two in TEMPLATES:
        for right, wrong in ((one, two), (two, one)):
            clean.append(lm.tokenizer.encode(text.format(wrong)))
            corrupt.append(lm.tokenizer.encode(text.format(right)))
            answers.append(right)
            others.append(wrong)
    return clean, corrupt, lm.id(answers), lm.id(others)


def difference(lm, answers, others):
    last = lm.logits[:, -1]
    return (last.gather(1, answers[:, None]) - last.gather(1, others[:, None]))[:, 0]


def test_indirect_object_differences(smol):
    clean, corrupt, answers, others = indirect_objects(smol)
    assert {len(row) for row in clean + corrupt} == {14}
    with smol.trace() as t:
        with t.prompt(clean):
            ours = t.save(difference(smol, answers, others))
        with t.prompt(corrupt):
            theirs = t.save(difference(smol, answers, others))
    expected = [3.1214, 4.1569, 4.3959, 3.5315, 5.2766, 3.9911, 5.2203, 11.7461]
    assert sorted(ours.tolist()) == approx(sorted(expected))
    assert ours.mean().item() == approx(5.1800)
    assert theirs.mean().item() == approx(-5.1800)


def test_patching_moves_from_the_second_subject_to_the_end(smol):
    clean, corrupt, answers, others = indirect_objects(smol)
    cells = {}
    with smol.trace() as t:
        with t.prompt(corrupt):
            low = t.save(difference(smol, answers, others).mean())
        with t.prompt(clean):
            high = t.save(difference(smol, answers, others).mean())
            source = {layer: smol.blocks[layer].resid_pre for layer in (18, 20, 22, 24, 28)}
        for layer, value in source.items():
            for position in (9, 13):
                with t.prompt(corrupt):
                    smol.blocks[layer].resid_pre[:, position] = value[:, position]
                    cells[layer, position] = t.save(difference(smol, answers, others).mean())
    normalised = {cell: ((x - low) / (high - low)).item() for cell, x in cells.items()}
    expected = {
        18: (1.006, -0.005),
        20: (0.884, 0.088),
        22: (0.447, 0.511),
        24: (0.026, 0.885),
        28: (0.001, 0.913),
    }
    for layer, (subject, end) in expected.items():
        assert normalised[layer, 9] == pytest.approx(subject, abs=1e-3)
        assert normalised[layer, 13] == pytest.approx(end, abs=1e-3)
