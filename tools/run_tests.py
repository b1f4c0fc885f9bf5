#!/usr/bin/env python3
"""Run the tests and count them: what ./dev test, check, matrix, soak and test-gpu call once everything is built.

The last line is always `N passed, N failed`: doctest cases, pytest tests, and one for each fuzz target and each check.
The exit status is 0 only when nothing failed.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
PROCESSES = 2


@dataclass
class Outcome:
    """What one process reported. `notes` are printed below its line (failures, reasons of skipped tests)."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


Job = Callable[[], Outcome]


@dataclass
class Options:
    only: str = ""
    seconds: int = 20
    seed: int = 0
    layouts: str = "all"
    minutes: int = 30
    preset: str = "dev"


def environment(options: Options) -> dict[str, str]:
    """One thread a process: two processes run at a time, and the default of one pool a process would fight."""
    build = ROOT / "build" / options.preset
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "PELLUCID_BUILD": str(build),
        "PELLUCID_TEST_SEED": str(options.seed),
        "PELLUCID_TEST_SECONDS": str(options.seconds),
        "PELLUCID_LAYOUTS": options.layouts,  # tests/conftest.py reads it
        "PYTHONPATH": os.pathsep.join(
            [str(build / "python"), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]
        ),
        # libFuzzer and ASan: leaks of libtorch's own start-up are not ours; a crash is what counts.
        "ASAN_OPTIONS": os.environ.get(
            "ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"
        ),
        "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1"),
    }


def run_logged(name: str, command: list[str], options: Options) -> tuple[int, str]:
    """Runs `command` with its output in build/logs/test-<name>.log; returns its status and output.
    One that hangs for an hour is killed and has the status 124."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"test-{name}.log"
    with log.open("wb") as out:
        try:
            status = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment(options),
                timeout=3600 + 60 * options.minutes,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    return status, log.read_text(encoding="utf-8", errors="replace")


def tail(text: str, lines: int = 60) -> list[str]:
    return text.rstrip().splitlines()[-lines:]


# ---- doctest executables


def run_doctest(executable: Path, options: Options) -> Outcome:
    outcome = Outcome(executable.name)
    command = [str(executable), "--order-by=rand", f"--rand-seed={options.seed}"]
    if options.only and options.only not in executable.name:
        command.append(f"--test-case=*{options.only}*")
    status, output = run_logged(executable.name, command, options)
    summary = re.search(r"test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", output)
    if summary:
        outcome.passed, outcome.failed = int(summary[1]), int(summary[2])
    if status != 0:
        # A crash ends without a summary, or with one that counts no failure.
        outcome.failed = max(outcome.failed, 1)
        outcome.notes = [f"exit status {status}", *tail(output)]
    elif summary is None:
        outcome.failed = 1
        outcome.notes = ["no doctest summary in the output", *tail(output)]
    return outcome


def doctest_jobs(options: Options) -> list[Job]:
    # Written by CMake, so that an executable left over from a removed layer is not run.
    listing = ROOT / "build" / options.preset / "test_executables.txt"
    if not listing.exists():
        return []
    executables = [Path(line) for line in listing.read_text().split() if line]
    return [partial(run_doctest, path, options) for path in executables]


# ---- pytest


def pytest_filter(only: str) -> list[str]:
    """--only as pytest's -k: words that must all be in the test's name, file or class."""
    words = re.findall(r"\w+", only)
    return ["-k", " and ".join(words)] if words else []


def run_pytest(name: str, files: list[Path], options: Options, deal: str = "loadfile") -> Outcome:
    """All `files` in PROCESSES processes. `deal` is pytest-xdist's: a whole file goes to one process, because fixtures
    of a module build wheels and load models; "worksteal" deals single tests."""
    outcome = Outcome(name)
    if not files:
        return outcome
    print(
        f"       {name}: {len(files)} files; follow with tail -f build/logs/test-{name}.log",
        flush=True,
    )
    report = LOGS / f"test-{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--tb=short", "--durations=20"]
    command += [
        "-n",
        str(PROCESSES),
        "--dist",
        deal,
        "-p",
        "no:cacheprovider",
        f"--junit-xml={report}",
    ]
    command += [f"--hypothesis-seed={options.seed}", *pytest_filter(options.only)]
    command += [str(path.relative_to(ROOT)) for path in files]
    status, output = run_logged(name, command, options)
    no_tests_matched = status == 5
    if report.exists():
        suite = ElementTree.parse(report).getroot().find("testsuite")
        counts = (
            {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
            if suite is not None
            else {}
        )
        outcome.failed = counts.get("failures", 0) + counts.get("errors", 0)
        outcome.skipped = counts.get("skipped", 0)
        outcome.passed = max(0, counts.get("tests", 0) - outcome.failed - outcome.skipped)
    outcome.notes = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    if status != 0 and not no_tests_matched:
        outcome.failed = max(outcome.failed, 1)
        outcome.notes = tail(output, 200)
    return outcome


def test_files() -> list[Path]:
    """All of tests/ but what other commands run: matrix and gpu."""
    root = ROOT / "tests"
    return [
        path
        for path in root.rglob("test_*.py")
        if path.relative_to(root).parts[0] not in ("matrix", "gpu")
    ]


# ---- fuzzing


def run_fuzzer(target: Path, seconds: int, options: Options) -> Outcome:
    """One libFuzzer target for `seconds`; starts from src/<layer>/fuzz/corpus/<target>, findings stay in build/fuzz."""
    outcome = Outcome(target.name)
    found = ROOT / "build" / "fuzz" / "findings" / target.name
    grown = ROOT / "build" / "fuzz" / "corpus" / target.name
    found.mkdir(parents=True, exist_ok=True)
    grown.mkdir(parents=True, exist_ok=True)
    seeds = [str(path) for path in (ROOT / "src").glob(f"*/fuzz/corpus/{target.name}")]
    command = [str(target), f"-max_total_time={seconds}", f"-seed={options.seed % 2**31 or 1}"]
    command += ["-timeout=10", "-rss_limit_mb=3000", "-print_final_stats=1"]
    command += [f"-artifact_prefix={found}/", str(grown), *seeds]
    status, output = run_logged(target.name, command, options)
    if status != 0:
        outcome.failed = 1
        outcome.notes = [f"the input that did it is in {found}", *fuzzer_complaint(output)]
        return outcome
    outcome.passed = 1
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    outcome.notes = [f"{runs[1] if runs else '?'} inputs"]
    return outcome


def fuzzer_complaint(output: str) -> list[str]:
    """The sanitizer's error and stack without its map of the memory around."""
    lines = output.splitlines()
    first = next(
        (i for i, line in enumerate(lines) if "ERROR" in line or "runtime error" in line), -25
    )
    return lines[first:][:25]


