"""Measures how long processes wait for a CPU during a test, as limits of delays must include that time."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SLEEP_NS = 5_000_000
_SAMPLER = f"""
import select, sys, time
while not select.select([sys.stdin], [], [], 0)[0]:
    began = time.monotonic_ns()
    time.sleep({_SLEEP_NS} / 1e9)
    print(time.monotonic_ns() - began - {_SLEEP_NS})
"""


class SchedulingDelay:
    """Delays (ns) with which a process was woken, each 5 ms."""

    def __init__(self) -> None:
        self.delays_ns: list[int] = []

    @contextmanager
    def sampled(self) -> Iterator[None]:
        command = [sys.executable, "-S", "-c", _SAMPLER]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            try:
                yield
            finally:
                process.stdin.close()
                self.delays_ns += map(int, process.stdout.read().split())

    def percentile_ns(self, percent: int) -> float:
        return statistics.quantiles(self.delays_ns, n=100)[percent - 1]
