"""Settings of glibc's allocator: which freed memory is returned to the system, and which stays in the heap."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.kube.allocator import return_freed_memory

BLOCK_BYTES, BLOCKS = 60 << 10, 1000
STATM = Path("/proc/self/statm")
LARGE_BLOCKS = """
from kubeloop.kube.allocator import MAPPED_BYTES, map_large_blocks

def resident_pages():
    return int(open("/proc/self/statm").read().split()[1])

map_large_blocks()
[bytes(MAPPED_BYTES) for _ in range(200)]  # by itself, glibc raises its threshold when it frees a mapped block
before = resident_pages()
blocks = [b"x" * MAPPED_BYTES for _ in range(200)]
used = blocks.pop()
taken = resident_pages() - before
del blocks
print(taken, resident_pages() - before)
"""
KEPT_BLOCKS = """
import resource
from kubeloop.kube.allocator import keep_large_blocks

def use_large_blocks():
    [b"x" * (7 << 19) for _ in range(2)]

keep_large_blocks()
use_large_blocks()  # by itself, glibc maps them at first
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use_large_blocks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

needs_glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim") or not STATM.exists(), reason="needs glibc and /proc"
)


def resident_pages() -> int:
    return int(STATM.read_text().split()[1])


@needs_glibc
def test_freed_memory_is_returned_although_a_later_block_is_in_use():
    before = resident_pages()
    blocks = [b"x" * BLOCK_BYTES for _ in range(BLOCKS)]
    used = blocks.pop()
    taken = resident_pages() - before
    del blocks
    return_freed_memory()
    assert resident_pages() - before < taken // 4
    assert used


@needs_glibc
def test_mapped_blocks_are_returned_when_they_are_freed():
    output = subprocess.run([sys.executable, "-c", LARGE_BLOCKS], capture_output=True, text=True, check=True).stdout
    taken, remaining = map(int, output.split())
    assert remaining < taken // 4


@needs_glibc
def test_large_blocks_are_kept_for_the_next_ones():
    output = subprocess.run([sys.executable, "-c", KEPT_BLOCKS], capture_output=True, text=True, check=True).stdout
    assert int(output) < 7 << 7  # the pages of one block
