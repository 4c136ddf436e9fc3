"""Freed memory below a used block is returned to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from kubeloop.devcluster.server.allocator import return_freed_memory

BLOCK_BYTES, BLOCKS = 60 << 10, 1000
STATM = Path("/proc/self/statm")


def resident_pages() -> int:
    return int(STATM.read_text().split()[1])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim") or not STATM.exists(), reason="needs glibc and /proc")
def test_freed_memory_is_returned_although_a_later_block_is_in_use():
    before = resident_pages()
    blocks = [b"x" * BLOCK_BYTES for _ in range(BLOCKS)]
    used = blocks.pop()
    taken = resident_pages() - before
    del blocks
    return_freed_memory()
    assert resident_pages() - before < taken // 4
    assert used
