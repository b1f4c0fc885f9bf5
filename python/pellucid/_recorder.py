"""Notes operations as the user called them: before autograd and dispatch, composite ones whole.

Each traced value has a twin on torch's meta device. An operation on traced values runs on the twins,
under inference mode with a dispatch mode below: what arrives there is what is noted, and torch's own
shape errors appear at the user's own line. Twins share storage as the real values will, so views and
in-place operations mean what they mean in PyTorch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pellucid import _native
from pellucid._buffers import describe
from pellucid._errors import Error, InvalidArgument, NotSaved, Unsupported
from pellucid._tree import map_tensors, tensors_of
from pellucid._value import Value, number_not_known
from pellucid._where import custom_function, user_line

# Where a tensor lies and how its memory is laid out is no part of a program.
_PLACEMENT_KEYWORDS = ("device", "layout", "pin_memory", "memory_format", "non_blocking")
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
# Random only with a dropout probability, which is their argument of this name.
_RANDOM_WITH = {"scaled_dot_product_attention": "dropout_p", "rrelu": "training"}


class Scope:
    """Where a line stands: its group (-1: outside any) and its steps [first, end)."""

    __slots__ = ("first", "end", "group", "per_step", "used")

    def __init__(self, group: int = -1, first: int = 0, end: int = 1, per_step: bool = False):
        self.group, self.first, self.end, self.per_step = group, first, end, per_step
        self.used = False  # by any line

    def key(self) -> tuple[int, int, int, bool]:
        return self.group, self.first, self.end, self.per_step


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Recorder:
    """One program while it is being written."""

    def __init__(self) -> None:
        self.program = _native.Program()
        self.constants: list[torch.Tensor] = []
        self.scope = Scope()
        self.trace: Callable[[], Any] = lambda: None
        self.state = "recording"  # "done", "failed"
        self._refs: dict[int, Any] = {}  # id(twin) -> ValueRef, or a function that makes it
        self._kept: list[torch.Tensor] = []  # twins: ids stay theirs
        self._values: weakref.WeakValueDictionary[int, Value] = weakref.WeakValueDictionary()
        self._constant_twins: dict[int, torch.Tensor] = {}  # id(real tensor) -> twin
        self._constant_of: dict[int, torch.Tensor] = {}  # id(twin) -> real tensor
        self._constant_index: dict[int, int] = {}  # id(real tensor) -> index
        self._constant_memory: set[int] = set()
        self._constant_use: dict[int, tuple[int, str]] = {}  # id(real) -> version, first line

    # -- nodes --------------------------------------------------------------------------------

    def add_node(
        self,
        kind: str,
        name: str,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
        where: str = "",
        grad: bool = True,
    ) -> int:
        scope = self.scope
        scope.used = True
        return self.program.add_node(
            kind,
            name,
            self._wire(args),
            {key: self._wire(value) for key, value in (kwargs or {}).items()},
            scope.group,
            scope.first,
            scope.end,
            scope.per_step,
            grad,
            where,
        )

    def add_source(
        self,
        kind: str,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        *,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
        other_shape: tuple[int, ...] | None = None,
        label: str = "",
    ) -> Value:
        """A node that is no operation (a read, a part, a call) and its value.

        other_shape: what the shape is at another step of the same range, where it differs.
        """
        self.check_open("")
        where = user_line()
        node = self.add_node(kind, name, args, kwargs, where, torch.is_grad_enabled())
        twin = torch.empty(shape, dtype=dtype, device="meta")
        other = None
        if other_shape is not None and tuple(other_shape) != tuple(shape):
            other = torch.empty(other_shape, dtype=dtype, device="meta")
        self._register(twin, _native.ValueRef(node, 0))
        return self._new_value(twin, other, where, label or name)

    def write(self, site: str, value: torch.Tensor) -> None:
        self.add_node("write", site, [self.twin(value)], where=user_line())

    def save(self, value: Value, name: str) -> None:
        self.add_node("save", name, [value._twin], where=user_line())

    # -- operations ---------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Runs a torch function on twins and notes what arrives at the dispatcher."""
        self.check_open(getattr(function, "__name__", str(function)))
        custom = custom_function()
        where = user_line()
        if custom is not None:
            raise Unsupported(
                f"{custom} is a custom autograd.Function: its backward half cannot be recorded yet",
                "call the operations of its forward directly",
                where,
            )
        mode = _Mode(self, where, torch.is_grad_enabled(), recording=True)
        out = self._run(function, args, kwargs, mode)
        other = None
        if mode.unknown_length or any(
            value._other is not None
            for value in tensors_of((args, kwargs))
            if isinstance(value, Value)
        ):
            try:
                other = self._run(function, args, kwargs, _Mode(self, where, mode.grad, False))
            except RuntimeError as failure:
                raise InvalidArgument(
                    "this line works for one length of its values only, and the length is known "
                    f"only when the program runs: {failure}",
                    "write it for any length: -1 in reshape, no numbers taken from .shape",
                    where,
                ) from None
        return self._wrap(out, other, where)

    def _run(self, function: Callable[..., Any], args: Any, kwargs: Any, mode: _Mode) -> Any:
        def twin(tensor: torch.Tensor) -> torch.Tensor:
            if not mode.recording and isinstance(tensor, Value) and tensor._other is not None:
                return tensor._other
            return self.twin(tensor)

        out_argument = kwargs.get("out")
        for tensor in tensors_of(out_argument):
            if not isinstance(tensor, Value):
                raise number_not_known(
                    "an ordinary tensor given as `out=`", mode.where, "use the operation's result"
                )
        twin_args, twin_kwargs = map_tensors(twin, (args, kwargs))
        with torch.inference_mode(), mode:
            return function(*twin_args, **twin_kwargs)

    def twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """The meta tensor that stands for a value or for a constant."""
        if isinstance(tensor, Value):
            if tensor._recorder is not self:
                raise tensor._other_trace()
            return tensor._twin
        if tensor.device.type == "meta" and id(tensor) in self._refs:
            return tensor
        twin = self._constant_twins.get(id(tensor))
        if twin is None:
            if tensor.layout != torch.strided or tensor.is_quantized:
                raise Unsupported(
                    "sparse and quantised tensors cannot be constants of a program",
                    "call .to_dense() or .dequantize() first",
                    user_line(),
                )
            if tensor.device.type == "meta":
                raise InvalidArgument(
                    "a tensor on the meta device has no numbers to use", "", user_line()
                )
            with torch.inference_mode():
                twin = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
                )
            self._constant_twins[id(tensor)] = twin
            self._constant_of[id(twin)] = tensor  # keeps it, and so its id
            self._constant_memory.add(_native.storage_id(twin))
            self._constant_use[id(tensor)] = _version(tensor), user_line()
        else:
            self._check_unchanged(tensor)
        return twin

    def _check_unchanged(self, constant: torch.Tensor) -> None:
        version, first_line = self._constant_use[id(constant)]
        if _version(constant) != version:
            raise InvalidArgument(
                f"an ordinary tensor of shape {list(constant.shape)} was changed after {first_line} "
                "used it: constants are read when the block ends",
                "use v.clone() there",
                user_line(),
            )

    def check_constants(self) -> None:
        """Refuses constants that are no more what they were at the line that used them first."""
        for constant in self._constant_of.values():
            self._check_unchanged(constant)

    def dispatched(self, func: Any, args: Any, kwargs: dict[str, Any], mode: _Mode) -> Any:
        """One operation, as torch's dispatcher sees it."""
        name = func.name()
        base = name.split("::")[1].split(".")[0]
        kwargs = {k: v for k, v in kwargs.items() if k not in _PLACEMENT_KEYWORDS}
        given = tensors_of((args, kwargs))
        if not any(t.device.type == "meta" for t in given):
            self._check_random(func, base, args, kwargs, mode)
            with torch.inference_mode(False):
                return map_tensors(self.twin, func(*args, **kwargs))  # a constant made on the way
        args, kwargs = map_tensors(self._as_twin, (args, kwargs))
        if base == "alias":  # h[:]: a view of everything is the value itself
            out = func(*args)
            if mode.recording:
                self._refs[id(out)] = self._ref(args[0])
                self._kept.append(out)
            return out
        if base == "lift_fresh" or (
            base in _DROPOUTS and not _argument(func, args, kwargs, "train")
        ):
            return args[0]
        if base == "to" and not any(isinstance(a, torch.dtype) for a in (*args, *kwargs.values())):
            return args[0]
        self._check_random(func, base, args, kwargs, mode)
        self._check_writes(func, args, kwargs, mode)
        if (
            base == "batch_norm"
            and _argument(func, args, kwargs, "training")
            and (_argument(func, args, kwargs, "running_mean") is not None)
        ):
            raise Unsupported(
                "batch_norm in training mode changes its module's running_mean and running_var",
                "call .eval() on the module",
                mode.where,
            )
        unknown = base in _LONGEST or (base == "index" and any(map(_is_mask, args[1])))
        mode.unknown_length |= unknown
        if base in _LONGEST:
            out = _LONGEST[base](*args)
        elif unknown:
            out = func(args[0], _longest_positions(args[1]))
        else:
            out = func(*args, **kwargs)
        if mode.recording:
            self._note(func, base, name, args, kwargs, out, mode)
        elif unknown:
            out = out[: max(out.size(0) - 1, 0)]
        return out

    def _note(
        self, func: Any, base: str, name: str, args: Any, kwargs: Any, out: Any, mode: _Mode
    ) -> None:
        outputs = [out] if isinstance(out, torch.Tensor) else list(tensors_of(out))
        if outputs and all(id(o) in self._refs or id(o) in self._constant_of for o in outputs):
            if not func._schema.is_mutable:
                return  # `contiguous` of what is contiguous: the value itself
        if base in _PIECES and self._note_pieces(base, func, args, kwargs, outputs, mode):
            return
        node = self.add_node("op", name, args, kwargs, mode.where, mode.grad)
        for index, output in enumerate(outputs):
            if id(output) not in self._refs:
                self._register(output, _native.ValueRef(node, index))

    def _note_pieces(
        self, base: str, func: Any, args: Any, kwargs: Any, outputs: list[torch.Tensor], mode: _Mode
    ) -> bool:
        """unbind, split, chunk: each piece is a select or slice of its own, noted when it is used."""
        whole, dim = args[0], _argument(func, args, kwargs, "dim")
        start = 0
        for index, output in enumerate(outputs):
            if base == "unbind":
                piece = ("aten::select.int", [whole, dim, index])
            else:
                end = start + output.size(dim)
                piece = ("aten::slice.Tensor", [whole, dim, start, end])
                start = end

            def make(piece: tuple[str, list[Any]] = piece, scope: Scope = self.scope) -> Any:
                now, self.scope = self.scope, scope
                try:
                    node = self.add_node("op", piece[0], piece[1], None, mode.where, mode.grad)
                finally:
                    self.scope = now
                return _native.ValueRef(node, 0)

            self._register(output, make)
        return True

    def _check_random(self, func: Any, base: str, args: Any, kwargs: Any, mode: _Mode) -> None:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return
        if base in _RANDOM_WITH and not _argument(func, args, kwargs, _RANDOM_WITH[base]):
            return
        hint = "draw the numbers before the block and use them as a constant"
        if base in _DROPOUTS or base in _RANDOM_WITH:
            hint = "call .eval() on the module, or pass training=False"
        raise Unsupported(f"{base} draws random numbers", hint, mode.where)

    def _check_writes(self, func: Any, args: Any, kwargs: Any, mode: _Mode) -> None:
        if not func._schema.is_mutable:
            return
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            target = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in tensors_of(target):
                if _native.storage_id(tensor) in self._constant_memory:
                    raise number_not_known(
                        f"{describe(self._constant_behind(tensor))} that {func.name()} would write "
                        "into",
                        mode.where,
                        "collect traced values with torch.stack or torch.cat, or write into "
                        "torch.zeros_like(a traced value)",
                    )

    def _constant_behind(self, twin: torch.Tensor) -> torch.Tensor:
        """The constant whose memory the twin, maybe a view, stands for."""
        memory = _native.storage_id(twin)
        return next(
            self._constant_of[id(whole)]
            for whole in self._constant_twins.values()
            if _native.storage_id(whole) == memory
        )

    # -- twins, constants, values -------------------------------------------------------------

    def _as_twin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.device.type == "meta" else self.twin(tensor)

    def _register(self, twin: torch.Tensor, ref: Any) -> None:
        self._refs[id(twin)] = ref
        self._kept.append(twin)

    def _ref(self, twin: torch.Tensor) -> Any:
        """What the program calls the value or constant that `twin` stands for."""
        ref = self._refs.get(id(twin))
        if ref is not None:
            if callable(ref):
                ref = self._refs[id(twin)] = ref()
            return ref
        real = self._constant_of.get(id(twin))
        if real is None:
            raise Error(f"a tensor of shape {list(twin.shape)} came from nowhere")
        index = self._constant_index.get(id(real))
        if index is None:
            index = self.program.add_constant(dtype_name(real.dtype), list(real.shape))
            self._constant_index[id(real)] = index
            self.constants.append(real)
        return _native.ConstantRef(index)

    def _wire(self, argument: Any) -> Any:
        """An argument as the program holds it."""
        if isinstance(argument, torch.Tensor):
            return self._ref(argument)
        if isinstance(argument, (list, tuple)):
            return [self._wire(item) for item in argument]
        if isinstance(argument, torch.dtype):
            return _native.DtypeArg(dtype_name(argument))
        return argument

    def _new_value(
        self, twin: torch.Tensor, other: torch.Tensor | None, where: str, label: str
    ) -> Value:
        value = Value._make(self, twin, other, where, label)
        self._values.setdefault(id(twin), value)
        return value

    def another(self, value: Value) -> Value:
        """A second object for the same value."""
        return Value._make(self, value._twin, value._other, value._where, value._label)

    def _wrap(self, out: Any, other: Any, where: str) -> Any:
        others = iter(tensors_of(other)) if other is not None else None

        def wrap(twin: torch.Tensor) -> torch.Tensor:
            second = next(others) if others is not None else None
            if id(twin) in self._constant_of and id(twin) not in self._refs:
                return self._constant_of[id(twin)]
            known = self._values.get(id(twin))
            if known is not None:
                return known
            if second is not None and second.shape == twin.shape:
                second = None
            return self._new_value(twin, second, where, "")

        return map_tensors(wrap, out)

    def check_open(self, action: str) -> None:
        if self.state == "recording":
            return
        if self.state == "failed":
            raise NotSaved(
                "this value has no numbers: its block ended with an error, so nothing ran", ""
            )
        raise NotSaved("the block of this trace is over", "compute inside the block")

    def close(self, state: str) -> None:
        """Nothing more is recorded; values that were not saved say so when they are used."""
        self.state = state
        for table in (self._refs, self._kept, self._constant_twins, self._constant_of):
            table.clear()  # type: ignore[attr-defined]


