"""CPU time of a fixed set of commands, compared with the figures stored for the last release.

    python benchmarks/regressions.py [--seconds 300] [--store | --checkout DIR]

Runs the set again and again for about SECONDS, at least once, and prints a table: the least CPU time of each command,
with all processes that it starts, and the difference from the release. The speed of the machine cancels out: a fixed
calculation runs before each command, and the stored figures are multiples of its least CPU time. That holds for one
kind of machine: on another one, differences of a third have been seen that are none. --checkout compares on this
machine: the commands of another commit, in its checkout DIR (such as a `git worktree`), run alternately with these, by
the same interpreter. --store replaces the stored figures (benchmarks/regressions.json), as a release does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = Path(__file__).with_suffix(".json")

COMMANDS = {
    "pipeline: 1,000 pods of a Deployment bound": ("benchmarks/pipeline", "--nodes", "100", "--replicas", "1000"),
    "scheduling cycle: 5,000 and 50,000 pods": ("benchmarks/scheduler", "--cycle", "--nodes", "1000", "--pods", "5000"),
    "rollout of 500 pods in virtual time": ("benchmarks/rollout_writes.py", "500"),
    "idle day of 1,000 nodes, half a day of a CronJob": ("benchmarks/virtual_time.py", "--cron-days", "0.5"),
    "kubeloop up --once": ("-m", "kubeloop", "up", "--once", "-f", "deploy/examples/web.yaml"),
    "kubeloop --help": ("-m", "kubeloop", "--help"),
}

CALIBRATION = """
import json
rows = [{"name": f"pod-{number}", "labels": {"app": str(number % 7)}, "cpu": number} for number in range(2000)]
for _ in range(150):
    decoded = json.loads(json.dumps(rows))
    decoded.sort(key=lambda row: (row["labels"]["app"], -row["cpu"]))
    groups = {}
    for row in decoded:
        groups.setdefault(row["labels"]["app"], []).append(row["name"].upper())
"""


def cpu_seconds(*arguments: str, checkout: Path = ROOT) -> float:
    """Return user and system seconds of a Python command and of the processes that it waits for. Exits if it fails.

    checkout: the folder where it runs, and whose kubeloop it imports.
    """
    # modules that are compiled anew would count
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(checkout)
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{output.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime


def measure(seconds: float, checkouts: Sequence[Path]) -> tuple[float, list[dict[str, float]], int]:
    """Return the least CPU seconds of the calibration and of each checkout's commands, and the number of rounds."""
    calibration = float("inf")
    least = [dict.fromkeys(COMMANDS, float("inf")) for _ in checkouts]
    rounds, began, longest = 0, time.monotonic(), 0.0
    for command in COMMANDS.values():
        if command[0] == "-m":
            for checkout in checkouts:
                cpu_seconds(*command, checkout=checkout)  # compiles modules
    while not rounds or time.monotonic() - began + longest < seconds:
        round_began = time.monotonic()
        for name, command in COMMANDS.items():
            calibration = min(calibration, cpu_seconds("-c", CALIBRATION))
            for seconds_of, checkout in zip(least, checkouts, strict=True):
                seconds_of[name] = min(seconds_of[name], cpu_seconds(*command, checkout=checkout))
        rounds += 1
        longest = max(longest, time.monotonic() - round_began)
    return calibration, least, rounds


def table(least: Mapping[str, float], base: str, base_seconds: Mapping[str, float]) -> list[str]:
    """Return the lines of the table. least: CPU seconds. base: what they are compared with, and its CPU seconds."""
    lines = [f"| command | CPU s | {base} | difference |", "|---|---|---|---|"]
    for name, seconds in least.items():
        if name in base_seconds:
            before = base_seconds[name]
            lines.append(f"| {name} | {seconds:.3f} | {before:.3f} | {seconds / before - 1:+.1%} |")
        else:
            lines.append(f"| {name} | {seconds:.3f} | | new |")
    return lines


def released(calibration: float) -> tuple[str, dict[str, float]]:
    """Return a title for the last release, and the CPU seconds of its commands on a machine with this calibration."""
    stored = json.loads(STORED.read_text())
    seconds = {name: multiple * calibration for name, multiple in stored["multiples"].items()}
    return f"release {stored['version']}, scaled to this machine", seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="time for all rounds")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--store", action="store_true", help="store the figures as those of this version")
    group.add_argument("--checkout", type=Path, metavar="DIR", help="compare with the commit that is checked out here")
    options = parser.parse_args()
    if options.checkout and not (options.checkout / "kubeloop" / "__init__.py").exists():
        parser.error(f"{options.checkout} is no checkout of kubeloop: create one with git worktree add DIR COMMIT")
    checkouts = [ROOT, *([options.checkout.resolve()] if options.checkout else [])]
    calibration, (least, *others), rounds = measure(options.seconds, checkouts)
    print(f"Least CPU seconds of {rounds} rounds. Differences of less than 3 % mean nothing.\n")
    if options.store:
        multiples = {name: round(seconds / calibration, 3) for name, seconds in least.items()}
        STORED.write_text(json.dumps({"version": version("kubeloop"), "multiples": multiples}, indent=1) + "\n")
    base, base_seconds = (str(options.checkout), others[0]) if others else released(calibration)
    print("\n".join(table(least, base, base_seconds)))


if __name__ == "__main__":
    main()
