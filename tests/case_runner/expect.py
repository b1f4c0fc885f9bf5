"""Compares what came back with what the case promises."""

import ast
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from case_runner.format import Case, Expect
from case_runner.language import CaseError
from case_runner.layouts import Outcome
from case_runner.reference import TorchValues

GOLDEN = Path(__file__).parent.parent / "golden"
# Against the reference, by dtype: at most this times the largest value of the row (or 1).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def bit_equal(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    width = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.element_size()]
    return torch.equal(a.contiguous().view(width), b.contiguous().view(width))


def far_from(value: Tensor, wanted: Tensor, atol: float) -> str:
    """Why `value` is not `wanted`; "" when it is. `atol` grows with the largest value of the row."""
    if value.shape != wanted.shape:
        return f"shape {tuple(value.shape)}, wanted {tuple(wanted.shape)}"
    if not value.is_floating_point():
        return "" if torch.equal(value, wanted.to(value.dtype)) else f"{value} != {wanted}"
    if value.numel() == 0:
        return ""
    value, wanted = value.double(), wanted.double()
    if not torch.equal(value.isfinite(), wanted.isfinite()):
        return "not finite where it should be, or the other way round"
    finite = wanted.isfinite()
    strange = ~finite & ~((value == wanted) | (value.isnan() & wanted.isnan()))
    if bool(strange.any()):
        return "another infinity or NaN"
    size = wanted.where(finite, torch.zeros(())).abs()
    rows = size.amax(-1, keepdim=True) if size.dim() else size
    difference = (value - wanted).where(finite, torch.zeros(()))
    excess = difference.abs() / rows.clamp(min=1)
    worst = excess.max().item()
    return (
        ""
        if worst <= atol
        else f"differs by {worst:.3g} of its row's largest value (allowed {atol:g})"
    )


class SavedValues(TorchValues):
    """Expressions of expectations: saved values by name, and of the groups `tokens`, `text`, `steps_run`, `ended`."""

    def __init__(
        self, case: Case, outcomes: list[Outcome], dtype: torch.dtype, given: dict[str, Tensor]
    ):
        super().__init__(dtype)
        self.names.update(given)
        self.groups: dict[str, dict[str, Any]] = {}
        for program, outcome in zip(case.programs, outcomes, strict=True):
            self.names |= {
                name: value for name, value in outcome.saved.items() if value is not None
            }
            for i, group in enumerate(program.groups[: len(outcome.steps_run)]):
                self.groups[group.name] = {
                    "tokens": torch.tensor(outcome.tokens[i]),
                    "text": outcome.texts[i] if len(outcome.texts[i]) > 1 else outcome.texts[i][0],
                    "ended": outcome.ended[i] if len(outcome.ended[i]) > 1 else outcome.ended[i][0],
                    "steps_run": outcome.steps_run[i],
                }
        if self.groups:
            # Without a group's name: the only one, or the last one.
            self.names = list(self.groups.values())[-1] | self.names

    def attribute(self, name: str, attribute: str) -> Any:
        try:
            return self.groups[name][attribute]
        except KeyError:
            raise CaseError(f"there is no {name}.{attribute}") from None

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "golden":
            from safetensors.torch import load_file

            return load_file(GOLDEN / f"{args[0]}.safetensors")[args[1]]
        return super().call(name, args, kwargs)


def check_expect(expect: Expect, values: SavedValues, outcomes: list[Outcome]) -> str:
    """Why the expectation does not hold; "" when it does."""
    if expect.kind == "error":
        return check_error(expect, outcomes[-1].error)
    warnings = [warning for outcome in outcomes for warning in outcome.warnings]
    if expect.kind == "warning":
        fits = any(all(text in warning for text in expect.texts) for warning in warnings)
        return "" if fits else f"no warning with {expect.texts}; there were {warnings}"
    if expect.kind == "no warning":
        return f"warned: {warnings}" if warnings else ""
    if expect.kind == "missing":
        assert isinstance(expect.left, ast.Name)
        saved = {k: v for outcome in outcomes for k, v in outcome.saved.items()}
        return "" if saved.get(expect.left.id, 0) is None else f"{expect.left.id} is not missing"
    assert expect.left is not None
    left = values.evaluate(expect.left)
    if expect.kind == "shape":
        shape = "x".join(map(str, left.shape)) or "scalar"
        return "" if shape == expect.texts[0] else f"shape {shape}"
    assert expect.right is not None
    return compare(left, expect.kind, values.evaluate(expect.right), expect.atol)


def check_error(expect: Expect, error: Exception | None) -> str:
    if error is None:
        return "ran without an error"
    code, message = getattr(error, "code", type(error).__name__), str(error)
    if code != expect.code:
        return f"failed with {code}: {message}"
    missing = [text for text in expect.texts if text not in message]
    return f"the error does not say {missing}: {message}" if missing else ""


def compare(left: Any, operator: str, right: Any, atol: float | None) -> str:
    if (
        isinstance(left, str)
        or isinstance(right, str)
        or (isinstance(left, list) and isinstance(left[0], str))
    ):
        holds = left == right if operator == "==" else left != right
        return "" if holds else f"{left!r}"
    if not isinstance(left, Tensor):
        left = torch.tensor(left)
    if not isinstance(right, Tensor):
        right = torch.tensor(right, dtype=left.dtype).reshape(torch.tensor(right).shape)
    if operator == "~":
        if atol is not None:  # absolute, as written
            if left.shape != right.shape:
                return f"shape {tuple(left.shape)}, wanted {tuple(right.shape)}"
            worst = (left.double() - right.double()).abs().max().item()
            good = worst <= atol and not math.isnan(worst)
            return "" if good else f"differs by {worst:.6g} (allowed {atol:g}): {left}"
        return far_from(left, right, TOLERANCE.get(left.dtype, 0.05))
    if operator in ("==", "!="):
        equal = bit_equal(left, right)
        return (
            ""
            if equal == (operator == "==")
            else f"{left} {'!=' if operator == '==' else '=='} {right}"
        )
    holds = {"<": torch.lt, ">": torch.gt, "<=": torch.le, ">=": torch.ge}[operator](left, right)
    return "" if bool(holds.all()) else f"{left}"
