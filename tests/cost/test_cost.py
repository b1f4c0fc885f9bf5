"""What is not observed costs nothing: a forward pass without a program against the same model code with its taps
compiled out. Operations are counted exactly, instructions by callgrind."""

import pathlib
import re
import shutil
import subprocess

import pytest
import reference

BUILD = pathlib.Path(__file__).parents[2] / "build" / "dev" / "tests" / "cost"
WITH, WITHOUT = BUILD / "count_pass", BUILD / "count_pass_without_taps"


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model_folder(request, tmp_path_factory):
    make = {"llama": reference.tiny_llama, "gpt2": reference.tiny_gpt2}[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    make(folder)
    return folder


def operations(program: pathlib.Path, folder: pathlib.Path) -> int:
    out = subprocess.run([program, folder, "12", "1"], capture_output=True, text=True, check=True)
    return int(out.stdout)


def instructions(program: pathlib.Path, folder: pathlib.Path, tmp_path: pathlib.Path) -> int:
    """Of ten passes over twelve tokens, all that is called from there included."""
    out = subprocess.run(
        ["valgrind", "--tool=callgrind", "--toggle-collect=measured_passes", "--collect-atstart=no",
         f"--callgrind-out-file={tmp_path / 'callgrind.out'}", program, folder, "12", "10"],
        capture_output=True, text=True, check=True)  # fmt: skip
    return int(re.search(r"Collected : (\d+)", out.stderr).group(1))


def test_taps_that_nobody_watches_dispatch_no_operation(model_folder):
    counted = operations(WITH, model_folder)
    assert counted > 20
    assert counted == operations(WITHOUT, model_folder)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_taps_that_nobody_watches_cost_less_than_half_a_percent_of_the_instructions(
    model_folder, tmp_path
):
    with_taps = instructions(WITH, model_folder, tmp_path)
    without = instructions(WITHOUT, model_folder, tmp_path)
    assert without > 1e6
    assert with_taps <= 1.005 * without, f"{with_taps} instructions, {without} without taps"