def fuzz_jobs(options: Options) -> list[Job]:
    names = [
        path.stem for path in (ROOT / "src").glob("*/fuzz/*_fuzz.cpp") if options.only in path.stem
    ]
    if not names:
        return []
    built = build("fuzz", names)
    if built.failed:
        return [lambda: built]
    listing = ROOT / "build" / "fuzz" / "fuzzers.txt"  # written by CMake
    targets = [path for path in map(Path, listing.read_text().split()) if path.name in names]
    each = max(1, options.seconds * PROCESSES // len(targets))
    return [partial(run_fuzzer, target, each, options) for target in targets]


# ---- checks


def run_check(name: str, command: list[str], options: Options) -> Outcome:
    status, output = run_logged(name, command, options)
    if status == 0:
        return Outcome(name, passed=1)
    return Outcome(name, failed=1, notes=tail(output))


def layers_job(options: Options) -> Job:
    return partial(run_check, "layers", [sys.executable, "tools/check_layers.py"], options)


def build(preset: str, targets: list[str]) -> Outcome:
    """Builds targets of another preset through ./dev, which knows how."""
    begin = time.monotonic()
    command = ["./dev", "build", *targets]
    process = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PELLUCID_PRESET": preset}, stdin=subprocess.DEVNULL
    )
    outcome = Outcome(f"build-{preset}", passed=1, seconds=time.monotonic() - begin)
    if process.returncode != 0:
        outcome.passed, outcome.failed = 0, 1
        outcome.notes = [f"preset {preset} does not build: the error is above"]
    return outcome


# ---- the commands


