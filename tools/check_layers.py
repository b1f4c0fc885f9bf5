#!/usr/bin/env python3
"""Check who includes whom.

    src/<layer>   includes the layers that its line of src/LAYERS allows; so do its tests and fuzz targets
    apps, examples, tests, bench in C++   include the facade (pellucid/...) and what src/LAYERS allows `facade`
    include/pellucid   includes std and itself; one header, torch.h, may include ATen
    every header   is free of the libraries that cost seconds a file: PRIVATE_LIBRARIES
    every tracked text file   is free of paths of one machine

One line a fault, with what to do; exit status 1 when there is any.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LAYER_LINE = re.compile(r"^([a-z]+)( \+torch)?:(.*)$")
CPP_SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".inc"}
HEADER_SUFFIXES = {".h", ".hpp"}
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")
# Seconds of compile time in every file that includes them: only in .cpp files.
PRIVATE_LIBRARIES = re.compile(
    r"^(nlohmann/|CLI/|spdlog/|google/protobuf/|pcre2|torch/torch\.h|ATen/ATen\.h|doctest/)"
)
FACADE_TORCH_HEADER = "torch.h"
# Assembled, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(?:" + "|".join(["work", "root", "home"]) + r")/[\w.-]")
TEXT_SUFFIXES = CPP_SUFFIXES | {
    ".py",
    ".pyi",
    ".md",
    ".txt",
    ".cmake",
    ".json",
    ".toml",
    ".sh",
    ".proto",
    ".case",
    ".cfg",
    ".yml",
    ".ts",
    ".html",
    "",
}


@dataclass(frozen=True)
class Layer:
    name: str
    torch: bool
    allowed: frozenset[str]  # itself included


@dataclass(frozen=True)
class Fault:
    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def read_layers(path: Path) -> tuple[dict[str, Layer], list[Fault]]:
    """Reads src/LAYERS. A layer may only name layers above its own line: so there are no cycles."""
    layers: dict[str, Layer] = {}
    faults = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        matched = LAYER_LINE.match(line)
        if not matched:
            faults.append(Fault(path, number, f"not of the form `name [+torch]: layers`: {line}"))
            continue
        name, torch, allowed = matched[1], bool(matched[2]), matched[3].split()
        for other in allowed:
            if other not in layers:
                faults.append(
                    Fault(path, number, f"{name} may include {other}, which no line above names")
                )
            elif layers[other].torch and not torch:
                faults.append(
                    Fault(
                        path, number, f"{name} is torch-free but may include {other}, which is not"
                    )
                )
        layers[name] = Layer(name, torch, frozenset([name, *allowed]))
    return layers, faults


def includes(path: Path) -> Iterator[tuple[int, bool, str]]:
    """Every #include: line, whether in quotes, what."""
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        if matched := INCLUDE.match(line):
            yield number, matched[1] == '"', matched[2]


def cpp_files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix in CPP_SUFFIXES and path.is_file()
    )


def check_header_libraries(path: Path) -> Iterator[Fault]:
    for number, _, target in includes(path):
        if PRIVATE_LIBRARIES.match(target):
            yield Fault(
                path,
                number,
                f"a header includes {target}, which costs every includer seconds: move it into a .cpp",
            )


def check_generated_code(root: Path) -> Iterator[Fault]:
    """Generated code (proto/...) costs seconds too: it may be in a header of src/wire, as long as only .cpp files of
    src/wire include that."""
    private = set()
    for path in cpp_files(root / "src" / "wire"):
        if path.suffix in HEADER_SUFFIXES and any(
            target.startswith("proto/") for _, _, target in includes(path)
        ):
            private.add(str(path.relative_to(root / "src")))
    for folder in ("src", "include", "apps", "python", "tests", "examples", "bench"):
        for path in cpp_files(root / folder):
            inside = path.parent == root / "src" / "wire" and path.suffix not in HEADER_SUFFIXES
            for number, _, target in includes(path):
                if target in private and not inside:
                    yield Fault(
                        path,
                        number,
                        f"{target} holds generated code: only .cpp files of src/wire include it",
                    )


