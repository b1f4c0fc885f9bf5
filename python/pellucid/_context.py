"""Which trace is open here. Context-local: threads and tasks have their own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pellucid._errors import InvalidArgument
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._recorder import Recorder

current: ContextVar[Any] = ContextVar("pellucid_trace", default=None)


def open_trace(model: Any, what: str) -> Any:
    """The trace that `what` ("lm.logits") belongs to."""
    trace = current.get()
    if trace is None:
        raise InvalidArgument(
            f"{what} exists inside a trace only", "with lm.trace(prompt) as t: ...", user_line()
        )
    if trace.lm is not model:
        raise InvalidArgument(
            f"{what}: the open trace belongs to another model",
            "use the model whose trace it is",
            user_line(),
        )
    return trace


def trace_of(recorder: Recorder) -> Any:
    """The trace that a value belongs to."""
    recorder.check_open("save")
    return recorder.trace()
