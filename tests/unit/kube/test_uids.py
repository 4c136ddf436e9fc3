"""UIDs of objects."""

from __future__ import annotations

import random
import uuid

from kubeloop.kube.uids import new_uid


def test_uid_is_a_uuid_that_the_seed_determines():
    rng, same = random.Random(1), random.Random(1)
    uids = [new_uid(rng) for _ in range(2)]
    assert uids == [new_uid(same) for _ in range(2)]
    assert uids[0] != uids[1]
    assert uuid.UUID(uids[0]).version == 4
