"""cmake --install gives a package that a small project outside the tree builds with."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PELLUCID_BUILD", ROOT / "build" / "dev"))
MODELS = Path(os.environ.get("PELLUCID_MODELS", Path.home() / ".cache" / "pellucid" / "models"))
OUTSIDE = Path(__file__).parent / "outside_project"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    # Without the variables that could lead the outside project to the build tree.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH")
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def project_version() -> str:
    found = re.search(r"project\(pellucid VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert found
    return found[1]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed files, moved after the install: nothing in them may depend on where they were put."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--component", "library", "--prefix", folder / "first")
    (folder / "first").rename(folder / "moved")
    return folder / "moved"


def configure(prefix: Path, build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["cmake", "-G", "Ninja", "-S", str(OUTSIDE), "-B", str(build)]
    command += [f"-DCMAKE_PREFIX_PATH={prefix}", *options]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_project_outside_the_tree_builds_and_runs(prefix: Path, tmp_path: Path) -> None:
    done = configure(prefix, tmp_path / "build", f"-DPython_EXECUTABLE={sys.executable}")
    assert done.returncode == 0, done.stdout
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "outside").strip() == project_version()
    model = MODELS / "smollm2-135m-q4_1.gguf"
    if model.exists():
        best = run(tmp_path / "build" / "outside", model).splitlines()[0].split()
        assert best[0] == "Rome"
        assert float(best[1]) == pytest.approx(16.435, abs=1e-3)


def test_torch_is_found_through_its_folder_as_well(prefix: Path, tmp_path: Path) -> None:
    import torch

    folder = Path(torch.__file__).parent
    done = configure(prefix, tmp_path / "build", f"-DPELLUCID_TORCH_DIR={folder}")
    assert done.returncode == 0, done.stdout


def test_a_folder_without_torch_is_refused_with_what_to_do(prefix: Path, tmp_path: Path) -> None:
    done = configure(prefix, tmp_path / "build", f"-DPELLUCID_TORCH_DIR={tmp_path}")
    assert done.returncode != 0
    assert "no LibTorch found" in done.stdout
    assert "pip install torch==2.13.0" in " ".join(done.stdout.split())


def test_another_torch_is_refused_by_its_version(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cpu.so").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
    done = configure(prefix, tmp_path / "build", f"-DPELLUCID_TORCH_DIR={tmp_path / 'torch'}")
    assert done.returncode != 0
    assert "is not torch 2.13.0 (__version__ = '2.9.1+cpu')" in " ".join(done.stdout.split())


def test_public_headers_compile_alone_without_torch(prefix: Path, tmp_path: Path) -> None:
    """Each header by itself, with nothing but the installed include folder (torch.h is the one that needs ATen)."""
    headers = sorted((prefix / "include" / "pellucid").glob("*.h"))
    assert (prefix / "include" / "pellucid" / "version.h") in headers
    compiler = shutil.which("g++") or "c++"
    for header in headers:
        if header.name == "torch.h":
            continue
        source = tmp_path / f"{header.stem}.cpp"
        source.write_text(f"#include <pellucid/{header.name}>\n")
        run(
            compiler,
            "-std=c++20",
            "-Wall",
            "-Werror",
            "-fsyntax-only",
            f"-I{prefix / 'include'}",
            source,
        )
