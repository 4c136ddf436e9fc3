"""Hashes in names and labels: FNV with 32 bits, in an alphabet without vowels; FNV with 128 bits orders lists.

fnv_hash_fast has FNV-1a with 32 bits; without it (pyproject.toml), it is computed here.

Source: Go's hash/fnv, SafeEncodeString in k8s.io/apimachinery/pkg/util/rand.
"""

from __future__ import annotations

__all__ = ["fnv1_32", "fnv1a_32", "fnv1a_128", "safe_encode"]

_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619
_FNV_OFFSET_128, _FNV_PRIME_128 = 0x6C62272E07BB014262B821756295C58D, 0x1000000000000000000013B
_SAFE_DIGITS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, 0, 1 and 3, so that no words are formed


try:
    from fnv_hash_fast import fnv1a_32
except ImportError:

    def fnv1a_32(data: bytes) -> int:
        hashed = _FNV_OFFSET
        for byte in data:
            hashed = ((hashed ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
        return hashed


def fnv1_32(data: bytes) -> int:
    hashed = _FNV_OFFSET
    for byte in data:
        hashed = ((hashed * _FNV_PRIME) & 0xFFFFFFFF) ^ byte
    return hashed


def fnv1a_128(data: bytes) -> int:
    hashed = _FNV_OFFSET_128
    for byte in data:
        hashed = ((hashed ^ byte) * _FNV_PRIME_128) & ((1 << 128) - 1)
    return hashed


def safe_encode(hashed: int) -> str:
    """Return the text of a hash for names and labels."""
    return "".join(_SAFE_DIGITS[ord(digit) % len(_SAFE_DIGITS)] for digit in str(hashed))
