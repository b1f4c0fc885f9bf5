"""Writes a case's lines as a program: one node an operation, overloads chosen as torch chooses them."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from case_runner.format import Line, Program
from case_runner.language import (
    MODEL_CALLS,
    Assign,
    CaseError,
    Evaluate,
    Interpreter,
    Read,
    Save,
    Update,
    Write,
)

STAND_IN = torch.zeros(1, 1)  # for a value whose numbers are not known when an overload is chosen


@dataclass(frozen=True)
class Node:
    """A node's outputs before somebody takes one."""

    index: int


@dataclass
class Recorded:
    """A program and its constants: what a job of the engine holds."""

    program: Any  # pellucid._native.Program
    constants: list[Tensor] = field(default_factory=list)


class Recorder(Interpreter):
    """`tokens_of` makes a group's rows of ids from its prompts; `constants` are tensors by name."""

    def __init__(
        self,
        program: Program,
        constants: dict[str, Tensor],
        tokens_of: Callable[[str | list[int]], list[int]],
        case: str = "case",
    ):
        super().__init__()
        from pellucid import _native

        self.native = _native
        self.case = case
        self.constants = constants
        self.used: dict[str, Any] = {}
        self.out = Recorded(_native.Program())
        self.scope: tuple[int, int, int, bool] = (-1, 0, 1, False)
        self.where = ""
        for group in program.groups:
            self.out.program.add_group(
                [tokens_of(prompt) for prompt in group.prompts],
                max_new_tokens=group.generate,
                seed=group.seed,
                stop=group.stop,
                where=f"{case}.case:{group.line}",
                **group.sampling,
            )
        for line in program.lines:
            self.line(line)

    # ---- nodes

    def node(
        self, kind: str, name: str, args: list[Any], kwargs: dict[str, Any] | None = None
    ) -> int:
        args, kwargs = self.wire(args), self.wire(kwargs or {})
        grad = False
        return int(
            self.out.program.add_node(kind, name, args, kwargs, *self.scope, grad, self.where)
        )

    def wire(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.native.ValueRef(value.index, 0)
        if isinstance(value, torch.dtype):
            return self.native.DtypeArg(str(value).removeprefix("torch."))
        if isinstance(value, list):
            return [self.wire(item) for item in value]
        if isinstance(value, dict):
            return {key: self.wire(item) for key, item in value.items()}
        return value

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in MODEL_CALLS:
            if name == "weight":
                return Node(self.node("weight", args[0], []))
            return Node(self.node("part", name, args))
        overload = torch._C._jit_resolve_packet(
            f"aten::{name}", *stand_in(args), **stand_in(kwargs)
        )
        full = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
        return Node(self.node("op", full, args, kwargs))

    def evaluate(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in self.constants and node.id not in self.names:
            return self.constant(node.id)
        return super().evaluate(node)

    def constant(self, name: str) -> Any:
        if name not in self.used:
            self.used[name] = self.add_constant(self.constants[name])
        return self.used[name]

    def add_constant(self, tensor: Tensor) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.out.constants.append(tensor)
        return self.native.ConstantRef(self.out.program.add_constant(dtype, list(tensor.shape)))

    def dtype(self, name: str) -> torch.dtype:
        return getattr(torch, name)  # type: ignore[no-any-return]

    # ---- indexing

    def view(self, value: Any, items: list[Any]) -> tuple[Any, list[Any]]:
        """The view that numbers, ranges and None select, and the list of indices for the rest (maybe empty)."""
        dim, indices = 0, []
        for item in items:
            if item is None:
                value = self.call("unsqueeze", [value, dim], {})
            elif isinstance(item, bool) or item is Ellipsis:
                raise CaseError("index with numbers, ranges, None and tensors")
            elif isinstance(item, int):
                value = self.call("select", [value, dim, item], {})
                continue
            elif isinstance(item, slice):
                if item != slice(None):
                    bounds = [item.start, item.stop, 1 if item.step is None else item.step]
                    value = self.call("slice", [value, dim, *bounds], {})
            else:
                if isinstance(item, list):
                    item = self.add_constant(torch.tensor(item))
                indices += [None] * (dim - len(indices)) + [item]
            dim += 1
        return value, indices

    def index(self, value: Any, items: list[Any]) -> Any:
        view, indices = self.view(value, items)
        return self.call("index", [view, indices], {}) if indices else view

    def update(self, target: ast.expr, operation: str, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.in_place(self.evaluate(target), operation, value)
            return
        assert isinstance(target, ast.Subscript)
        view, indices = self.view(self.evaluate(target.value), self.index_items(target.slice))
        if not indices:
            self.in_place(view, operation, value)
            return
        if operation != "copy":
            value = self.call(operation, [self.call("index", [view, indices], {}), value], {})
        self.call("index_put_", [view, indices, value], {})

    def in_place(self, target: Any, operation: str, value: Any) -> None:
        if operation == "copy" and isinstance(value, int | float):
            operation = "fill"
        self.call(f"{operation}_", [target, value], {})

    # ---- lines

    def line(self, line: Line) -> None:
        self.scope = (line.group, line.step_first, line.step_end, line.per_step)
        self.where = f"{self.case}.case:{line.line}"
        match line.statement:
            case Read(name, site):
                self.names[name] = self.read(site)
            case Write(site, value):
                self.node("write", site, [self.evaluate(value)])
            case Save(name, value):
                read = isinstance(value, str)
                self.save(name, self.read(value) if read else self.evaluate(value))  # type: ignore[arg-type]
            case Assign(names, value, unpack):
                result = self.evaluate(value)
                if unpack:
                    outputs = [self.native.ValueRef(result.index, i) for i in range(len(names))]
                    self.names.update(zip(names, outputs, strict=True))
                else:
                    self.names[names[0]] = result
            case Update(target, operation, value):
                self.update(target, operation, self.evaluate(value))
            case Evaluate(value):
                self.evaluate(value)

    def read(self, site: str) -> Node:
        return Node(self.node("read", site, []))

    def save(self, name: str, value: Any) -> None:
        self.node("save", name, [value])

    def watch(self, sites: list[str], group: int, steps: int) -> None:
        """Reads and saves every site of the group at every step."""
        self.where = "watched"
        for step in range(steps):
            self.scope = (group, step, step + 1, False)
            for site in sites:
                self.save(f"watched.{group}.{step}.{site}", self.read(site))


def stand_in(value: Any) -> Any:
    """The same arguments with tensors for values, from which torch chooses an overload."""
    if isinstance(value, list):
        return [stand_in(item) for item in value]
    if isinstance(value, dict):
        return {key: stand_in(item) for key, item in value.items()}
    plain = value is None or isinstance(value, bool | int | float | str | torch.dtype)
    return value if plain else STAND_IN
