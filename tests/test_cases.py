"""Runs tests/cases/*.case and the generated ones in every layout. docs/reference/cases.md describes the format."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from case_runner import expect, generated, models
from case_runner.format import Case, Expect, read_case
from case_runner.layouts import LAYOUTS, Outcome, Place
from case_runner.record import Recorder
from case_runner.reference import PromptReader, Reference, constants
from case_runner.reference_model import load_reference
from torch import Tensor

CASES = {path.stem: read_case(path) for path in sorted(Path(__file__).parent.glob("cases/*.case"))}
CASES |= generated.cases()


class Session:
    """Models, engines and the first layout's results: each made once."""

    def __init__(self, folder: Path, seed: int):
        self.folder = folder
        self.seed = seed
        self.place = functools.cache(self.load_place)
        self.files = functools.cache(self.find_files)
        self.reference_model = functools.cache(self.load_reference_model)
        self.first = functools.cache(self.run_first)

    def find_files(self, model: str) -> models.ModelFiles:
        if not models.is_real(model):
            return models.make_tiny(model, self.folder / model)
        files = models.real_model()
        if files is None:
            pytest.skip(f"{model} is not in PELLUCID_MODELS: ./dev setup fetches it")
        return files

    def load_place(self, model: str, dtype: str) -> Place:
        from case_runner.engine import Engine

        return Place(Engine(self.files(model).path, dtype), self.seed)

    def load_reference_model(self, model: str) -> Any:
        # Float64 takes four times as long: on the real model float32 has to do.
        dtype = torch.float32 if models.is_real(model) else torch.float64
        return load_reference(self.files(model).reference, dtype)

    def prompts(self, model: str) -> PromptReader:
        from tokenizers import Tokenizer

        folder = self.files(model).reference
        eos = self.reference_model(model).config["eos_token_id"]
        return PromptReader(Tokenizer.from_file(str(folder / "tokenizer.json")), [eos])

    def run_first(self, name: str, model: str, dtype: str) -> list[Outcome]:
        return run(CASES[name], next(iter(LAYOUTS)), self.place(model, dtype), dtype)


def run(case: Case, layout: str, place: Place, dtype: str) -> list[Outcome]:
    """The case's programs, one after another; values saved by one may be constants of the next."""
    given = constants(case, getattr(torch, dtype))
    outcomes: list[Outcome] = []
    for program in case.programs:

        def record(program: Any = program, given: dict[str, Tensor] = dict(given)) -> Recorder:  # noqa: B006
            engine = place.engine
            return Recorder(program, given, engine.encode, case.name)

        try:
            outcomes.append(LAYOUTS[layout](place, program, record))
        except Exception as error:
            if not hasattr(error, "code"):
                raise
            outcomes.append(Outcome(error=error))  # refused while the program was made
        if outcomes[-1].error is not None:
            break
        given |= {name: value for name, value in outcomes[-1].saved.items() if value is not None}
    return outcomes


def run_reference(case: Case, session: Session, model: str, outcomes: list[Outcome]) -> Reference:
    canonical = session.place(model, case.dtypes[0]).engine.canonical
    reference = Reference(session.reference_model(model), session.prompts(model), canonical)
    reference.names.update(constants(case, reference.model.dtype))
    for program, outcome in zip(case.programs, outcomes, strict=True):
        reference.run(program, outcome.tokens)
        reference.names.update(reference.saved)
    return reference


def differences(saved: dict[str, Tensor | None], reference: Reference, atol: float) -> list[str]:
    found = []
    for name, value in saved.items():
        if value is None:
            wrong = "is missing" if name in reference.saved else ""
        elif name not in reference.saved:
            wrong = "should be missing"
        else:
            wrong = expect.far_from(value, reference.saved[name], atol)
        if wrong:
            found.append(f"{name} against the reference: {wrong}")
    return found


def unmet(case: Case, expects: list[Expect], values: Any, outcomes: list[Outcome]) -> list[str]:
    found = []
    for one in expects:
        wrong = expect.check_expect(one, values, outcomes)
        if wrong:
            found.append(f"{case.name}.case:{one.line}: expect {one.kind}: {wrong}")
    return found


def check_first(
    case: Case, session: Session, model: str, dtype: str, outcomes: list[Outcome]
) -> list[str]:
    """The first layout against the reference and the case's own expectations."""
    found = []
    expects = [one for one in case.expects if one.model in ("", model)]
    given = constants(case, getattr(torch, dtype))
    if not any(one.kind == "error" for one in expects):
        if outcomes[-1].error is not None:
            return [f"failed: {outcomes[-1].error}"]
        tolerance = expect.TOLERANCE.get(getattr(torch, dtype))
        if case.reference and tolerance is not None:
            reference = run_reference(case, session, model, outcomes)
            for outcome in outcomes:
                found += differences(outcome.saved, reference, tolerance)
            generates = [group.spec.generate > 0 for group in reference.groups]
            for index, group in enumerate(reference.groups):
                if generates[index] and outcomes[-1].tokens[index] != group.tokens:
                    found.append(f"tokens {outcomes[-1].tokens[index]}, wanted {group.tokens}")
        values = expect.SavedValues(case, outcomes, getattr(torch, dtype), given)
        return found + unmet(case, expects, values, outcomes)
    return unmet(case, expects, None, outcomes)


def check_same(first: list[Outcome], here: list[Outcome]) -> list[str]:
    """Another layout gives the same bits."""
    found = []
    for a, b in zip(first, here, strict=True):
        if b.error is not None or a.error is not None:
            codes = [getattr(o.error, "code", None) for o in (a, b)]
            if codes[0] != codes[1]:
                found.append(
                    f"fails with {codes[0]} in one layout, {codes[1]} in the other: {b.error}"
                )
            continue
        if a.saved.keys() != b.saved.keys():
            found.append(f"saved {sorted(b.saved)}, not {sorted(a.saved)}")
            continue
        found += [
            f"{name}: other bits"
            for name in a.saved
            if not expect.bit_equal(a.saved[name], b.saved[name])
        ]
        for what in ("tokens", "texts", "ended", "steps_run"):
            if getattr(a, what) != getattr(b, what):
                found.append(f"{what} {getattr(b, what)}, not {getattr(a, what)}")
    return found


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Session:
    return Session(tmp_path_factory.mktemp("models"), request.config.getoption("--seed"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "layout" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--layouts")
    layouts = list(LAYOUTS) if wanted == "all" else wanted.split(",")
    unknown = set(layouts) - set(LAYOUTS)
    if unknown:
        raise pytest.UsageError(f"no layout {', '.join(unknown)}: there are {', '.join(LAYOUTS)}")
    rows = [
        (name, model, dtype, layout)
        for name, case in CASES.items()
        for model in case.models
        for dtype in case.dtypes
        for layout in layouts
    ]
    rows.sort(key=lambda row: (models.is_real(row[1]), row[1], row[2], row[0]))  # a model at a time
    metafunc.parametrize(
        ("name", "model", "dtype", "layout"), rows, ids=["-".join(row) for row in rows]
    )


def test_case(session: Session, name: str, model: str, dtype: str, layout: str) -> None:
    case = CASES[name]
    first = session.first(name, model, dtype)
    if layout == next(iter(LAYOUTS)):
        found = check_first(case, session, model, dtype, first)
    else:
        found = check_same(first, run(case, layout, session.place(model, dtype), dtype))
    assert not found, "\n".join([case.promise, *found])
