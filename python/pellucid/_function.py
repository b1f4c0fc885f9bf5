"""Programs as functions: @pellucid.program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _prompt
from pellucid._errors import InvalidArgument
from pellucid._tree import map_tensors
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._lm import LM
    from pellucid._trace import Trace


class Program:
    """A function of (lm, t, *inputs) whose lines are recorded; what it returns is saved.

    >>> @pellucid.program
    ... def last_norm(lm, t):
    ...     return lm.blocks[20].resid_post[:, -1].norm(dim=-1)
    >>> lm.map(last_norm, ["short", "a rather longer prompt"])     # [Tensor[1], Tensor[1]]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(
        self, lm: LM, *inputs: Any, prompt: _prompt.Prompt | None = None, **options: Any
    ) -> Any:
        """Runs it once. prompt and options as for lm.trace; None: it opens its own prompts."""
        trace = lm.trace(prompt, **options)
        result = None
        with trace:
            result = self._record(lm, trace, inputs)
        return result

    def _record(self, lm: LM, trace: Trace, inputs: Sequence[Any]) -> Any:
        from pellucid._value import Value

        result = self._function(lm, trace, *inputs)
        saved = {id(value) for value in trace._saved.values()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if isinstance(tensor, Value) and id(tensor) not in saved:
                kept: torch.Tensor = trace.save(tensor)
                return kept
            return tensor

        return map_tensors(keep, result)

    def __repr__(self) -> str:
        return f"<pellucid program {self._function.__name__}>"


def program(function: Callable[..., Any]) -> Program:
    """Makes a function of (lm, t, *inputs) a program: call it, or lm.map it over prompts."""
    return Program(function)


def run_map(
    lm: LM, function: Program, prompts: Sequence[Any], inputs: Sequence[Any], batch_tokens: int
) -> list[Any]:
    if not isinstance(function, Program):
        raise InvalidArgument(
            f"lm.map takes a program, not {type(function).__name__}",
            "write @pellucid.program over the function",
            user_line(),
        )
    if isinstance(prompts, str) or not isinstance(prompts, (Sequence, torch.Tensor)):
        raise InvalidArgument("lm.map takes a list of prompts", "[prompt]", user_line())
    if batch_tokens < 1:
        raise InvalidArgument(f"batch_tokens={batch_tokens}", "at least 1", user_line())
    results: list[Any] = []
    batch: list[tuple[Trace, Any]] = []
    tokens = 0
    for prompt in prompts:
        trace = lm.trace(prompt)
        assert trace._own_group is not None
        length = trace._own_group.seq * trace._own_group.batch
        if batch and tokens + length > batch_tokens:
            results.extend(_finish(lm, batch))
            batch, tokens = [], 0
        batch.append((trace, _record_only(lm, function, trace, inputs)))
        tokens += length
    if batch:
        results.extend(_finish(lm, batch))
    return results


def _record_only(lm: LM, function: Program, trace: Trace, inputs: Sequence[Any]) -> Any:
    trace.__enter__()
    try:
        result = function._record(lm, trace, inputs)
    except BaseException:
        trace._end_recording()
        trace._recorder.close("failed")
        raise
    trace._end_recording()
    return result


def _finish(lm: LM, batch: list[tuple[Trace, Any]]) -> list[Any]:
    outcomes = lm._run([trace._job() for trace, _ in batch])
    for (trace, _), outcome in zip(batch, outcomes, strict=True):
        trace._take(outcome)
    return [result for _, result in batch]
