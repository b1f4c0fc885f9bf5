#!/usr/bin/env python3
"""Run the benchmarks of bench/ and keep their results: what ./dev bench calls.

Each run is one file, build/bench/<date>-<commit>.json: the machine, the command, and what Google Benchmark measured.
To keep a run, copy its file into bench/results. On a machine that others use too, compare only the ratios of one run.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def commit() -> str:
    """The commit that is measured, marked when files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def run(executable: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Shows the executable's table as it comes; returns its benchmarks."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [str(executable), f"--benchmark_out={report}", "--benchmark_out_format=json"]
        command += [f"--benchmark_filter={options.only}", f"--benchmark_min_time={options.seconds}"]
        environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
        if subprocess.run(command, env=environment, cwd=ROOT).returncode != 0:
            sys.exit(f"bench: {executable.name} failed: its output is above")
        text = report.read_text()
    # Google Benchmark leaves the file empty when the filter matches nothing.
    return json.loads(text)["benchmarks"] if text.strip() else []


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="Runs the benchmarks of bench/."
    )
    parser.add_argument(
        "--only", default=".", help="only benchmarks whose name matches this pattern"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="least time for each benchmark")
    parser.add_argument("--threads", type=int, default=1, help="threads of each tensor operation")
    options = parser.parse_args()

    listing = ROOT / "build" / "dev" / "bench_executables.txt"
    results = {
        path.name: run(path, options)
        for line in listing.read_text().split()
        if (path := Path(line))
    }
    now = datetime.datetime.now(datetime.timezone.utc)
    document = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit(),
        "command": "./dev bench " + " ".join(sys.argv[1:]),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "threads": options.threads},
        "results": results,
    }
    target = ROOT / "build" / "bench" / f"{now:%Y-%m-%d-%H%M%S}-{document['commit']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n")
    print(f"kept in {target.relative_to(ROOT)}")
    return 0 if any(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