def is_test_helper(path: Path, target: str) -> bool:
    """A test may include a header that lies beside it by its bare name."""
    return path.parent.name in ("tests", "fuzz") and (path.parent / target).is_file()


def check_layer_file(path: Path, layer: Layer, layers: dict[str, Layer]) -> Iterator[Fault]:
    for number, quoted, target in includes(path):
        first = target.split("/")[0]
        if TORCH.match(target) and not layer.torch:
            yield Fault(
                path, number, f"{layer.name} is torch-free (src/LAYERS) but includes {target}"
            )
        elif first == "pellucid":
            if layer.name != "facade":
                yield Fault(
                    path, number, f"only the facade may include include/pellucid, not {layer.name}"
                )
        elif first == "proto":
            if layer.name != "wire":
                yield Fault(
                    path,
                    number,
                    f"only wire may include generated code ({target}), not {layer.name}",
                )
        elif first in layers and "/" in target:
            if first not in layer.allowed:
                yield Fault(
                    path,
                    number,
                    f"{layer.name} may not include {first} (src/LAYERS allows: {' '.join(sorted(layer.allowed))})",
                )
            if not quoted:
                yield Fault(path, number, f'write "{target}", in quotes: it is our own')
        elif quoted and not is_test_helper(path, target):
            yield Fault(path, number, f'"{target}" is no path from src/ ("layer/file.h")')


def check_facade_header(path: Path) -> Iterator[Fault]:
    for number, _, target in includes(path):
        if target.startswith("pellucid/") or re.fullmatch(r"[a-z_0-9]+", target):
            continue  # ours, or a standard header: those have no dot and no folder
        if path.name == FACADE_TORCH_HEADER and TORCH.match(target):
            continue
        yield Fault(
            path, number, f"a public header may include std and pellucid/ only, not {target}"
        )


def check_outer_file(path: Path, layers: dict[str, Layer]) -> Iterator[Fault]:
    """Apps, examples and tests outside src: the facade, and the layers that the facade may include."""
    allowed = layers["facade"].allowed if "facade" in layers else frozenset()
    for number, _, target in includes(path):
        first = target.split("/")[0]
        if first == "proto" or (first in layers and "/" in target and first not in allowed):
            yield Fault(path, number, f"{target} is not for use outside src/")


def tracked_files(root: Path) -> list[Path]:
    """What git tracks or would track; every file when git is not there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [path for path in root.rglob("*") if path.is_file()]
    return [root / name for name in listed.decode().split("\0") if name and (root / name).is_file()]


def check_machine_paths(path: Path) -> Iterator[Fault]:
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        if matched := MACHINE_PATH.search(line):
            yield Fault(
                path,
                number,
                f"'{matched[0]}...' is a path of one machine: use an environment variable or a relative path",
            )


def check_tree(root: Path) -> list[Fault]:
    """Every fault below `root`, with paths relative to it."""
    layers, faults = read_layers(root / "src" / "LAYERS")
    for folder in sorted(path for path in (root / "src").iterdir() if path.is_dir()):
        files = cpp_files(folder)
        if folder.name not in layers:
            if files:
                faults.append(Fault(folder, 0, "this folder has no line in src/LAYERS"))
            continue
        for path in files:
            faults += check_layer_file(path, layers[folder.name], layers)
    for path in cpp_files(root / "include"):
        faults += check_facade_header(path)
    for folder in (root / name for name in ("apps", "examples", "tests", "bench", "python")):
        for path in cpp_files(folder):
            faults += check_outer_file(path, layers)
    for folder in (root / name for name in ("src", "include", "apps", "python")):
        for path in cpp_files(folder):
            if path.suffix in HEADER_SUFFIXES:
                faults += check_header_libraries(path)
    faults += check_generated_code(root)
    for path in tracked_files(root):
        if path.suffix in TEXT_SUFFIXES and path.stat().st_size < 4_000_000:
            faults += check_machine_paths(path)
    return [Fault(fault.path.relative_to(root), fault.line, fault.what) for fault in faults]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent
    )
    faults = check_tree(parser.parse_args().root.resolve())
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
