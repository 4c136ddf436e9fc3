"""UIDs and generated names of objects, from a seeded random source."""

from __future__ import annotations

import random
import uuid


def new_uid(rng: random.Random) -> str:
    """Return a random UUID of version 4."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


NAME_SUFFIX_LENGTH = 5
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def name_suffix(rng: random.Random) -> str:
    """Return the random end of a generated name. Source: k8s.io/apiserver/pkg/storage/names."""
    return "".join(rng.choices(_SUFFIX_ALPHABET, k=NAME_SUFFIX_LENGTH))
