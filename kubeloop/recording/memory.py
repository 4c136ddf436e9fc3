"""Limit of the memory that a cluster may take: an error before the machine has none left."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from kubeloop.kube.user_error import UserError

MEMORY_PER_BYTE: Final = 12
"""Bytes of memory per byte of JSON, in the copy of a cluster: objects of the reader, the API server and the caches."""
DECODED_PER_BYTE: Final = 4
"""Bytes of memory per byte of JSON that is only decoded."""
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_MEMORY_INFO: Final = Path("/proc/meminfo")


class MemoryLimit:
    """Counts the JSON of a cluster while it is read. available: bytes of memory."""

    def __init__(self, name: str, available: int | None = None) -> None:
        self._name = name
        self._available = available_memory() if available is None else available
        self._needed = 0

    def add(self, size: int, *, factor: int = MEMORY_PER_BYTE) -> None:
        """Count an object. factor: bytes of memory per byte of JSON. Raises UserError if there is not enough memory."""
        self._needed += size * factor
        if self._needed > self._available:
            raise UserError(
                f"{self._name}: the cluster is larger than memory: its objects so far need "
                f"{_gibibytes(self._needed)}, and {_gibibytes(self._available)} are available",
                hint="use a machine with more memory, or a recording of one namespace (kubeloop record -n)",
            )

    def release(self, size: int) -> None:
        """Count an object that is replaced or deleted."""
        self._needed -= size * MEMORY_PER_BYTE


def available_memory() -> int:
    """Return the bytes that a process may use without swapping, also by the limits of its container and `ulimit -v`."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space)
    try:
        lines = _MEMORY_INFO.read_text().splitlines()
    except OSError:
        lines = []  # not Linux
    limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    try:
        text = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        text = "max"
    if text.isdigit():
        limits.append(int(text))
    return min(limits)


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
