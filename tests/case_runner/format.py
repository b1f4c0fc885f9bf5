"""Reads case files. docs/reference/cases.md describes the format; unknown words are errors here."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from case_runner import models
from case_runner.language import CaseError, Statement, parse_expression, parse_statement

CONSTANT_MAKERS = frozenset({"randn", "zeros", "ones", "arange", "ids", "values"})
EXPECT_CALLS = frozenset({"golden"})
NUMBER_OPTIONS = {"generate": int, "seed": int, "top_k": int}
NUMBER_OPTIONS |= {
    "temperature": float,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
}  # type: ignore[dict-item]
DTYPES = ("float32", "float64", "bfloat16")


@dataclass
class Constant:
    name: str
    value: ast.expr


@dataclass
class Group:
    name: str
    prompts: list[str | list[int]]
    generate: int = 0
    sampling: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    stop: list[str] = field(default_factory=list)
    line: int = 0


@dataclass
class Line:
    statement: Statement
    group: int  # -1: outside of groups
    step_first: int
    step_end: int
    per_step: bool
    line: int


@dataclass
class Program:
    """What one `run` of the engine gets."""

    groups: list[Group] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


@dataclass
class Expect:
    kind: str  # an operator of COMPARISONS, or a word of WORDS
    left: ast.expr | None = None
    right: ast.expr | None = None
    atol: float | None = None
    texts: list[str] = field(default_factory=list)
    code: str = ""
    model: str = ""  # only on this one
    line: int = 0


@dataclass
class Case:
    name: str
    promise: str = ""
    models: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    programs: list[Program] = field(default_factory=lambda: [Program()])
    expects: list[Expect] = field(default_factory=list)
    reference: bool = True

    @property
    def refused(self) -> bool:
        return any(expect.kind == "error" for expect in self.expects)


COMPARISONS = (" == ", " != ", " ~ ", " <= ", " >= ", " < ", " > ")
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[[^\]]*\]|\S+')


class Parser:
    def __init__(self, name: str):
        self.case = Case(name)
        self.group = -1
        self.steps = (0, 1, False)
        self.number = 0

    def parse(self, text: str) -> Case:
        for self.number, raw in enumerate(text.splitlines(), 1):
            line = raw.strip()
            try:
                self.line(line)
            except CaseError as error:
                raise CaseError(f"{self.case.name}.case:{self.number}: {error}") from None
        case = self.case
        if not case.promise:
            raise CaseError(f"{case.name}: a case begins with a comment that says its promise")
        if not case.models or not case.expects:
            raise CaseError(f"{case.name}: a case has models and expectations")
        case.dtypes = case.dtypes or default_dtypes(case.models)
        return case

    def line(self, line: str) -> None:
        if line.startswith("#"):
            if not self.case.models:
                self.case.promise = f"{self.case.promise} {line[1:].strip()}".strip()
            return
        if not line:
            return
        word, _, rest = line.partition(" ")
        header = getattr(self, f"read_{word}", None)
        if header is not None:
            header(rest.strip())
        else:
            self.add_statement(line)

    def add_statement(self, line: str) -> None:
        if self.group < 0 and not self.program.groups:
            raise CaseError(f"{line!r} stands before the first group")
        self.program.lines.append(
            Line(parse_statement(line), self.group, *self.steps, line=self.number)
        )

    @property
    def program(self) -> Program:
        return self.case.programs[-1]

    # ---- headers: read_<word>

    def read_models(self, rest: str) -> None:
        self.case.models = rest.split()
        for name in self.case.models:
            if name not in models.NAMES:
                raise CaseError(f"no model named {name}; there are {', '.join(models.NAMES)}")

    def read_dtypes(self, rest: str) -> None:
        self.case.dtypes = rest.split()
        if not set(self.case.dtypes) <= set(DTYPES):
            raise CaseError(f"dtypes are {', '.join(DTYPES)}")

    def read_reference(self, rest: str) -> None:
        if rest != "off":
            raise CaseError("only `reference off` can be said: on is the default")
        self.case.reference = False

    def read_constant(self, rest: str) -> None:
        name, _, value = rest.partition(" = ")
        tree = parse_expression(value, CONSTANT_MAKERS)
        self.case.constants.append(Constant(name, tree))

    def read_run(self, rest: str) -> None:
        if rest:
            raise CaseError("`run` stands alone")
        self.case.programs.append(Program())
        self.group, self.steps = -1, (0, 1, False)

    def read_outside(self, rest: str) -> None:
        if rest:
            raise CaseError("`outside` stands alone")
        self.group, self.steps = -1, (0, 1, False)

    def read_in(self, rest: str) -> None:
        names = [group.name for group in self.program.groups]
        if rest not in names:
            raise CaseError(f"in: no group {rest}")
        self.group, self.steps = names.index(rest), (0, 1, False)

    def read_step(self, rest: str) -> None:
        if not rest.isdigit():
            raise CaseError("step takes one number")
        self.steps = (int(rest), int(rest) + 1, False)

    def read_steps(self, rest: str) -> None:
        match = re.fullmatch(r"(\d+):(\d+)", rest)
        if match is None:
            raise CaseError("steps takes a range, such as 1:3")
        self.steps = (int(match[1]), int(match[2]), True)

    def read_group(self, rest: str) -> None:
        words = TOKEN.findall(rest)
        group = Group(name=str(len(self.program.groups)), prompts=[], line=self.number)
        if words and re.fullmatch(r"[a-z]\w*:", words[0]):
            group.name = words.pop(0)[:-1]
        while words and words[0][0] in '"[':
            group.prompts.append(ast.literal_eval(words.pop(0)))
        while words:
            self.group_option(group, words)
        if any(other.name == group.name for other in self.program.groups):
            raise CaseError(f"two groups named {group.name}")
        self.program.groups.append(group)
        self.group, self.steps = len(self.program.groups) - 1, (0, 1, False)

    def group_option(self, group: Group, words: list[str]) -> None:
        word = words.pop(0)
        value = words.pop(0) if words else ""
        if word == "stop":
            group.stop.append(ast.literal_eval(value))
            return
        if word not in NUMBER_OPTIONS or not re.fullmatch(r"[-+.\de]+", value):
            raise CaseError(f"group: {word} {value}: options are {', '.join(NUMBER_OPTIONS)}, stop")
        number = NUMBER_OPTIONS[word](value)
        if word in ("generate", "seed"):
            setattr(group, word, number)
        else:
            group.sampling[word] = number

    def read_on(self, rest: str) -> None:
        model, _, rest = rest.partition(" ")
        if model not in self.case.models or not rest.startswith("expect "):
            raise CaseError("on MODEL expect ...: for one of the case's models")
        self.read_expect(rest.removeprefix("expect "))
        self.case.expects[-1].model = model

    def read_expect(self, rest: str) -> None:
        self.case.expects.append(parse_expect(rest))
        self.case.expects[-1].line = self.number


def parse_expect(text: str) -> Expect:
    word, _, rest = text.partition(" ")
    if word in ("error", "warning"):
        code = ""
        if word == "error":
            code, _, rest = rest.partition(" ")
        texts = [ast.literal_eval(token) for token in TOKEN.findall(rest) if token.startswith('"')]
        if len(texts) != len(TOKEN.findall(rest)):
            raise CaseError(f"expect {word}: texts stand in quotes")
        return Expect(word, texts=texts, code=code)
    if word == "no" and rest == "warning":
        return Expect("no warning")
    if word == "missing":
        return Expect("missing", left=parse_expression(rest))
    if word == "shape":
        left, _, shape = rest.partition(" == ")
        if not re.fullmatch(r"\d+(x\d+)*|scalar", shape):
            raise CaseError("a shape is written 1x5x16, or scalar")
        return Expect("shape", left=parse_expression(left), texts=[shape])
    found = [operator for operator in COMPARISONS if operator in text]
    if len(found) != 1:
        raise CaseError(
            "expect takes one of == != ~ < > <= >=, or a word: see docs/reference/cases.md"
        )
    left, _, right = text.partition(found[0])
    atol = None
    if match := re.fullmatch(r"(.+) atol ([\d.e+-]+)", right):
        right, atol = match[1], float(match[2])
    return Expect(
        found[0].strip(),
        parse_expression(left, EXPECT_CALLS),
        parse_expression(right, EXPECT_CALLS),
        atol,
    )


def default_dtypes(names: list[str]) -> list[str]:
    return ["float32"] if all(models.is_real(name) for name in names) else list(DTYPES)


def parse_case(name: str, text: str) -> Case:
    return Parser(name).parse(text)


def read_case(path: Path) -> Case:
    return parse_case(path.stem, path.read_text(encoding="utf-8"))
