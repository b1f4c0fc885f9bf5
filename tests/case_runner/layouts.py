"""Where a case's program may run. A new layout is one entry of LAYOUTS and inherits every case.

A layout gets a recorder (which makes the program anew, maybe with more in it) and returns what came back; every saved
value must be bit-equal to the first layout's.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from case_runner.format import Program, parse_case
from case_runner.record import Recorded, Recorder
from case_runner.reference import constants


@dataclass
class Outcome:
    """What one run gave: values by name (None: its step did not happen), or an error."""

    saved: dict[str, Tensor | None] = field(default_factory=dict)
    tokens: list[list[list[int]]] = field(default_factory=list)  # new ones, by group and row
    texts: list[list[str]] = field(default_factory=list)
    ended: list[list[str]] = field(default_factory=list)
    steps_run: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass
class Place:
    """An engine with a model, and the seed of this test session."""

    engine: Any  # case_runner.engine.Engine
    seed: int


Record = Callable[[], Recorder]
Layout = Callable[[Place, Program, Record], Outcome]


def local(place: Place, program: Program, record: Record) -> Outcome:
    return place.engine.run([record().out])[0]


def watched(place: Place, program: Program, record: Record) -> Outcome:
    """Everything is looked at: the same program and reads of every site of every group at every step."""
    recorder = record()
    for index, group in enumerate(program.groups):
        recorder.watch(place.engine.sites, index, max(1, group.generate))
    outcome: Outcome = place.engine.run([recorder.out])[0]
    outcome.saved = {k: v for k, v in outcome.saved.items() if not k.startswith("watched.")}
    return outcome


def batched(place: Place, program: Program, record: Record) -> Outcome:
    """Hidden among strangers: other lengths, edits of their own, some that generate, some that fail; before and after
    our rows. One has our own prompt and another edit: rows of the same tokens share work."""
    rng = random.Random(place.seed)
    jobs = [make_stranger(place, text, rng) for text in STRANGERS]
    if program.groups:
        jobs.append(twin(place, record()))
    rng.shuffle(jobs)
    ours = rng.randrange(1, len(jobs))
    return place.engine.run([*jobs[:ours], record().out, *jobs[ours:]])[ours]


LAYOUTS: dict[str, Layout] = {"local": local, "batched": batched, "watched": watched}

# {n}: ids, n of them.
STRANGERS = (
    """group {1}
    h = read blocks.0.resid_post
    h *= 1.5
    save logits = read logits""",
    """group {7} {7} {7} generate 4 temperature 0.7 seed 3
    step 1
    h = read blocks.1.mlp.out
    h[1] = 0
    save h""",
    """group {17}
    p = read blocks.1.attn.pattern
    write blocks.1.attn.pattern = softmax(mul(p, 2), -1)
    save out = read blocks.1.attn.out""",
    """group {4} generate 6""",
    """group {33}
    z = read blocks.0.attn.z
    z[:, :, 0] = 0
    save post = read blocks.1.resid_post
    group {2}
    write blocks.0.resid_pre = read_it""",
    """group {3}
    a = read blocks.1.resid_post
    group {3}
    b = read blocks.0.resid_pre
    b[:, -1] += a[:, -1]
    save l = read logits""",
)


def make_stranger(place: Place, text: str, rng: random.Random) -> Recorded:
    def ids(length: int) -> str:
        return str([rng.randrange(place.engine.vocab) for _ in range(length)])

    for length in range(1, 40):
        while f"{{{length}}}" in text:
            text = text.replace(f"{{{length}}}", ids(length), 1)
    text = text.replace("read_it", 'zeros_like(weight("blocks.0.attn.q"))')  # fails: a wrong shape
    case = parse_case("stranger", f"# A stranger.\nmodels tiny_llama\n{text}\nexpect no warning")
    return Recorder(case.programs[0], {}, place.engine.encode).out


def twin(place: Place, ours: Recorder) -> Recorded:
    """Our first prompt with an edit in the last block."""
    rows = ours.out.program.tokens(0)
    last = place.engine.num_layers - 1
    text = f"""# Our prompt.
models tiny_llama
group {" ".join(map(str, rows))}
h = read blocks.{last}.resid_pre
h *= 0.5
save l = read logits
expect no warning"""
    return Recorder(parse_case("twin", text).programs[0], {}, place.engine.encode).out


__all__ = ["LAYOUTS", "Layout", "Outcome", "Place", "constants"]
