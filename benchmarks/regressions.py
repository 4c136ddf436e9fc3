"""CPU time of a fixed set of commands, compared with the figures stored for the last release.

    python benchmarks/regressions.py [--seconds 300] [--store]

Runs the set again and again for about SECONDS, at least once, and prints a table: the least CPU time of each command,
with all processes that it starts, and the difference from the release. The speed of the machine cancels out: a fixed
calculation runs before each command, and the stored figures are multiples of its least CPU time. --store replaces the
stored figures (benchmarks/regressions.json), as a release does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
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


def cpu_seconds(*arguments: str) -> float:
    """Return user and system seconds of a Python command and of the processes that it waits for. Exits if it fails."""
    # modules that are compiled anew would count
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{output.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime


def measure(seconds: float) -> tuple[float, dict[str, float], int]:
    """Return the least CPU seconds of the calibration and of each command, and the number of rounds."""
    calibration = float("inf")
    least = dict.fromkeys(COMMANDS, float("inf"))
    rounds, began, longest = 0, time.monotonic(), 0.0
    for command in COMMANDS.values():
        if command[0] == "-m":
            cpu_seconds(*command)  # compiles modules
    while not rounds or time.monotonic() - began + longest < seconds:
        round_began = time.monotonic()
        for name, command in COMMANDS.items():
            calibration = min(calibration, cpu_seconds("-c", CALIBRATION))
            least[name] = min(least[name], cpu_seconds(*command))
        rounds += 1
        longest = max(longest, time.monotonic() - round_began)
    return calibration, least, rounds


def table(calibration: float, least: Mapping[str, float], version: str, multiples: Mapping[str, float]) -> list[str]:
    """Return the lines of the table. least: CPU seconds. multiples: of the calibration, those of the release."""
    lines = [f"| command | CPU s | release {version}, on this machine | difference |", "|---|---|---|---|"]
    for name, seconds in least.items():
        if name in multiples:
            released = multiples[name] * calibration
            lines.append(f"| {name} | {seconds:.3f} | {released:.3f} | {seconds / released - 1:+.1%} |")
        else:
            lines.append(f"| {name} | {seconds:.3f} | | new |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="time for all rounds")
    parser.add_argument("--store", action="store_true", help="store the figures as those of this version")
    options = parser.parse_args()
    calibration, least, rounds = measure(options.seconds)
    print(f"Least CPU seconds of {rounds} rounds. Differences of less than 3 % mean nothing.\n")
    if options.store:
        multiples = {name: round(seconds / calibration, 3) for name, seconds in least.items()}
        STORED.write_text(json.dumps({"version": version("kubeloop"), "multiples": multiples}, indent=1) + "\n")
    print("\n".join(table(calibration, least, **json.loads(STORED.read_text()))))


if __name__ == "__main__":
    main()
