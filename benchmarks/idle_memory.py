#!/usr/bin/env python3
"""Resident memory of an idle `kubeloop run`, by mapping (Linux).

    .venv/bin/python benchmarks/idle_memory.py [--nodes 10] [--rounds 5] [--seconds 10] [--kubeconfig FILE]
    ... --cgroup /sys/fs/cgroup/memory/kubeloop [--limit 45]    # as root: and its working set

kubeloop is first installed into a separate environment, with compiled modules, as by pip. The API server is `kubeloop
apiserver` with simulated nodes, or that of --kubeconfig. Each round starts `kubeloop run` and reads /proc/PID/smaps
after some seconds. The table has the medians in KiB: file: clean pages of files, which the kernel can drop; own: all
others, among them the pages of libraries that the loader has relocated.

--cgroup: a folder of cgroup v1 or v2 that does not exist; kubeloop runs in it. The working set is what the kubelet
measures and `kubectl top` shows: all memory that is charged to the group, without files' pages that are not in active
use. --limit: MiB, beyond which the kernel drops pages of files, and ends the process if that is not enough.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


class MemoryGroup:
    """A cgroup of memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_v2 = (folder / "memory.current").exists()
        self.members = folder / "cgroup.procs"

    def set_limit(self, mib: int) -> None:
        (self._folder / ("memory.max" if self._is_v2 else "memory.limit_in_bytes")).write_text(str(mib * 2**20))

    def working_set(self) -> int:
        """Return bytes, computed as by the kubelet (cadvisor)."""
        usage = int((self._folder / ("memory.current" if self._is_v2 else "memory.usage_in_bytes")).read_text())
        counters = dict(line.split() for line in (self._folder / "memory.stat").read_text().splitlines())
        return usage - int(counters["inactive_file" if self._is_v2 else "total_inactive_file"])


@contextlib.contextmanager
def memory_group(options: argparse.Namespace) -> Iterator[MemoryGroup | None]:
    if options.cgroup is None:
        yield None
        return
    options.cgroup.mkdir()
    try:
        group = MemoryGroup(options.cgroup)
        if options.limit:
            group.set_limit(options.limit)
        yield group
    finally:
        options.cgroup.rmdir()


def start(python: Path, folder: Path, *arguments: str, group: MemoryGroup | None = None) -> subprocess.Popen[bytes]:
    command = [str(python), "-m", "kubeloop", *arguments]
    if group is not None:
        command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group.members), *command]
    return subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


class Round(NamedTuple):
    """One start. sizes: as of `resident`. working_set: bytes, 0 without --cgroup."""

    sizes: dict[str, Counter[str]]
    working_set: int


def measure(python: Path, folder: Path, options: argparse.Namespace) -> list[Round]:
    kubeconfig = options.kubeconfig or folder / "kubeconfig"
    with contextlib.ExitStack() as stack:
        if options.kubeconfig is None:
            server = start(python, folder, "apiserver", f"--nodes={options.nodes}", f"--kubeconfig={kubeconfig}")
            stack.callback(stop, server)
            while not kubeconfig.exists():
                assert server.poll() is None
                time.sleep(0.1)
        rounds = []
        for _ in range(options.rounds):
            with memory_group(options) as group, contextlib.ExitStack() as running:
                process = start(python, folder, "run", "--force", f"--kubeconfig={kubeconfig}", group=group)
                running.callback(stop, process)
                time.sleep(options.seconds)
                assert process.poll() is None
                rounds.append(Round(resident(process.pid), 0 if group is None else group.working_set()))
        return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="time from the start to the measurement")
    parser.add_argument("--kubeconfig", type=Path, help="kubeconfig of an idle cluster, instead of simulated nodes")
    parser.add_argument("--cgroup", type=Path, help="folder of a cgroup to create, such as /sys/fs/cgroup/kubeloop")
    parser.add_argument("--limit", type=int, help="limit of the cgroup in MiB")
    options = parser.parse_args()
    if options.limit and options.cgroup is None:
        parser.error("--limit needs --cgroup")
    with installed() as python, tempfile.TemporaryDirectory() as folder:
        rounds = measure(python, Path(folder), options)
    print("| KiB | file | own |\n|---|---|---|")
    for name in GROUPS.values():
        file, own = (statistics.median(round_.sizes[name][kind] for round_ in rounds) for kind in ("file", "own"))
        print(f"| {name} | {file:.0f} | {own:.0f} |")
    totals = [sum(counter.total() for counter in round_.sizes.values()) for round_ in rounds]
    print(f"\nresident: {statistics.median(totals) / 1024:.1f} MiB (of {len(totals)} starts)")
    if options.cgroup:
        print(f"working set: {statistics.median(round_.working_set for round_ in rounds) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
