"""Buffers of the user's modules: a traced value never ends up in one unnoticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from pellucid._errors import Unsupported
from pellucid._value import Value
from pellucid._where import user_frame, user_line


def _refuse_value(module: torch.nn.Module, name: str, buffer: Any) -> None:
    """torch calls this whenever a module's buffer is bound: self.n = ..., register_buffer."""
    if isinstance(buffer, Value):
        raise Unsupported(
            f"the buffer {type(module).__name__}.{name} would take a value of the trace, and the "
            "module would hold it after the block",
            f"save the value and assign .{name} after the block, or call .eval() on the module",
            user_line(),
        )


register_module_buffer_registration_hook(_refuse_value)


def describe(tensor: torch.Tensor) -> str:
    """An ordinary tensor that an operation would write into, for an error: named if it is a buffer."""
    shape = f"of shape {list(tensor.shape)}"
    name = _name_of(tensor)
    return f"the buffer {name} {shape}" if name else f"an ordinary tensor {shape}"


def _name_of(tensor: torch.Tensor) -> str | None:
    """ "Type.name" when a module that is being called, or that the user's line can see, has it."""
    memory = tensor.untyped_storage().data_ptr()
    for module in _modules_in_sight():
        for name, buffer in module.named_buffers():
            if buffer is tensor or (memory and buffer.untyped_storage().data_ptr() == memory):
                return f"{type(module).__name__}.{name}"
    return None


def _modules_in_sight() -> Iterator[torch.nn.Module]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield from _modules(frame.f_locals)
        frame = frame.f_back
    line = user_frame()
    if line is not None:
        yield from _modules(line.f_globals)


def _modules(names: dict[str, Any]) -> list[torch.nn.Module]:
    return [value for value in list(names.values()) if isinstance(value, torch.nn.Module)]
