"""Groups: rows of equal length that share lines, and the steps of their generation."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _positions
from pellucid._errors import InvalidArgument
from pellucid._recorder import Scope
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._value import Value


class Group:
    """What `t.prompt(...)` opens. Values inside are dense: [batch, seq, ...]."""

    def __init__(
        self,
        trace: Any,
        index: int,
        tokens: list[list[int]],
        single: bool,
        max_new_tokens: int,
        seed: int,
    ) -> None:
        self._trace = trace
        self._index = index
        self._prompt = tokens
        self._single = single
        self._passes = max(max_new_tokens, 1)
        self.seed = seed
        self._generates = max_new_tokens > 0
        self._result: Any = None
        self._outer: list[tuple[Group | None, Scope]] = []

    # -- the prompt -----------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        return len(self._prompt)

    @property
    def seq(self) -> int:
        """Tokens of each prompt."""
        return len(self._prompt[0])

    @property
    def tokens(self) -> list[Any]:
        """Inside the block the prompt's ids; after it the new ones, when text was generated.

        A list of ids for one prompt, a list of such lists for several.
        """
        rows = self._prompt
        if self._result is not None and self._generates:
            rows = [row.tokens for row in self._result.rows]
        return list(rows[0]) if self._single else [list(row) for row in rows]

    @property
    def text(self) -> Any:
        """Inside the block the prompt's text; after it the generated text. One, or a list."""
        if self._result is not None and self._generates:
            texts = [row.text for row in self._result.rows]
        else:
            texts = [self._trace.lm.tokenizer.decode(row) for row in self._prompt]
        return texts[0] if self._single else texts

    @property
    def ended(self) -> Any:
        """After the block: why each row ended: "length", "eos" or "stop"."""
        reasons = [row.ended for row in self._results("ended").rows]
        return reasons[0] if self._single else reasons

    @property
    def steps_run(self) -> int:
        """After the block: how many passes ran (1: the prompt's only)."""
        count: int = self._results("steps_run").steps_run
        return count

    def _results(self, what: str) -> Any:
        if self._result is None:
            raise InvalidArgument(
                f"{what} is known after the block", "look at it after the with", user_line()
            )
        return self._result

    def at(self, text: str, nth: int | None = None) -> int:
        """Position of the only token of the prompt that says `text`, e.g. t.at(" France")."""
        found = self.span(text, nth)
        if found.stop - found.start != 1:
            raise InvalidArgument(
                f"{text!r} is {found.stop - found.start} tokens of the prompt",
                "t.span(...) gives them all",
                user_line(),
            )
        return int(found.start)

    def span(self, text: str, nth: int | None = None) -> slice:
        """Positions of the tokens that hold `text`, as a slice; nth: which occurrence."""
        spans = {_positions.span(self._trace.lm.tokenizer, row, text, nth) for row in self._prompt}
        if len(spans) > 1:
            raise InvalidArgument(
                f"{text!r} is at different positions in the rows of this group: {sorted(spans)}",
                "one t.prompt each",
                user_line(),
            )
        return slice(*spans.pop())

    # -- steps ----------------------------------------------------------------------------------

    @property
    def steps(self) -> StepIndex:
        """Steps of generation: step 0 is the prompt's pass. See StepIndex."""
        return StepIndex(self)

    def seq_at(self, step: int) -> int:
        return self.seq if step == 0 else 1

    # -- with -----------------------------------------------------------------------------------

    def __enter__(self) -> Group:
        self._outer.append(self._trace._enter_group(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._trace._leave_group(self._outer.pop())


class StepIndex:
    """t.steps[a:b]: loop over it (unrolled), or `with` it (the lines inside are recorded once).

    >>> with lm.trace("Tell me about Paris.", max_new_tokens=20) as t:
    ...     for k in t.steps[:3]:
    ...         norms.append(lm.blocks[20].resid_post.norm().save())
    ...     with t.steps[1:] as s:
    ...         p = s.save(lm.logits.softmax(-1).max(-1).values)   # after: [steps, 1, 1]
    """

    def __init__(self, group: Group) -> None:
        self._group = group

    def __getitem__(self, index: slice | int) -> Steps:
        passes = self._group._passes
        if isinstance(index, int):
            first, end, single = index, index + 1, True
        else:
            if index.step not in (None, 1):
                raise InvalidArgument("steps go one by one", "t.steps[a:b]", user_line())
            first = 0 if index.start is None else index.start
            end = passes if index.stop is None else index.stop
            single = False
        if first < 0 or end < 0:
            raise InvalidArgument(
                "steps count from the first: how many will run is not known before",
                "use t.steps[a:b] with a and b of at least 0",
                user_line(),
            )
        if end > passes or first >= passes:
            what = f"step {first}" if first >= passes else f"step {end - 1}"
            raise InvalidArgument(
                f"{what} cannot happen: max_new_tokens={passes if self._group._generates else 0} "
                f"is {passes} pass{'es' if passes > 1 else ''}, steps 0 to {passes - 1}",
                "raise max_new_tokens",
                user_line(),
            )
        if first >= end:
            raise InvalidArgument(f"t.steps[{first}:{end}] is empty", "", user_line())
        return Steps(self._group, first, end, single)

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __enter__(self) -> Any:
        raise InvalidArgument("which steps?", "with t.steps[:]: ...", user_line())

    def __exit__(self, *_: object) -> None: ...


class Steps:
    """A range of steps of one group."""

    def __init__(self, group: Group, first: int, end: int, single: bool) -> None:
        self._group, self._first, self._end, self._single = group, first, end, single
        self._outer: list[tuple[Group | None, Scope]] = []

    def __iter__(self) -> Iterator[int]:
        trace = self._group._trace
        for step in range(self._first, self._end):
            scope = Scope(self._group._index, step, step + 1)
            outer = trace._enter_group(self._group, scope)
            try:
                yield step
            finally:
                trace._leave_group(outer)
            if not scope.used and not _is_for_loop(sys._getframe(1)):
                raise InvalidArgument(
                    "these steps are collected before any line of theirs is written",
                    "loop over t.steps directly: for k in t.steps[a:b]",
                    user_line(),
                )

    def __enter__(self) -> Steps:
        scope = Scope(self._group._index, self._first, self._end, per_step=not self._single)
        self._outer.append(self._group._trace._enter_group(self._group, scope))
        return self

    def __exit__(self, *_: object) -> None:
        self._group._trace._leave_group(self._outer.pop())

    def save(self, value: Any, name: str | None = None, **options: Any) -> Any:
        """As t.save; what is saved has one entry a step, stacked along a new first dimension."""
        return self._group._trace.save(value, name, **options)


def _is_for_loop(frame: FrameType) -> bool:
    """Whether the frame asks for the next item in a for statement, and so has run a body before.

    list(t.steps[:]) asks in a call, and lines after it would all mean step 0.
    """
    if frame.f_code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
        return False
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return instruction in ("FOR_ITER", "SEND", "YIELD_FROM")


def site_shapes(
    model: Any, site: str, group: Group, scope: Scope
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shape of the group's value at the first step of the scope, and at a later one if it differs."""

    def at(step: int) -> tuple[int, ...]:
        key_seq = group.seq + step
        return tuple(model._native.site_shape(site, group.batch, group.seq_at(step), key_seq))

    first = at(scope.first)
    if scope.end - scope.first <= 1:
        return first, None
    second = at(scope.first + 1)
    return first, (second if second != first else None)


def negative_log_likelihood(logits: Value | torch.Tensor, tokens: Any) -> torch.Tensor:
    """[batch, seq - 1]: of each token after the first, given those before it."""
    log_probabilities = logits[:, :-1].log_softmax(-1)
    return -log_probabilities.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