def _version(tensor: torch.Tensor) -> int:
    """Goes up with each change in place; inference tensors do not count theirs."""
    return -1 if tensor.is_inference() else tensor._version


# Results of unknown length: the longest they can be stands for them, and a shorter twin beside it
# shows which of the later dimensions depend on it.
_LONGEST: dict[str, Callable[..., torch.Tensor]] = {
    "nonzero": lambda x: torch.empty(x.numel(), x.dim(), dtype=torch.long, device="meta"),
    "argwhere": lambda x: torch.empty(x.numel(), x.dim(), dtype=torch.long, device="meta"),
    "masked_select": lambda x, mask: torch.empty(
        torch.broadcast_shapes(x.shape, mask.shape).numel(), dtype=x.dtype, device="meta"
    ),
}
_PIECES = ("unbind", "split", "split_with_sizes", "chunk", "tensor_split")


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True imports torch's compiler at the first operation: a second or more

    def __init__(self, recorder: Recorder, where: str, grad: bool, recording: bool) -> None:
        super().__init__()
        self.recorder, self.where, self.grad, self.recording = recorder, where, grad, recording
        self.unknown_length = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.recorder.dispatched(func, args, kwargs or {}, self)


def _is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _longest_positions(indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Masks as the positions that they would be if they were true everywhere."""
    positions: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or not _is_mask(index):
            positions.append(index)
        else:
            every = torch.empty(index.numel(), dtype=torch.long, device="meta")
            positions.extend([every] * index.dim())
    return positions


def _argument(func: Any, args: Any, kwargs: dict[str, Any], name: str) -> Any:
    """The argument of that name, its default when it was not given."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            if position < len(args):
                return args[position]
            if name in kwargs:
                return kwargs[name]
            return argument.default_value if argument.has_default_value() else None
    return None
