"""Options of the tests that run case files; ./dev test and ./dev matrix give the same through the environment."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pellucid")
    group.addoption(
        "--layouts",
        default=os.environ.get("PELLUCID_LAYOUTS", "all"),
        help="case files: all, or a list such as local,batched",
    )
    group.addoption(
        "--seed",
        type=int,
        default=int(os.environ.get("PELLUCID_TEST_SEED", "1")),
        help="case files: which strangers surround a case",
    )
