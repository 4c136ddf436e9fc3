#!/usr/bin/env python3
"""Resident memory of an idle `kubeloop run`, by mapping (Linux).

    .venv/bin/python benchmarks/idle_memory.py [--nodes 10] [--rounds 5] [--seconds 10] [--kubeconfig FILE]

kubeloop is first installed into a separate environment, with compiled modules, as by pip. The API server is `kubeloop
apiserver` with simulated nodes, or that of --kubeconfig. Each round starts `kubeloop run` and reads /proc/PID/smaps
after some seconds. The table has the medians in KiB: file: clean pages of files, which the kernel can drop; own: all
others, among them the pages of libraries that the loader has relocated.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from installed import environment, installed

GROUPS = {
    r"^$": "arenas of Python, heaps of threads, buffers",
    r"^\[": "heap of the C library, stack",
    r"numpy|libstdc|libm\.|libgcc": "numpy, with OpenBLAS and libstdc++",
    r"libcrypto|libssl|_ssl|_hashlib": "OpenSSL",
    r"/libpython|/python3[^/]*$": "Python",
    r"/libc\.|/ld-": "C library",
    r"uvloop": "uvloop",
    r"": "other libraries and files",
}
MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)")


def resident(pid: int) -> dict[str, Counter[str]]:
    """Return the KiB of each of GROUPS, as "file" and "own"."""
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    group = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if mapping := MAPPING.fullmatch(line):
            group = next(name for pattern, name in GROUPS.items() if re.search(pattern, mapping[1]))
        elif line.startswith("Rss:"):
            sizes[group]["file"] += int(line.split()[1])
        elif line.startswith("Anonymous:"):
            sizes[group]["own"] += int(line.split()[1])
            sizes[group]["file"] -= int(line.split()[1])
    return sizes


def start(python: Path, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(python), "-m", "kubeloop", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def measure(python: Path, folder: Path, options: argparse.Namespace) -> list[dict[str, Counter[str]]]:
    processes = []
    kubeconfig = options.kubeconfig or folder / "kubeconfig"
    try:
        if options.kubeconfig is None:
            processes.append(
                start(python, folder, "apiserver", f"--nodes={options.nodes}", f"--kubeconfig={kubeconfig}")
            )
            while not kubeconfig.exists():
                assert processes[0].poll() is None
                time.sleep(0.1)
        rounds = []
        for _ in range(options.rounds):
            processes.append(start(python, folder, "run", "--force", f"--kubeconfig={kubeconfig}"))
            time.sleep(options.seconds)
            assert processes[-1].poll() is None
            rounds.append(resident(processes[-1].pid))
            processes[-1].terminate()
            processes[-1].wait()
        return rounds
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="time from the start to the measurement")
    parser.add_argument("--kubeconfig", type=Path, help="kubeconfig of an idle cluster, instead of simulated nodes")
    options = parser.parse_args()
    with installed() as python, tempfile.TemporaryDirectory() as folder:
        rounds = measure(python, Path(folder), options)
    print("| KiB | file | own |\n|---|---|---|")
    for name in GROUPS.values():
        file, own = (statistics.median(sizes[name][kind] for sizes in rounds) for kind in ("file", "own"))
        print(f"| {name} | {file:.0f} | {own:.0f} |")
    totals = [sum(counter.total() for counter in sizes.values()) for sizes in rounds]
    print(f"\nresident: {statistics.median(totals) / 1024:.1f} MiB (of {len(totals)} starts)")


if __name__ == "__main__":
    main()
