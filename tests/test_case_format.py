"""Case files say what they mean: unknown words are errors that name the line."""

import pytest
from case_runner.format import parse_case
from case_runner.language import CaseError

GOOD = """# A promise.
models tiny_llama
group "The cat"
h = read blocks.1.resid_post
save h
expect shape h == 1x5x36
"""


def test_reads_a_case() -> None:
    case = parse_case("good", GOOD)
    assert case.promise == "A promise."
    assert case.dtypes == ["float32", "float64", "bfloat16"]
    assert [group.prompts for group in case.programs[0].groups] == [["The cat"]]
    assert [line.line for line in case.programs[0].lines] == [4, 5]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("models tiny_lama", "no model named tiny_lama"),
        ("dtypes float16", "dtypes are"),
        ("group [1] temprature 2", "temprature"),
        ("group [1] generate x", "generate"),
        ("step one", "one number"),
        ("steps 3", "range"),
        ("in nowhere", "no group nowhere"),
        ("h = reed blocks.1.resid_post", "cannot read"),
        ("h = soft_max(h, -1)", "aten::soft_max"),
        ("h = h if h else h", "IfExp"),
        ("h = __import__('os')", "aten::__import__"),
        ("relu(h)", "operation in place"),
        ("h += lambda: 1", "Lambda"),
        ("expect h", "expect takes one of"),
        ("expect h === 1", "expect takes one of"),
        ("expect shape h == big", "1x5x16"),
        ("expect error not_found missing", "quotes"),
        ("on tiny_gpt2 expect h == 1", "one of the case's models"),
        ("reference on", "reference off"),
        ("run away", "alone"),
    ],
)
def test_refuses_unknown_words(line: str, complaint: str) -> None:
    lines = GOOD.splitlines()
    lines.insert(4, line)
    with pytest.raises(CaseError, match="bad.case:5") as raised:
        parse_case("bad", "\n".join(lines))
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    "missing", ["# A promise.", "models tiny_llama", "expect shape h == 1x5x36"]
)
def test_a_case_has_a_promise_models_and_expectations(missing: str) -> None:
    with pytest.raises(CaseError):
        parse_case("bad", GOOD.replace(missing, ""))


def test_lines_before_the_first_group_are_refused() -> None:
    with pytest.raises(CaseError, match="before the first group"):
        parse_case("bad", GOOD.replace('group "The cat"\n', ""))
