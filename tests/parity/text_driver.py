"""Talks to the C++ program text_driver: one process, a JSON request and an answer a line."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PELLUCID_BUILD", ROOT / "build/dev"))
MODELS = pathlib.Path(os.environ.get("PELLUCID_MODELS", "~/.cache/pellucid/models")).expanduser()
SMOLLM2 = MODELS / "smollm2-135m"


class Driver:
    def __init__(self, **load):
        program = BUILD / "tests/parity/text_driver"
        if not program.exists():
            pytest.fail(f"{program} is missing: cmake --build build/dev --target text_driver")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.loaded = self.ask(op="load", **load)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
