"""pellucid.load, pellucid.models."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _native
from pellucid._errors import InvalidArgument, Unsupported
from pellucid._recorder import dtype_name
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._lm import LM

_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def load(
    name: str,
    dtype: torch.dtype = torch.float32,
    path: str = "exact",
    prefill_chunk: int | None = None,
) -> LM:
    """Opens a model.

    name: a short name from the local cache ("smollm2"; pellucid.models() lists them), a .gguf file, a
    Hugging Face folder, or "org/name" found in Hugging Face's cache. Nothing is downloaded.
    dtype: of weights and activations; float32, float64 or bfloat16. Norms, rotary positions and softmax
    compute in the wider of float32 and this.
    path: the numeric path. "exact": dequantised or full precision.
    prefill_chunk: prompts of more tokens than this go through the model piece by piece, which bounds memory;
    None: whole. Only while generating, and only prompts whose own pass no program looks at: programs see
    whole prompts always. Values differ from whole prompts' by rounding.

    >>> lm = pellucid.load("smollm2")
    """
    from pellucid._lm import LM

    if path == "fast":
        raise Unsupported(
            "path='fast' (quantised kernels) is not there yet in this version",
            "path='exact'",
            user_line(),
        )
    if path != "exact":
        raise InvalidArgument(f"path={path!r}", "'exact' is the path that there is", user_line())
    if dtype not in _DTYPES:
        raise InvalidArgument(
            f"dtype={dtype!r}", "torch.float32, torch.float64 or torch.bfloat16", user_line()
        )
    if prefill_chunk is not None and prefill_chunk < 1:
        raise InvalidArgument(
            f"prefill_chunk={prefill_chunk}", "1 token or more; None: whole prompts", user_line()
        )
    with _Bar(str(name)) as bar:
        native = _native.Model.load(str(name), dtype_name(dtype), bar.show, prefill_chunk or 0)
    return LM(native)


def models() -> list[dict[str, Any]]:
    """The models of the local cache: name, path and bytes of each."""
    found: list[dict[str, Any]] = _native.models()
    return found


class _Bar:
    """A bar on standard error, when that is a terminal and loading takes more than a moment."""

    show: Callable[[int, int], None] | None

    def __init__(self, name: str) -> None:
        self._name, self._since, self._drawn = name, time.monotonic(), False
        self.show = self._show if sys.stderr.isatty() else None

    def _show(self, done: int, total: int) -> None:
        if time.monotonic() - self._since < 0.3 and not self._drawn:
            return
        self._drawn = True
        part = done / total if total else 1.0
        blocks = int(part * 30)
        print(
            f"\r{self._name}  [{'#' * blocks}{'.' * (30 - blocks)}] {done / 1e6:,.0f} of "
            f"{total / 1e6:,.0f} MB",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
