"""A value of the forward pass inside a trace: a torch.Tensor whose numbers are not known yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _native
from pellucid._errors import InvalidArgument, NotSaved, NumberNotKnown, Unsupported
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._recorder import Recorder

_WAYS_OUT = (
    "save it and look after the block; choose with torch.where; t.print(value); t.call(function, "
    "value); or trace with eager=True, where values are real"
)


def number_not_known(what: str, where: str, ways_out: str = _WAYS_OUT) -> NumberNotKnown:
    return NumberNotKnown(f"inside a trace there are no numbers yet: {what}", ways_out, where)


class Value(torch.Tensor):
    """Knows shape, dtype and site; operations on it become part of the program.

    After the block a saved Value is an ordinary tensor: the same object, with numbers.
    """

    _recorder: Recorder
    _twin: torch.Tensor  # on the meta device; shares memory with views as the real one will
    _other: torch.Tensor | None  # the twin at another length, where the length is not known
    _where: str
    _label: str
    _missing: str = ""  # why a saved value has no numbers
    _tuple_of_old: bool = False  # a block's output by its Hugging Face path

    @staticmethod
    def _make(
        recorder: Recorder,
        twin: torch.Tensor,
        other: torch.Tensor | None,
        where: str,
        label: str,
    ) -> Value:
        with torch.inference_mode(
            False
        ):  # what is saved is an ordinary tensor, wherever it was made
            value: Value = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                Value, twin.shape, dtype=twin.dtype, device="cpu"
            )
        value._recorder, value._twin, value._other = recorder, twin, other
        value._where, value._label = where, label
        return value

    def save(
        self,
        name: str | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Value:
        """Keeps the value as it is at this line; after the block this object has its numbers.

        >>> with lm.trace("The capital of France is") as t:
        ...     h = lm.blocks[3].resid_post.save()    # [1, 5, d_model]
        """
        from pellucid._context import trace_of

        saved: Value = trace_of(self._recorder).save(self, name, dtype=dtype, device=device)
        return saved

    # -- descriptions -------------------------------------------------------------------------

    def _describe(self) -> str:
        name = self._label or "a value"
        made = f", made at {self._where}" if self._where else ""
        return f"{name} {list(self._twin.shape)} {str(self._twin.dtype)[6:]}{made}"

    def _other_trace(self) -> Exception:
        if self._recorder.state != "recording":
            return self._not_saved()
        return InvalidArgument(
            f"{self._describe()} belongs to another trace that is still open",
            "save it there, and use it after that block",
            user_line(),
        )

    def _not_saved(self) -> NotSaved:
        line = f" of {self._where}" if self._where else ""
        name = self._label or "the value"
        if self._missing:
            return NotSaved(f"{name}{line} has no numbers", self._missing, user_line())
        if self._recorder.state == "failed":
            return NotSaved(
                f"{name}{line} has no numbers: its block ended with an error, so nothing ran",
                "",
                user_line(),
            )
        return NotSaved(
            f"not saved: {name}{line}", "call .save() on it inside the block", user_line()
        )

    def _refuse_number(self) -> Exception:
        if self._recorder.state != "recording":
            return self._not_saved()
        return number_not_known(self._describe(), user_line())

    def __repr__(self, **_: Any) -> str:  # for debuggers; str() and print ask for numbers
        state = {"recording": "no numbers yet", "done": "not saved", "failed": "did not run"}
        return f"<{self._describe()}: {state[self._recorder.state]}>"

    def __str__(self) -> str:
        raise self._refuse_number()

    def __format__(self, spec: str) -> str:
        raise self._refuse_number()

    def __hash__(self) -> int:
        return id(self)

    def __round__(self, digits: int | None = None) -> Any:
        raise self._refuse_number()

    # -- torch's two protocols ----------------------------------------------------------------

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        from pellucid import _functions

        return _functions.dispatch(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # What reaches this has passed by __torch_function__ on its way into torch's C++: a number
        # argument taken from a value, a copy into an ordinary tensor.
        from pellucid._tree import tensors_of

        for tensor in tensors_of((args, kwargs)):
            if isinstance(tensor, Value):
                raise tensor._refuse_number()
        raise Unsupported(f"{func} on a traced value", "", user_line())

    def _become(self, result: torch.Tensor) -> None:
        """The same object, from now on an ordinary tensor with these numbers."""
        self.__dict__.clear()
        self.__class__ = torch.Tensor  # type: ignore[assignment]
        _native.materialise(self, result)


class SizesOfUnknown(tuple[int, ...]):
    """A shape of which some sizes are known only when the program runs."""

    _unknown: tuple[int, ...]
    _value: Value

    @staticmethod
    def of(value: Value) -> torch.Size | SizesOfUnknown:
        twin, other = value._twin, value._other
        if other is None:
            return twin.shape
        sizes = SizesOfUnknown(twin.shape)
        sizes._unknown = tuple(
            dim for dim in range(twin.dim()) if twin.shape[dim] != other.shape[dim]
        )
        sizes._value = value
        return sizes

    def _refuse(self, dim: int) -> NumberNotKnown:
        return number_not_known(
            f"size {dim} of {self._value._describe()} depends on the step or on a mask",
            user_line(),
            "use -1 in reshape and expand, negative indices, or .mean() instead of a length",
        )

    def __getitem__(self, index: Any) -> Any:
        for dim in range(len(self))[index] if isinstance(index, slice) else [index % len(self)]:
            if dim in self._unknown:
                raise self._refuse(dim)
        return tuple.__getitem__(self, index)

    def __iter__(self) -> Any:
        for dim in range(len(self)):
            yield self[dim]

    def __eq__(self, other: object) -> bool:
        raise self._refuse(self._unknown[0])

    __hash__ = None  # type: ignore[assignment]

    def numel(self) -> int:
        raise self._refuse(self._unknown[0])
