"""UIDs of objects, from a seeded random source."""

from __future__ import annotations

import random
import uuid


def new_uid(rng: random.Random) -> str:
    """Return a random UUID of version 4."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
