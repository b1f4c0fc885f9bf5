"""What recorded and eager traces check alike when they save and call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pellucid._errors import InvalidArgument, ShapeMismatch
from pellucid._tree import tensors_of
from pellucid._where import user_line


def require_tensors(value: Any) -> None:
    if not tensors_of(value):
        raise InvalidArgument(
            f"there is no tensor to save in this {type(value).__name__}", "", user_line()
        )


class SavedNames:
    """Names of saved values: saved_0, saved_1, ... for those that get none, name.0, ... for nested."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}  # by prefix

    def take(self, name: str | None, nested: bool) -> str:
        if name is None:
            name = self._following("saved_")
        elif nested:
            name = self._following(f"{name}.")
        elif name in self._taken:
            raise InvalidArgument(
                f"two values are saved as {name!r}", "give each a name of its own", user_line()
            )
        self._taken.add(name)
        return name

    def _following(self, prefix: str) -> str:
        number = self._next.get(prefix, 0)
        while f"{prefix}{number}" in self._taken:
            number += 1
        self._next[prefix] = number + 1
        return f"{prefix}{number}"


def checked_call(
    function: Callable[..., torch.Tensor], like: torch.Tensor
) -> Callable[..., torch.Tensor]:
    """`function`, whose result must be a tensor of like's shape and dtype; for t.call."""
    where = user_line()
    if not isinstance(like, torch.Tensor):
        raise InvalidArgument(
            f"like= of t.call is {type(like).__name__}, not a tensor",
            "give a tensor of the result's shape and dtype: like=torch.empty(1, 4)",
            where,
        )
    shape, dtype = tuple(like.shape), like.dtype

    def checked(*real: torch.Tensor) -> torch.Tensor:
        result = function(*real)
        if not isinstance(result, torch.Tensor):
            raise InvalidArgument(
                f"the function of t.call returned {type(result).__name__}, not a tensor", "", where
            )
        if tuple(result.shape) != shape or result.dtype != dtype:
            raise ShapeMismatch(
                f"the function of t.call returned {list(result.shape)} {str(result.dtype)[6:]}, "
                f"like= says {list(shape)} {str(dtype)[6:]}",
                "",
                where,
            )
        return result.detach()

    return checked
