"""The user's line: the first frame outside this package and torch."""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, torch.__file__)
)
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_inside: dict[str, bool] = {}


def _is_ours(filename: str) -> bool:
    known = _inside.get(filename)
    if known is None:
        resolved = os.path.abspath(filename)
        known = (
            resolved.startswith(_PACKAGES)
            or f"{os.sep}einops{os.sep}" in resolved
            or filename.startswith("<frozen")
            or os.path.basename(filename) == "contextlib.py"
        )
        _inside[filename] = known
    return known


def user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_line() -> str:
    """ "file.py:12" of the line that called into Pellucid or torch, or ""."""
    frame = user_frame()
    if frame is None:
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def custom_function() -> str | None:
    """The name of the autograd.Function whose forward is running, if one is."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(100):
        if frame is None:
            return None
        if frame.f_code is _APPLY:
            function = frame.f_locals.get("cls")
            return getattr(function, "__name__", "autograd.Function")
        frame = frame.f_back
    return None


def stack_level() -> int:
    """`stacklevel` for warnings.warn called by the caller: the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    return level
