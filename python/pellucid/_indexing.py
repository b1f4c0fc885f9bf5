"""value[index] and value[index] = other.

Ints, slices, None and ... make views; a traced integer, masks and lists of positions gather. As in
torch, the views come first and everything that gathers is one operation on them.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _native
from pellucid._errors import InvalidArgument, Unsupported
from pellucid._value import Value
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._recorder import Recorder

_T = torch.Tensor


def get(recorder: Recorder, whole: torch.Tensor, index: Any) -> Any:
    views, gathers = _split(whole, index)
    if not gathers:
        return recorder.call(_T.__getitem__, (whole, views), {})
    base = recorder.call(_T.__getitem__, (whole, views), {}) if _narrows(views) else whole
    return recorder.call(torch.ops.aten.index.Tensor, (base, _positions(gathers)), {})


def set(recorder: Recorder, whole: Value, index: Any, other: Any) -> None:
    views, gathers = _split(whole, index)
    if not gathers and isinstance(other, Value) and _is_same_view(whole, views, other):
        return  # h[:, -1] += v: the sum is already there
    if not isinstance(other, torch.Tensor):
        other = _number_or_tensor(whole, other)
    base = recorder.call(_T.__getitem__, (whole, views), {}) if _narrows(views) else whole
    if gathers:
        if not isinstance(other, torch.Tensor):
            other = torch.tensor(other, dtype=whole._twin.dtype)
        elif other.dtype != whole._twin.dtype:
            other = other.to(whole._twin.dtype)
        recorder.call(torch.ops.aten.index_put_.default, (base, _positions(gathers), other), {})
    elif not isinstance(other, torch.Tensor):
        recorder.call(_T.fill_, (base, other), {})
    else:
        while other.dim() > base.dim():  # torch drops leading sizes of 1 here
            other = other.squeeze(0)
        recorder.call(_T.copy_, (base, other), {})


def _split(whole: torch.Tensor, index: Any) -> tuple[tuple[Any, ...], list[tuple[int, Any]]]:
    """The part of the index that makes a view, and (dimension of the view, positions) of the rest."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_normalise(item) for item in items]
    taken = sum(_dims_taken(item) for item in items)
    rank = whole.dim()
    if taken > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    if Ellipsis not in [i if i is Ellipsis else None for i in items]:
        items.append(Ellipsis)
    views: list[Any] = []
    gathers: list[tuple[int, Any]] = []
    dim = 0  # of the view so far
    used = 0  # dimensions of `whole`
    for item in items:
        if isinstance(item, slice) and item.step is not None and item.step < 0:
            raise InvalidArgument(
                f"a slice of a tensor goes forwards, not by {item.step}",
                f"use .flip({used})",
                user_line(),
            )
        used += rank - taken if item is Ellipsis else _dims_taken(item)
        if item is Ellipsis:
            views.append(Ellipsis)
            dim += rank - taken
        elif isinstance(item, torch.Tensor):
            gathers.append((dim, item))
            width = _dims_taken(item)
            views.extend([slice(None)] * width)
            dim += width
        elif isinstance(item, bool):
            raise Unsupported(
                "True or False as an index of a traced value",
                "use None to add a dimension",
                user_line(),
            )
        else:
            views.append(item)
            dim += 0 if isinstance(item, int) else 1
    return tuple(views), gathers


def _normalise(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return item
    if isinstance(item, slice):
        return slice(*(_bound(x) for x in (item.start, item.stop, item.step)))
    if isinstance(item, Value):
        return item
    if isinstance(item, torch.Tensor):
        integral = not (item.is_floating_point() or item.dtype in (torch.bool, torch.uint8))
        return int(item) if item.dim() == 0 and integral else item
    if isinstance(item, (list, tuple, range)) or _is_array(item):
        return torch.as_tensor(list(item) if isinstance(item, range) else item)
    try:
        return operator.index(item)
    except TypeError:
        raise IndexError(
            f"{type(item).__name__} cannot index a tensor; ints, slices, None, ..., lists and "
            "tensors can"
        ) from None


def _is_array(item: Any) -> bool:
    return type(item).__module__ == "numpy" and getattr(item, "ndim", 0) > 0


def _bound(x: Any) -> int | None:
    if isinstance(x, Value):
        raise Unsupported(
            "a traced integer as the bound of a slice: the length would not be known",
            "mask with torch.where(torch.arange(n) < bound, ...)",
            user_line(),
        )
    return None if x is None else operator.index(x)


def _dims_taken(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1


def _narrows(views: tuple[Any, ...]) -> bool:
    return any(not (item is Ellipsis or item == slice(None)) for item in views)


def _positions(gathers: list[tuple[int, Any]]) -> list[Any]:
    positions: list[Any] = []
    covered = 0  # a mask of several dimensions is one entry for all of them
    for dim, tensor in gathers:
        positions.extend([None] * (dim - covered))
        positions.append(tensor)
        covered = dim + _dims_taken(tensor)
    return positions


def _is_same_view(whole: Value, views: tuple[Any, ...], other: Value) -> bool:
    if other._recorder is not whole._recorder:
        return False
    with torch.inference_mode():
        view = whole._twin[views]
    twin = other._twin
    return (
        _native.storage_id(view) == _native.storage_id(twin)
        and view.shape == twin.shape
        and view.stride() == twin.stride()
        and view.storage_offset() == twin.storage_offset()
    )


def _number_or_tensor(whole: Value, other: Any) -> Any:
    if isinstance(other, (bool, int, float)):
        return other
    return torch.as_tensor(other)
