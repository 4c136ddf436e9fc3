"""VolumeCandidates: the volume that is chosen for a claim on a node."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.kube.objects.storage_types import PersistentVolume
from kubeloop.kube.values.quantities import value
from kubeloop.scheduler.plugins.volumes.volume_binder import VolumeCandidates, matches_node
from support.objects.plugin_volumes import make_claim, make_volume

ZONE = "topology.kubernetes.io/zone"


def by_capacity_and_name(volume: PersistentVolume) -> tuple[int, str]:
    return value(volume.spec.capacity["storage"]), volume.metadata.name


@pytest.mark.parametrize("seed", range(20))
def test_smallest_accessible_volume_is_chosen(seed: int, node: Callable[..., Any]) -> None:
    rng = random.Random(seed)
    keys = ("kubernetes.io/hostname", ZONE, "rack")

    def random_affinity() -> list[tuple[str, str, list[str]]] | None:
        operators = rng.choice([["In"], ["In", "NotIn"], ["NotIn"], ["Exists"]])
        if rng.random() < 0.2:
            return None
        values = ["n0", "n1", "a", "b"]
        return [
            (rng.choice(keys), operator, [] if operator == "Exists" else rng.sample(values, rng.randrange(1, 3)))
            for operator in operators
        ]

    volumes = [
        make_volume(f"pv{number}", affinity=random_affinity(), capacity={"storage": f"{rng.randrange(1, 6)}Gi"})
        for number in range(20)
    ]
    claim = make_claim("c", storage="2Gi")
    candidates = VolumeCandidates(claim, volumes)
    for number in range(8):
        target = node(f"n{number % 3}", labels={ZONE: rng.choice("ab")} | ({"rack": "a"} if rng.random() < 0.5 else {}))
        chosen = {f"pv{rng.randrange(20)}" for _ in range(rng.randrange(4))}
        fitting = [
            volume
            for volume in volumes
            if volume.metadata.name not in chosen
            and value(volume.spec.capacity["storage"]) >= 2 << 30
            and matches_node(volume.spec.node_affinity, target)
        ]
        smallest = min(fitting, key=by_capacity_and_name, default=None)
        assert candidates.find(target, chosen) is smallest