def print_outcome(outcome: Outcome) -> None:
    skipped = f", {outcome.skipped} skipped" if outcome.skipped else ""
    mark = "FAILED" if outcome.failed else "ok"
    print(
        f"{mark:6} {outcome.name}: {outcome.passed} passed, {outcome.failed} failed{skipped} ({outcome.seconds:.1f} s)",
        flush=True,
    )
    for note in outcome.notes:
        print(f"         {note}", flush=True)


def timed(job: Job) -> Outcome:
    begin = time.monotonic()
    outcome = job()
    outcome.seconds = outcome.seconds or time.monotonic() - begin
    print_outcome(outcome)
    return outcome


def run_all(jobs: list[Job]) -> list[Outcome]:
    with ThreadPoolExecutor(PROCESSES) as pool:
        return list(pool.map(timed, jobs))


def test(options: Options) -> list[Outcome]:
    outcomes = run_all([layers_job(options), *doctest_jobs(options)])
    outcomes += run_all([partial(run_pytest, "pytest", test_files(), options)])
    return outcomes + run_all(fuzz_jobs(options))


def check(options: Options) -> list[Outcome]:
    names = ("cpp-format", "python-format", "python-lint", "types", "tidy")
    lint = [sys.executable, "tools/lint.py"]
    return run_all([partial(run_check, name, [*lint, name], options) for name in names]) + test(
        options
    )


def matrix(options: Options) -> list[Outcome]:
    """Every case file in every layout; a case that ./dev test skips for its length belongs into tests/matrix."""
    files = [ROOT / "tests" / "test_cases.py", *(ROOT / "tests" / "matrix").rglob("test_*.py")]
    files = [path for path in files if path.exists()]
    return run_all([partial(run_pytest, "matrix", files, options, deal="worksteal")])


def gpu(options: Options) -> list[Outcome]:
    os.environ["PELLUCID_DEVICE"] = "cuda"
    files = list((ROOT / "tests" / "gpu").rglob("test_*.py"))
    return run_all([partial(run_pytest, "gpu", files, options)])


def soak(options: Options) -> list[Outcome]:
    """The long form: every test under the sanitizers, tests at their big sizes, every layout, long fuzzing."""
    os.environ["PELLUCID_TEST_SIZES"] = "big"
    outcomes = []
    for preset in ("asan", "tsan"):
        outcomes.append(build(preset, []))
        print_outcome(outcomes[-1])
        outcomes += run_all(doctest_jobs(replace(options, preset=preset)))
    outcomes += matrix(options)
    return outcomes + test(replace(options, layouts="local", seconds=60 * options.minutes))


def parse(arguments: list[str]) -> tuple[str, Options]:
    parser = argparse.ArgumentParser(
        prog="./dev", description="Runs tests; ./dev help explains the commands."
    )
    parser.add_argument("command", choices=["test", "check", "matrix", "gpu", "soak"])
    parser.add_argument("--only", default="", help="only tests whose file or name matches")
    parser.add_argument(
        "--seconds", type=int, default=20, help="seconds for fuzzing, all targets together"
    )
    parser.add_argument(
        "--minutes", type=int, default=30, help="soak: minutes for fuzzing, all targets together"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument(
        "--layouts", default="all", help="of case files: all, or a list such as local,batched"
    )
    parsed = vars(parser.parse_args(arguments))
    return parsed.pop("command"), Options(**parsed)


def main() -> int:
    command, options = parse(sys.argv[1:])
    print(f"-- ./dev {command}, seed {options.seed}", flush=True)
    commands = {"test": test, "check": check, "matrix": matrix, "gpu": gpu, "soak": soak}
    outcomes = commands[command](options)
    failed = sum(outcome.failed for outcome in outcomes)
    passed = sum(outcome.passed for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    names = " ".join(outcome.name for outcome in outcomes if outcome.failed)
    if failed:
        print(
            f"failed: {names}; the same again: ./dev {command} --seed {options.seed}; logs in build/logs"
        )
    elif passed == 0:
        print("no test ran" + (f": --only '{options.only}' matches none" if options.only else ""))
    if skipped:
        print(f"{skipped} skipped (reasons above)")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or (passed == 0 and options.only) else 0


if __name__ == "__main__":
    sys.exit(main())
