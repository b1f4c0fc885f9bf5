"""Executes a case by brute force on the reference model.

Groups run one after another, as they stand in the text. A line that reads a site runs the group's pass from its start,
with everything that has been written so far put in place, and takes the value. No order is worked out and nothing is
shared, so there is little to get wrong; it is slow, which tiny models forgive.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from case_runner.format import Case, Group, Line, Program
from case_runner.language import (
    Assign,
    CaseError,
    Evaluate,
    Interpreter,
    Read,
    Save,
    Update,
    Write,
)
from case_runner.reference_model import Cache, ReferenceModel, Tap

SiteAt = tuple[int, int, str]  # group, step, site


class TorchValues(Interpreter):
    """Real tensors and torch.ops.aten."""

    def __init__(self, floating: torch.dtype):
        super().__init__()
        self.floating = floating

    def dtype(self, name: str) -> torch.dtype:
        return getattr(torch, name)  # type: ignore[no-any-return]

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return getattr(torch.ops.aten, name)(*args, **kwargs)

    def index(self, value: Any, items: list[Any]) -> Any:
        return value[tuple(items)]

    def update(self, node: ast.expr, operation: str, value: Any) -> None:
        """The in-place statements, in torch's own words."""
        if isinstance(node, ast.Name):
            self.apply(self.names[node.id], operation, value)
            return
        assert isinstance(node, ast.Subscript)
        base, items = self.evaluate(node.value), tuple(self.index_items(node.slice))
        if any(isinstance(item, Tensor | list) for item in items):
            old = base[items]  # a copy
            base[items] = value if operation == "copy" else getattr(torch, operation)(old, value)
        elif operation == "copy":
            base[items] = value
        else:
            self.apply(base[items], operation, value)

    @staticmethod
    def apply(target: Tensor, operation: str, value: Any) -> None:
        getattr(target, f"{operation}_")(value)


class Found(Exception):
    """Ends a pass at the site that is wanted."""

    def __init__(self, value: Tensor):
        self.value = value


@dataclass
class Live:
    """What stands at a site: put back in every pass from now on once it has been changed."""

    value: Tensor
    version: int
    written: bool = False

    @property
    def changed(self) -> bool:
        return self.written or self.value._version != self.version


@dataclass
class GroupRun:
    spec: Group
    input: Tensor  # [B, S]: what the next pass is fed
    forced: list[list[int]]  # tokens that sampling gave in the run under test; empty: greedy
    tokens: list[list[int]] = field(default_factory=list)  # new ones, by row
    cache: Cache = field(default_factory=dict)  # before the next pass
    steps_run: int = 0


