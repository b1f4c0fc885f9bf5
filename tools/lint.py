#!/usr/bin/env python3
"""Formatting and static checks of C++ and Python: what ./dev format, lint and check call.

format          rewrite files in the project's format
cpp-format      fail when clang-format would change a file
python-format   fail when ruff would reformat a file
python-lint     ruff's checks
types           mypy on the Python package
tidy            clang-tidy on the C++ files that differ from main
lint            python-lint, types and tidy, one after the other
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPP_FOLDERS = ("src", "include", "apps", "python/native", "examples", "tests", "bench")
CPP_SUFFIXES = {".h", ".cpp"}
PYTHON_PATHS = ("python", "tools", "tests", "examples", "bench")
TYPED_PATHS = ("python/pellucid",)
PROCESSES = 2


def run(command: list[str]) -> int:
    return subprocess.run(command, cwd=ROOT).returncode


def tool(name: str, fallback: str) -> str:
    """Debian 12's version, which is pinned: another one formats differently."""
    found = shutil.which(name)
    if found is None:
        sys.exit(
            f"lint: {name} is not there ({fallback} of another version would disagree): run ./dev setup"
        )
    return found


def cpp_files() -> list[str]:
    paths = (
        path
        for folder in CPP_FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in CPP_SUFFIXES
    )
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def existing(paths: tuple[str, ...]) -> list[str]:
    """Those of `paths` that hold a Python file."""
    return [path for path in paths if any((ROOT / path).rglob("*.py"))]


def clang_format(*options: str) -> int:
    files = cpp_files()
    return run([tool("clang-format-14", "clang-format"), *options, *files]) if files else 0


def ruff(*arguments: str) -> int:
    return run([sys.executable, "-m", "ruff", *arguments, *existing(PYTHON_PATHS)])


def format_files() -> int:
    return clang_format("-i") | ruff("format", "--quiet") | ruff("check", "--fix", "--quiet")


def types() -> int:
    paths = existing(TYPED_PATHS)
    return run([sys.executable, "-m", "mypy", *paths]) if paths else 0


def git(*arguments: str) -> list[str] | None:
    """Lines that git prints; None when there is no git or it refuses."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()


def changed_files() -> list[str] | None:
    """C++ sources that differ from main (on main itself: from the commit before), committed or not."""
    head = git("rev-parse", "HEAD")
    if not head:
        return None
    base = next(
        (found for name in ("origin/main", "main") if (found := git("merge-base", "HEAD", name))),
        head,
    )
    if base == head:
        base = git("rev-parse", "HEAD~1") or head
    changed = git("diff", "--name-only", "--diff-filter=d", base[0]) or []
    changed += git("ls-files", "--others", "--exclude-standard") or []
    return [name for name in cpp_files() if name in set(changed) and name.endswith(".cpp")]


def write_compile_commands(folder: Path) -> None:
    """The dev build's commands, with the text of the precompiled header instead of GCC's form of it."""
    build = ROOT / "build" / "dev"
    if not (build / "compile_commands.json").exists():
        sys.exit("lint: build/dev/compile_commands.json is not there: run ./dev build")
    folder.mkdir(parents=True, exist_ok=True)
    commands = json.loads((build / "compile_commands.json").read_text())
    for entry in commands:
        entry["command"] = re.sub(
            r" -include \S+(cmake_pch\.hxx)", rf" -include {folder}/\1", entry["command"]
        )
        entry["command"] = re.sub(r" -fpch-preprocess| -Winvalid-pch", "", entry["command"])
    header = build / "CMakeFiles" / "pellucid_pch.dir" / "cmake_pch.hxx"
    (folder / header.name).write_text(header.read_text())
    (folder / "compile_commands.json").write_text(json.dumps(commands))


def tidy() -> int:
    files = changed_files()
    if files is None:
        print("clang-tidy: no git history here to compare with, nothing checked")
        return 0
    folder = ROOT / "build" / "lint"
    write_compile_commands(folder)
    compiled = {
        Path(entry["file"]).resolve()
        for entry in json.loads((folder / "compile_commands.json").read_text())
    }
    files = [name for name in files if (ROOT / name).resolve() in compiled]
    print(f"clang-tidy: {len(files)} changed files", flush=True)
    command = [
        tool("clang-tidy-14", "clang-tidy"),
        "--quiet",
        "--warnings-as-errors=*",
        "-p",
        str(folder),
    ]
    with ThreadPoolExecutor(PROCESSES) as pool:
        return max(pool.map(lambda name: run([*command, name]), files), default=0)


COMMANDS = {
    "format": format_files,
    "cpp-format": lambda: clang_format("--dry-run", "--Werror"),
    "python-format": lambda: ruff("format", "--check"),
    "python-lint": lambda: ruff("check"),
    "types": types,
    "tidy": tidy,
    "lint": lambda: ruff("check") | types() | tidy(),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=list(COMMANDS))
    return 1 if COMMANDS[parser.parse_args().command]() else 0


if __name__ == "__main__":
    sys.exit(main())
