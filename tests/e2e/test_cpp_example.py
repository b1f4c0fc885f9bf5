"""examples/cpp, built against the public headers, on the real model: the values are the reference's."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PELLUCID_BUILD", ROOT / "build" / "dev"))
EXAMPLE = BUILD / "examples" / "cpp" / "first_light"
MODELS = Path(os.environ.get("PELLUCID_MODELS", Path.home() / ".cache" / "pellucid" / "models"))

pytestmark = [
    pytest.mark.skipif(not EXAMPLE.exists(), reason=f"{EXAMPLE} is not built"),
    pytest.mark.skipif(
        not (MODELS / "smollm2-135m-q4_1.gguf").exists(), reason=f"no SmolLM2 in {MODELS}"
    ),
]


def test_first_light_turns_paris_into_rome() -> None:
    environment = os.environ | {"PELLUCID_MODELS": str(MODELS)}
    done = subprocess.run([EXAMPLE], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(None, 2) for line in done.stdout.splitlines()]
    assert [row[1] for row in rows] == ["Paris", "Rome", "Rome", "Rome", "Rome", "Paris"]
    logits = [float(row[2]) for row in rows]
    expected = [17.371, 16.508, 16.331, 16.716, 16.790, 17.493]
    assert logits == pytest.approx(expected, abs=1.1e-3)


def test_first_light_says_what_is_wrong() -> None:
    done = subprocess.run([EXAMPLE, "no-such-model"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no-such-model" in done.stderr