class Reference(TorchValues):
    def __init__(
        self,
        model: ReferenceModel,
        prompts: "PromptReader",
        canonical: Callable[[str], str] = lambda site: site,
    ):
        super().__init__(model.dtype)
        self.canonical = canonical
        self.model = model
        self.prompts = prompts
        self.live: dict[SiteAt, Live] = {}
        self.groups: list[GroupRun] = []
        self.saved: dict[str, Tensor] = {}
        self.stacks: dict[str, list[Tensor]] = {}

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "unembed":
            return self.model.unembed(args[0])
        if name == "ln_final":
            return self.model.ln_final(args[0])
        return super().call(name, args, kwargs)

    def run(self, program: Program, sampled: list[list[list[int]]]) -> None:
        """`sampled`: by group and row, the new tokens of the run under test, for groups with a temperature."""
        self.live.clear()
        self.groups = []
        for index, spec in enumerate(program.groups):
            forced = sampled[index] if spec.sampling.get("temperature") else []
            prompt = self.prompts(spec)
            self.groups.append(GroupRun(spec, prompt, forced, [[] for _ in prompt]))
        for index in range(len(program.groups)):
            self.run_group(index, [line for line in program.lines if line.group == index])
        for line in program.lines:
            if line.group < 0:
                self.statement(line, 0)

    def run_group(self, index: int, lines: list[Line]) -> None:
        """Step by step; within a step in the order of the lines."""
        group = self.groups[index]
        for step in range(max(1, group.spec.generate)):
            group.steps_run = step + 1
            for line in lines:
                if line.step_first <= step < line.step_end:
                    self.statement(line, step)
            cache = dict(group.cache)
            logits = self.model.forward(group.input, cache, self.tap(index, step))
            if group.spec.generate == 0:
                return
            group.cache, group.input = cache, self.next_tokens(group, step, logits[:, -1])
            if all(self.ended(group, row) for row in group.tokens):
                return

    # ---- lines

    def statement(self, line: Line, step: int) -> None:
        match line.statement:
            case Read(name, site):
                self.names[name] = self.read(line.group, step, site)
            case Write(site, value):
                old = self.read(line.group, step, site)
                new = torch.as_tensor(self.evaluate(value)).to(old.dtype)
                if new.shape != old.shape:
                    raise CaseError(f"write {site}: {tuple(new.shape)} for {tuple(old.shape)}")
                self.live[line.group, step, self.canonical(site)] = Live(
                    new.clone(), 0, written=True
                )
            case Save(name, value):
                read = isinstance(value, str)
                tensor = self.read(line.group, step, value) if read else self.evaluate(value)  # type: ignore[arg-type]
                if line.per_step:
                    self.stacks.setdefault(name, []).append(tensor.clone())
                    tensor = torch.stack(self.stacks[name])
                self.saved[name] = tensor.clone()
            case Assign(names, value, unpack):
                result = self.evaluate(value)
                self.names.update(zip(names, result if unpack else [result], strict=True))
            case Update(target, operation, value):
                self.update(target, operation, self.evaluate(value))
            case Evaluate(value):
                self.evaluate(value)

    # ---- passes

    def read(self, group: int, step: int, site: str) -> Tensor:
        key = (group, step, self.canonical(site))
        if key not in self.live:
            value = self.value_at(*key).clone()
            self.live[key] = Live(value, value._version)
        return self.live[key].value

    def value_at(self, index: int, step: int, site: str) -> Tensor:
        group = self.groups[index]
        try:
            self.model.forward(group.input, dict(group.cache), self.tap(index, step, site))
        except Found as found:
            return found.value
        raise AssertionError(f"{site} does not fire")

    def tap(self, group: int, step: int, wanted: str | None = None) -> Tap:
        def at_site(site: str, value: Tensor) -> Tensor:
            live = self.live.get((group, step, site))
            if live is not None and live.changed:
                value = live.value
            if site == wanted:
                raise Found(value)
            return value

        return at_site

    def ended(self, group: GroupRun, tokens: list[int]) -> bool:
        if not tokens:
            return False
        return tokens[-1] in self.prompts.eos or self.prompts.stopped(tokens, group.spec.stop)

    def next_tokens(self, group: GroupRun, step: int, logits: Tensor) -> Tensor:
        chosen = []
        for row, greedy in enumerate(logits.argmax(-1).tolist()):
            done = self.ended(group, group.tokens[row])
            if not done and group.forced:
                greedy = group.forced[row][step]
            chosen.append(greedy)
            if not done:
                group.tokens[row].append(greedy)
        return torch.tensor(chosen)[:, None]


class PromptReader:
    """Text and ids to tokens, with the `tokenizers` library."""

    def __init__(self, tokenizer: Any, eos: list[int]):
        self.tokenizer = tokenizer
        self.eos = set(eos)

    def ids(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, list):
            return prompt
        return list(self.tokenizer.encode(prompt, add_special_tokens=False).ids)

    def __call__(self, group: Group) -> Tensor:
        return torch.tensor([self.ids(prompt) for prompt in group.prompts])

    def stopped(self, tokens: list[int], stops: list[str]) -> bool:
        text = self.tokenizer.decode(tokens) if stops else ""
        return any(stop in text for stop in stops)


def constants(case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    """The case's constants: the same numbers in every dtype, as far as it can hold them."""
    maker = ConstantMaker(dtype)
    for constant in case.constants:
        maker.names[constant.name] = maker.evaluate(constant.value)
    return maker.names


class ConstantMaker(TorchValues):
    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "randn":
            generator = torch.Generator().manual_seed(kwargs.pop("seed"))
            # In float32, so that models of every dtype get the same numbers.
            return torch.randn(args, generator=generator).to(self.floating)
        if name in ("zeros", "ones"):
            return getattr(torch, name)(args, dtype=self.floating)
        if name == "ids":
            return torch.tensor(args)
        if name == "arange":
            return torch.arange(*args)
        if name == "values":
            return torch.tensor(args, dtype=self.floating)
        return super().call(name, args, kwargs)
