"""pip builds and installs the Python package."""

import os
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pip install .` into an empty folder. Without build isolation, which would download torch again; with the
    compiler's name of the dev preset, so that ccache finds what that has compiled."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-build-isolation",
        "--no-deps",
        "--target",
    ]
    environment = os.environ | {"CC": "cc", "CXX": "c++"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*command, str(folder), str(ROOT)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return folder


def test_the_installed_package_imports_and_runs_native_code(site: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import pellucid; from pellucid import _native;"
        "print(pellucid.__file__, _native.__file__)"
    )
    # -I: neither PYTHONPATH nor the current folder may supply the package.
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    package, native = done.stdout.split()
    assert Path(package) == site / "pellucid" / "__init__.py"
    assert Path(native).parent == site / "pellucid"


def test_it_requires_exactly_the_torch_that_it_was_compiled_for(site: Path) -> None:
    distribution = PathDistribution(next(site.glob("pellucid-*.dist-info")))
    assert "torch==2.13.0" in (distribution.requires or [])
    listed = re.search(r"project\(pellucid VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert listed and distribution.version == listed[1]


def test_it_finds_torch_beside_itself_and_names_no_folder_of_this_machine(site: Path) -> None:
    native = next((site / "pellucid").glob("_native*.so"))
    dynamic = subprocess.run(
        ["readelf", "-d", native], capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic) == ["$ORIGIN/../torch/lib"]
