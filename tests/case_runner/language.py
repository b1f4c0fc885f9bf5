"""Expressions and statements of case files.

They are written like Python, but only what is listed here exists: names, numbers, lists, indexing, arithmetic and calls
of ATen operations. The same tree is recorded as a program, executed by the reference and evaluated in expectations;
the three differ in the class that they derive from `Interpreter`.
"""

import ast
import re
from dataclasses import dataclass
from typing import Any

import torch


class CaseError(Exception):
    """A mistake in a case file itself."""


DTYPES = {"float64", "float32", "bfloat16", "int64", "bool"}
MODEL_CALLS = {"unembed", "ln_final", "weight"}
BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
}
COMMUTES = {"add", "mul"}
COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
LEAVES = (ast.Load, ast.Store, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult, ast.Pow, ast.USub)
LEAVES += (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ALLOWED = (
    *(ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Subscript, ast.Slice, ast.Attribute),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, *LEAVES),
)


@dataclass
class Read:
    """name = read site"""

    name: str
    site: str


@dataclass
class Write:
    """write site = value"""

    site: str
    value: ast.expr


@dataclass
class Save:
    """save name; save name = value; save name = read site"""

    name: str
    value: "ast.expr | str"  # a site's name after `read`


@dataclass
class Assign:
    """a = value; a, b = value"""

    names: list[str]
    value: ast.expr
    unpack: bool


@dataclass
class Update:
    """In place: x += value, x[i] += value, x[i] = value (operation "copy")"""

    target: ast.expr
    operation: str
    value: ast.expr


@dataclass
class Evaluate:
    """A call for its effect: mul_(h, 2)"""

    value: ast.expr


Statement = Read | Write | Save | Assign | Update | Evaluate


def check(tree: ast.AST, extra_calls: frozenset[str] = frozenset()) -> None:
    """Refuses everything that the language does not have."""
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED):
            raise CaseError(f"{type(node).__name__} is not part of the language")
        if isinstance(node, ast.Compare) and len(node.ops) != 1:
            raise CaseError("one comparison at a time")
        if isinstance(node, ast.Call):
            name = called(node)
            known = name in MODEL_CALLS or name in extra_calls or hasattr(torch.ops.aten, name)
            if not known:
                raise CaseError(f"there is no operation aten::{name}")


def called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    raise CaseError("only names can be called")


def parse_expression(text: str, extra_calls: frozenset[str] = frozenset()) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise CaseError(f"cannot read {text!r}: {error.msg}") from None
    check(tree, extra_calls)
    return tree


def parse_statement(text: str) -> Statement:
    if match := re.fullmatch(r"write (\S+) = (.+)", text):
        return Write(match[1], parse_expression(match[2]))
    if match := re.fullmatch(r"save (\w+)(?: = (.+))?", text):
        value = match[2] or match[1]
        read = re.fullmatch(r"read (\S+)", value)
        return Save(match[1], read[1] if read else parse_expression(value))
    if match := re.fullmatch(r"(\w+) = read (\S+)", text):
        return Read(match[1], match[2])
    try:
        (tree,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise CaseError(f"cannot read {text!r}") from None
    return python_statement(tree)


def python_statement(tree: ast.stmt) -> Statement:
    if isinstance(tree, ast.Expr):
        check(tree.value)
        if not (isinstance(tree.value, ast.Call) and called(tree.value).endswith("_")):
            raise CaseError("a line alone is an operation in place, such as mul_(h, 2)")
        return Evaluate(tree.value)
    if isinstance(tree, ast.AugAssign):
        operation = BINARY.get(type(tree.op))
        if operation is None or not isinstance(tree.target, ast.Name | ast.Subscript):
            raise CaseError("in place there are +=, -=, *= and /= of a name or of name[...]")
        check(tree.target)
        check(tree.value)
        return Update(tree.target, operation, tree.value)
    if not isinstance(tree, ast.Assign) or len(tree.targets) != 1:
        raise CaseError("a line is read, write, save, an assignment or an operation in place")
    (target,) = tree.targets
    check(tree.value)
    if isinstance(target, ast.Subscript):
        check(target)
        return Update(target, "copy", tree.value)
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    if not all(isinstance(name, ast.Name) for name in names):
        raise CaseError("assign to names")
    return Assign([n.id for n in names], tree.value, isinstance(target, ast.Tuple))  # type: ignore[attr-defined]


class Interpreter:
    """Walks expressions. A value is whatever the derived class makes of operations."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    # What a derived class decides.
    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def index(self, value: Any, items: list[Any]) -> Any:
        raise NotImplementedError

    def dtype(self, name: str) -> Any:
        raise NotImplementedError

    def attribute(self, name: str, attribute: str) -> Any:
        raise CaseError(f"{name}.{attribute}: there are no attributes here")

    def evaluate(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id in self.names:
                    return self.names[node.id]
                if node.id in DTYPES:
                    return self.dtype(node.id)
                raise CaseError(f"there is no value named {node.id}")
            case ast.List() | ast.Tuple():
                return [self.evaluate(item) for item in node.elts]
            case ast.Attribute(value=ast.Name()):
                return self.attribute(node.value.id, node.attr)
            case ast.Subscript():
                return self.index(self.evaluate(node.value), self.index_items(node.slice))
            case ast.UnaryOp():
                operand = self.evaluate(node.operand)
                return -operand if is_number(operand) else self.call("neg", [operand], {})
            case ast.Compare():
                left, right = self.evaluate(node.left), self.evaluate(node.comparators[0])
                return self.call(COMPARE[type(node.ops[0])], [left, right], {})
            case ast.BinOp():
                return self.binary(node)
            case ast.Call():
                return self.evaluate_call(node)
        raise CaseError(f"{type(node).__name__} cannot stand here")

    def binary(self, node: ast.BinOp) -> Any:
        name = BINARY[type(node.op)]
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if is_number(left) and is_number(right):
            return eval(compile(ast.Expression(node), "case", "eval"), {"__builtins__": {}})
        if is_number(left):
            if name in COMMUTES:
                left, right = right, left
            elif name == "sub":
                name, left, right = "rsub", right, left
            elif name == "div":
                reciprocal = self.call("reciprocal", [right], {})
                return self.call("mul", [reciprocal, left], {})
        return self.call(name, [left, right], {})

    def evaluate_call(self, node: ast.Call) -> Any:
        args = [self.evaluate(arg) for arg in node.args]
        if isinstance(node.func, ast.Attribute):
            args.insert(0, self.evaluate(node.func.value))
        kwargs = {str(keyword.arg): self.evaluate(keyword.value) for keyword in node.keywords}
        return self.call(called(node), args, kwargs)

    def index_items(self, node: ast.expr) -> list[Any]:
        items = node.elts if isinstance(node, ast.Tuple) else [node]
        return [self.index_item(item) for item in items]

    def index_item(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if part is None else self.evaluate(part) for part in parts))
        return self.evaluate(node)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)
