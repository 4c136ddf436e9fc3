"""Free memory of the C library's allocator, where OpenSSL's objects are: some 60 KiB per TLS connection."""

from __future__ import annotations

import ctypes


def return_freed_memory() -> None:
    """Return free pages of the heap to the system, in milliseconds. Does nothing where the C library is not glibc.

    By itself, glibc returns only what is free at the end of the heap.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
