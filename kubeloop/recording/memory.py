"""Limit of the memory that a cluster may take: an error before the machine has none left."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from kubeloop.kube.user_error import UserError

MEMORY_PER_BYTE: Final = 14
"""Bytes of memory per byte of JSON, in the copy of a cluster: objects of the reader, the API server and the caches."""
REPLAY_PER_BYTE: Final = 25
"""The same in a replay, which also has all controllers, kubelets and the history of watches."""
DECODED_PER_BYTE: Final = 4
"""Bytes of memory per byte of JSON that is only decoded."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_STATM: Final = Path("/proc/self/statm")
_MEMORY_INFO: Final = Path("/proc/meminfo")


class MemoryLimit:
    """Counts the JSON of a cluster while it is read. available: bytes of memory; per_byte: those that a byte needs."""

    def __init__(self, name: str, available: int | None = None, *, per_byte: int = MEMORY_PER_BYTE) -> None:
        self._per_byte = per_byte
        self._name = name
        self._available = available_memory() if available is None else available
        self._needed = 0

    def add(self, size: int, *, decoded_only: bool = False) -> None:
        """Count an object. decoded_only: it is not part of the cluster. Raises UserError without enough memory."""
        self._needed += size * (DECODED_PER_BYTE if decoded_only else self._per_byte)
        if self._needed > self._available:
            raise UserError(
                f"{self._name}: the cluster is larger than memory: its objects so far need "
                f"{gibibytes(self._needed)}, and {gibibytes(self._available)} are available",
                hint="use a machine with more memory, or a recording of one namespace (kubeloop record -n)",
            )

    def release(self, size: int) -> None:
        """Count an object that is replaced or deleted."""
        self._needed -= size * self._per_byte


def available_memory() -> int:
    """Return the bytes that a process may use without swapping, also by the limits of its container and `ulimit -v`."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        limits.append(max(0, address_space - _mapped_bytes()))
    try:
        lines = _MEMORY_INFO.read_text().splitlines()
    except OSError:
        lines = []  # not Linux
    limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    try:
        text = (_CGROUP / "memory.max").read_text().strip()
    except OSError:
        text = "max"
    if text.isdigit():
        limits.append(max(0, int(text) - _cgroup_used_bytes()))
    return min(limits)


def _cgroup_used_bytes() -> int:
    """Return the memory that the container uses, without the files that the system drops from memory first."""
    try:
        used = int((_CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except OSError:
        return 0
    return used - int(statistics.get("inactive_file", 0))


def _mapped_bytes() -> int:
    """Return the address space that this process has; 0 if the system does not show it."""
    try:
        return int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # not Linux


def gibibytes(size: int) -> str:
    """Return the size for messages."""
    return f"{size / (1 << 30):.2f} GiB"
