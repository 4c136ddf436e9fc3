"""Settings of the C library's allocator. OpenSSL's objects, buffers of connections and long strings are in its heap."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

MAPPED_BYTES = 256 << 10
"""uvloop's buffer of a TLS connection."""

_FREE_END_BYTES = 1 << 20  # of the heap: with less, arrays of one scheduling cycle would shrink and extend it each time

_KEPT_BYTES, _KEPT_FREE_END_BYTES = 4 << 20, 8 << 20

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt


def map_large_blocks() -> None:
    """Keep blocks from MAPPED_BYTES out of the heap, for good. Does nothing where the C library is not glibc.

    For processes with many open connections that rarely use large blocks: each of these is mapped when it is allocated.
    A watch fills a few pages of its connection's buffer. By itself, glibc maps only the first such block apart and
    takes later ones from the heap, where over hours they hold pages that other objects have filled before. Blocks for
    which the heap has free space remain in it.
    """
    set_option = _c_function("mallopt")
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        set_option(_M_TRIM_THRESHOLD, _FREE_END_BYTES)


@cache
def keep_large_blocks() -> None:
    """Take blocks of up to 4 MiB from the heap, for good. Does nothing where the C library is not glibc.

    For processes that use large blocks briefly and often: by itself, glibc maps them, or returns them from the end of
    the heap, and each new one has a page fault per 4 KiB.
    """
    set_option = _c_function("mallopt")
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        set_option(_M_TRIM_THRESHOLD, _KEPT_FREE_END_BYTES)


def return_freed_memory() -> None:
    """Return free pages of the heap to the system, in milliseconds. Does nothing where the C library is not glibc.

    By itself, glibc returns only what is free at the end of the heap.
    """
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)


def _c_function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library, None if it has none of this name."""
    import ctypes  # 1 ms, which a process that only starts and ends does not need

    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function
