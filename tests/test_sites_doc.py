"""docs/reference/sites.md is what the lists in the code say."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("PELLUCID_BUILD", ROOT / "build/dev"))


def test_the_reference_of_sites_is_current() -> None:
    program = BUILD / "src/model/tests/make_sites_doc"
    if not program.exists():
        pytest.fail(f"{program} is missing: cmake --build build/dev --target make_sites_doc")
    wanted = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    page = ROOT / "docs/reference/sites.md"
    assert page.read_text() == wanted, (
        f"run {program.relative_to(BUILD)} > {page.relative_to(ROOT)}"
    )
