"""Walks over tensors in lists, tuples, dicts and struct results (topk, max)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """A copy of `tree` with each tensor replaced by function(tensor), in order."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, torch.Size):
        return tree
    if isinstance(tree, tuple):
        items = [map_tensors(function, item) for item in tree]
        if type(tree) is tuple:
            return tuple(items)
        if hasattr(tree, "_fields"):  # a named tuple
            return type(tree)(*items)
        return type(tree)(items)  # torch.return_types
    if isinstance(tree, list):
        return [map_tensors(function, item) for item in tree]
    if isinstance(tree, dict):
        return {key: map_tensors(function, value) for key, value in tree.items()}
    if isinstance(tree, slice):
        return slice(*(map_tensors(function, item) for item in (tree.start, tree.stop, tree.step)))
    return tree


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """All tensors of `tree`, in the order of map_tensors."""
    found: list[torch.Tensor] = []

    def visit(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, torch.Size):
            return
        elif isinstance(item, (list, tuple)):
            for part in item:
                visit(part)
        elif isinstance(item, dict):
            for part in item.values():
                visit(part)
        elif isinstance(item, slice):
            visit((item.start, item.stop, item.step))

    visit(tree)
    return found
