"""The engine under test, through the lowest level that Python has: a program is written, parsed, checked and run."""

from pathlib import Path
from typing import Any

from case_runner.layouts import Outcome
from case_runner.record import Recorded


class Engine:
    def __init__(self, path: Path, dtype: str):
        from pellucid import _native

        self.native = _native
        self.model = _native.Model.load(str(path), dtype, None)
        self.sites: list[str] = self.model.sites()
        self.vocab: int = self.model.info["vocab"]
        self.num_layers: int = self.model.info["num_layers"]

    def encode(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, list):
            return prompt
        ids: list[int] = self.model.tokenizer.encode(prompt, None, True)[0]
        return ids

    def canonical(self, site: str) -> str:
        name: str = self.model.resolve(site)[0]
        return name

    def run(self, programs: list[Recorded]) -> list[Outcome]:
        """All of them together, in the same passes."""
        jobs = [self.native.Job(each.program, each.constants, None, None) for each in programs]
        return [outcome_of(result) for result in self.model.run(jobs)]


def outcome_of(result: Any) -> Outcome:
    if isinstance(result, Exception):
        return Outcome(error=result)
    return Outcome(
        saved={name: None if missing else value for name, value, missing, _ in result.saved},
        tokens=[[list(row.tokens) for row in group.rows] for group in result.groups],
        texts=[[row.text for row in group.rows] for group in result.groups],
        ended=[[row.ended for row in group.rows] for group in result.groups],
        steps_run=[group.steps_run for group in result.groups],
        warnings=list(result.warnings),
    )
